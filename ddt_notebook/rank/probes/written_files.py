"""Passes on what the user's code writes to text files, as JSON, CSV or in a form of its own.

A file that the user's code opens for text gets a class that does so; all other files stay as they
are. A file that another process has written in this run brings this rank data of other ranks.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .frames import user_frames

#: Characters of the current line of a file that are kept.
_MAX_LINE = 4096
#: Writes to one file that are noted; more is no record of metrics. Chosen, not measured.
_MAX_WRITES = 10_000
#: Levels of the standard library between ``open`` and the user's call, such as ``Path.open``.
_NEAR = 3
#: Files that this process has opened for writing in a run. Chosen, not measured.
_MAX_OWN = 10_000


class OwnFiles:
    """The files that this process has opened for writing in this run."""

    def __init__(self) -> None:
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a cell."""
        self._since = time.time()
        self._written: set[tuple[int, int]] = set()

    def wrote(self, descriptor: int) -> None:
        """Note a file that this process writes."""
        if len(self._written) < _MAX_OWN:
            about = os.fstat(descriptor)
            self._written.add((about.st_dev, about.st_ino))

    def is_of_others(self, descriptor: int) -> bool:
        """Whether another process has written a file since the run began."""
        about = os.fstat(descriptor)
        return about.st_mtime >= self._since and (about.st_dev, about.st_ino) not in self._written


#: The record of this process.
OWN = OwnFiles()


def install(
    listens: Callable[[], bool], note: Callable[[str, str], None], received: Callable[[], None]
) -> None:
    """Observe the text files that the user's code opens from now on.

    Parameters
    ----------
    listens
        Whether anything that is written is to be noted.
    note
        Is called with what was written and with the line of the file up to there.
    received
        Is called when the user's code opens a file that another process has written in this run.
    """
    original = builtins.open

    @functools.wraps(original)
    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        opened = original(file, mode, *args, **kwargs)
        if listens() and _by_user():
            _exchanges(opened, received)
        if type(opened) is io.TextIOWrapper and opened.writable() and _by_user():
            newline = args[3] if len(args) > 3 else kwargs.get("newline")
            return _observed(opened, mode, newline, listens, note)
        return opened

    builtins.open = opening
    io.open = opening


def _exchanges(opened: Any, received: Callable[[], None]) -> None:
    """Note whether an opened file brings data of other ranks."""
    try:
        if opened.writable():
            OWN.wrote(opened.fileno())
        elif OWN.is_of_others(opened.fileno()):
            received()
    except (OSError, ValueError):  # it is no file of the file system
        return


def _by_user() -> bool:
    """Whether the user's code opens the file, and no library for itself."""
    frame: Any = sys._getframe(2)
    near = set()
    for _ in range(_NEAR):
        if frame is not None:
            near.add(frame)
            frame = frame.f_back
    return next(user_frames(sys._getframe(2)), None) in near


def _observed(
    opened: io.TextIOWrapper,
    mode: str,
    newline: str | None,
    listens: Callable[[], bool],
    note: Callable[[str, str], None],
) -> io.TextIOWrapper:
    buffered = opened.line_buffering
    encoding, errors, through = opened.encoding, opened.errors, opened.write_through
    text = _TextFile(
        opened.detach(),
        encoding=encoding,
        errors=errors,
        newline=newline,
        line_buffering=buffered,
        write_through=through,
    )
    text.mode, text.listens, text.note = mode, listens, note
    return text


class _TextFile(io.TextIOWrapper):
    """A text file whose writes are noted."""

    listens: Callable[[], bool]
    note: Callable[[str, str], None]
    _line = ""
    _writes = 0

    def write(self, text: str, /) -> int:
        """Write, and note what was written."""
        if self._writes < _MAX_WRITES and isinstance(text, str) and self.listens():
            self._writes += 1
            self._line = (self._line + text)[-_MAX_LINE:]
            self.note(text, self._line)
            self._line = self._line.rpartition("\n")[2]
        return super().write(text)

    def writelines(self, lines: Any, /) -> None:
        """Write each of several texts."""
        for line in lines:
            self.write(line)
