"""Notes for which file or lock the main thread asks again and again, so that a wait has a name."""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model import Position
from ...model.rank import WaitsFor
from ..training_thread import CURRENT
from .frames import user_line

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: A loop that waits has asked this often; fewer questions may search for one of several files.
_POLLS = 3
_MAX_FILES = 16
#: A loop still waits if it asked within so many of its own intervals, and this time in seconds.
_INTERVALS, _AT_LEAST_S = 2.0, 1.0


@dataclass(slots=True)
class _Poll:
    """Questions from one line of the user's code for one file."""

    waits_for: WaitsFor
    file: str
    where: Position
    first_s: float
    last_s: float
    count: int = 1
    #: Device and number of a file whose lock was refused, as `/proc/locks` shows them.
    node: str = ""

    def goes_on(self, now_s: float) -> bool:
        """Whether the loop has asked often, and lately."""
        interval_s = (self.last_s - self.first_s) / max(self.count - 1, 1)
        return self.count >= _POLLS and now_s - self.last_s <= _AT_LEAST_S + _INTERVALS * interval_s


class PolledFiles:
    """The files that did not exist, or whose lock was refused, when the main thread asked."""

    def __init__(self) -> None:
        self._polls: dict[tuple[WaitsFor, str, Position], _Poll] = {}
        self._noting = False

    def begin_run(self) -> None:
        """Begin a cell."""
        self._polls = {}

    def missing(self, path: Any) -> None:
        """Note that a file does not exist."""
        own = CURRENT.works_here and not self._noting
        if own and isinstance(path, (str, os.PathLike)):
            self._noting = True  # finding the user's line may ask for files that do not exist
            try:
                with suppress(TypeError, ValueError, OSError):
                    self._note("missing file", str(Path(path).absolute()), "")
            finally:
                self._noting = False

    def refused(self, lock: Any) -> None:
        """Note that another process holds the lock of an open file."""
        if not CURRENT.works_here:
            return
        with suppress(AttributeError, TypeError, OSError):
            number = lock if isinstance(lock, int) else lock.fileno()
            state = os.fstat(number)
            device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
            file = str(Path(f"/proc/self/fd/{number}").readlink())
            self._note("busy lock", file, f"{device}:{state.st_ino}")

    def _note(self, waits_for: WaitsFor, file: str, node: str) -> None:
        where = user_line(sys._getframe())
        if where is None:
            return
        key, now_s = (waits_for, file, where), time.monotonic()
        poll = self._polls.get(key)
        if poll is None:
            while len(self._polls) >= _MAX_FILES:
                del self._polls[next(iter(self._polls))]
            self._polls[key] = _Poll(waits_for, file, where, now_s, now_s, node=node)
        else:
            poll.count += 1
            poll.last_s = now_s

    def waits_for(self, stack: tuple[Position, ...]) -> tuple[WaitsFor, str, int | None]:
        """What the main thread, with this stack, polls; the file, and who holds its lock."""
        now_s = time.monotonic()
        functions = {(at.file, at.function) for at in stack}
        for poll in sorted([*self._polls.values()], key=lambda one: -one.last_s):
            if not poll.goes_on(now_s) or (poll.where.file, poll.where.function) not in functions:
                continue
            if poll.waits_for == "busy lock":
                return poll.waits_for, poll.file, _holder(poll.node)
            if not _exists(poll.file):
                return poll.waits_for, poll.file, None
        return "", "", None


#: The record of this process.
RECORD = PolledFiles()


def _exists(file: str) -> bool:
    with suppress(OSError):
        os.lstat(file)
        return True
    return False


def _holder(node: str) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] != "->" and fields[5] == node and int(fields[4]) > 0:
                return int(fields[4])
    return None


def install() -> None:
    """Record the questions of this process."""
    for name in ("stat", "lstat"):
        setattr(os, name, _asking(getattr(os, name)))
    opening = _asking(builtins.open)
    builtins.open = opening
    io.open = opening
    if fcntl is not None:
        for name in ("flock", "lockf"):
            setattr(fcntl, name, _locking(getattr(fcntl, name)))


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    missing = RECORD.missing

    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return original(*args, **kwargs)
        except FileNotFoundError:
            if args:
                missing(args[0])
            raise

    return ask


def _locking(original: Callable[..., Any]) -> Callable[..., Any]:
    refused = RECORD.refused

    @functools.wraps(original)
    def lock(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return original(*args, **kwargs)
        except BlockingIOError:
            if args:
                refused(args[0])
            raise

    return lock
