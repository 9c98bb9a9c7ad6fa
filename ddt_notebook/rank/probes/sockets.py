"""Finds the TCP sockets of a rank's process groups, to end a call that waits in one.

Gloo and TCPStore give no access to their sockets. So all sockets that appear while a group is
formed count as theirs. When they are shut down, a blocked call raises an exception at its line.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from .peers import stranger

_DESCRIPTORS = Path("/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd")


def _open_sockets() -> dict[int, int]:
    """Inode of each open socket, by descriptor."""
    found = {}
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself has been closed
            status = os.fstat(int(name))
            if (status.st_mode & 0o170000) == 0o140000:
                found[int(name)] = status.st_ino
    return found


class GroupSockets:
    """Records which sockets belong to process groups.

    The monitor's thread receives requests to end a wait while the main thread runs commands. A
    request that arrives late belongs to an earlier command, and must not end a later one.
    """

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        self._oldest_request = 0
        self._lock = threading.Lock()
        self._before: dict[int, int] | None = None
        #: Ends a wait of this rank in a framework's own connections.
        self.also_free: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record every socket that appears inside this block."""
        outermost = self._before is None
        if outermost:
            self._before = _open_sockets()
        try:
            yield
        finally:
            if outermost:
                self._known |= self._appeared()
                self._before = None

    def _appeared(self) -> set[tuple[int, int]]:
        before = self._before  # read once: the other thread may end the block meanwhile
        return set() if before is None else set(_open_sockets().items()) - set(before.items())

    def refuse_strangers(self) -> None:
        """End the connections that appeared in this block if one leads to another user's process.

        Raises
        ------
        RuntimeError
            If there is one.
        """
        for descriptor, _ in self._appeared():
            with (
                contextlib.suppress(OSError),
                socket.socket(fileno=os.dup(descriptor)) as duplicate,
            ):
                user = stranger(duplicate)
                if user is not None:
                    self.cut()
                    raise RuntimeError(
                        f"a process of another user (uid {user}) has connected to this process "
                        "group, so it was ended: use a machine or a container of your own"
                    )

    def outdate(self, request: int) -> None:
        """From now on, ignore requests to cut that are older than this one."""
        with self._lock:
            self._oldest_request = request

    def cut_as_asked(self, request: int) -> int:
        """Cut, unless the main thread already runs a later request; returns how many were cut."""
        with self._lock:
            if request < self._oldest_request:
                return 0
            self.also_free()
            return self.cut()

    def forget(self) -> None:
        """Forget all sockets: the groups were destroyed."""
        self._known.clear()

    def cut(self) -> int:
        """Shut down every known socket that is still open; returns how many there were."""
        still_open = set(_open_sockets().items())
        count = 0
        for descriptor, inode in (set(self._known) | self._appeared()) & still_open:
            with (
                contextlib.suppress(OSError),
                socket.socket(fileno=os.dup(descriptor)) as duplicate,
            ):
                same = os.fstat(duplicate.fileno()).st_ino == inode
                if same and duplicate.family in (socket.AF_INET, socket.AF_INET6):
                    duplicate.getpeername()  # raises for a listening socket, which gloo needs
                    duplicate.shutdown(socket.SHUT_RDWR)
                    count += 1
        return count
