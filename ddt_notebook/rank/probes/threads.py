"""Notes which line started a thread, and the collectives that threads enter."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ...wire import thread_file
from ...wire.thread_file import Line
from .frames import local_variables, user_frames

_OPENS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: How many of the lines that led to the start of a thread are kept.
_MOST_LINES = 6
_POOL = sys.modules[ThreadPoolExecutor.__module__].__file__


class ThreadCalls:
    """Writes what `thread_file` describes."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._numbers = itertools.count()
        self._left = thread_file.MOST_CALLS
        self._noted = False
        self._local = threading.local()
        #: Where each thread was started, and where work was handed to a pool.
        self._threads: weakref.WeakKeyDictionary[threading.Thread, list[Line]] = (
            weakref.WeakKeyDictionary()
        )
        self._work: weakref.WeakKeyDictionary[Future[Any], list[Line]] = weakref.WeakKeyDictionary()

    def attach(self, file: Path) -> None:
        """Begin to record in a new file."""
        self._file = os.open(file, _OPENS, 0o600)

    def detach(self) -> None:
        """Stop recording: a child of the rank must not write to its file."""
        self._file = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self._left = thread_file.MOST_CALLS
        if self._noted and self._file is not None:
            os.write(self._file, thread_file.BEGINS)
        self._noted = False

    def starts(self, thread: threading.Thread, frame: FrameType) -> None:
        """Note that a thread is being started."""
        self._threads[thread] = _lines(frame)

    def hands_over(self, work: Future[Any], frame: FrameType) -> None:
        """Note that work was given to a pool of threads."""
        self._work[work] = _lines(frame)

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        op: str,
        group: str,
    ) -> Any:
        """Make a call of a thread, and note it."""
        __tracebackhide__ = True
        thread = self._current()
        if thread is None or self._left <= 0 or getattr(self._local, "inside", False):
            return function(*args, **kwargs)
        self._left -= 1
        number = next(self._numbers)
        frame = sys._getframe(1)
        with suppress(Exception):  # the thread is the user's
            began = self._handed_over(frame) or self._threads.get(thread, [])
            self._write(
                thread_file.entered(
                    number, op, group, thread.name, next(iter(_lines(frame, 1)), None), began
                )
            )
        self._local.inside = True
        try:
            return function(*args, **kwargs)
        finally:
            self._local.inside = False
            self._write(thread_file.left(number))

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            self._noted = True
            with suppress(OSError):  # the disk may be full
                os.write(self._file, line)

    def _current(self) -> threading.Thread | None:
        """The thread that runs this; None for one of C++, as in a backward pass on a device.

        `threading.current_thread` would make an object for such a thread, which stays.
        """
        me = threading.get_ident()
        return next((one for one in self._threads.copy() if one.ident == me), None)

    def _handed_over(self, frame: FrameType | None) -> list[Line]:
        """Where the work that this thread does was given to its pool."""
        while frame is not None:
            if frame.f_code.co_filename == _POOL and frame.f_code.co_name == "run":
                work = getattr(local_variables(frame).get("self"), "future", None)
                return self._work.get(work, []) if isinstance(work, Future) else []
            frame = frame.f_back
        return []


def _lines(frame: FrameType | None, most: int = _MOST_LINES) -> list[Line]:
    """The user's lines, innermost first."""
    return [
        (found.f_code.co_filename, found.f_lineno, found.f_code.co_name)
        for found in itertools.islice(user_frames(frame), most)
    ]


#: The record of this process.
RECORD = ThreadCalls()


def install() -> None:
    """Record where threads are started, and where pools of threads are given work."""
    start: Any = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit

    @functools.wraps(start)
    def noted_start(thread: threading.Thread) -> None:
        with suppress(Exception):  # it must not reach the user's code
            RECORD.starts(thread, sys._getframe(1))
        start(thread)

    @functools.wraps(submit)
    def noted_submit(pool: ThreadPoolExecutor, /, *args: Any, **kwargs: Any) -> Future[Any]:
        work: Future[Any] = submit(pool, *args, **kwargs)
        with suppress(Exception):
            RECORD.hands_over(work, sys._getframe(1))
        return work

    threading.Thread.start = noted_start  # type: ignore[method-assign, assignment]
    ThreadPoolExecutor.submit = noted_submit  # type: ignore[method-assign,assignment]
