"""The TCP sockets through which a rank talks to its group, so that a wait in them can be ended.

Gloo and TCPStore give no handle to their sockets. They are found as those that appear while a
group is being formed; shutting them down makes a blocked call raise at the line where it stands.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd")


def _open_sockets() -> dict[int, int]:
    """Inode of each open socket, by descriptor."""
    found = {}
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
            status = os.fstat(int(name))
            if (status.st_mode & 0o170000) == 0o140000:
                found[int(name)] = status.st_ino
    return found


class GroupSockets:
    """Remembers which sockets belong to process groups.

    The main thread goes from command to command while the monitor's thread is asked to end a wait.
    What it hears too late was about an earlier command, and must not end what has begun since.
    """

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        self._oldest_request = 0
        self._lock = threading.Lock()
        self._before: dict[int, int] | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Claim every socket that appears inside this block."""
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
        before = self._before  # once: the block may end in the other thread meanwhile
        return set() if before is None else set(_open_sockets().items()) - set(before.items())

    def outdate(self, request: int) -> None:
        """Ignore requests to cut that were made before this one, from now on."""
        with self._lock:
            self._oldest_request = request

    def cut_as_asked(self, request: int) -> int:
        """`cut`, unless a later request is being carried out already."""
        with self._lock:
            return self.cut() if request >= self._oldest_request else 0

    def forget(self) -> None:
        """Drop what is known: the groups were destroyed."""
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
                    duplicate.getpeername()  # raises for a listener, whose loss would abort gloo
                    duplicate.shutdown(socket.SHUT_RDWR)
                    count += 1
        return count
