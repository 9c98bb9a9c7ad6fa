"""Notes which thread of the user an exception has ended, so that a wait for it has a name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from ...model import RankError
from ..tracebacks import describe_error
from .frames import local_variables


class EndedThreads:
    """The last exception that has ended a thread in this run."""

    def __init__(self) -> None:
        self.error: RankError | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.error = None

    def note(self, args: threading.ExceptHookArgs) -> None:
        """Note an exception that leaves a thread."""
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            self.error = describe_error(args.exc_value, "")

    def awaited(self) -> RankError | None:
        """What ended the thread for which the main thread waits without a time limit.

        None if another thread of the user or of a library lives: it may end the wait.
        """
        if self.error is None or not self._waits():
            return None
        others = (one for one in threading.enumerate() if one is not threading.main_thread())
        return self.error if all(map(_is_own, others)) else None

    def _waits(self) -> bool:
        """Whether Python waits in the main thread, as `queue.Queue.get` does."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if frame is None or frame.f_code.co_filename != threading.__file__:
            return False
        return local_variables(frame).get("timeout", 0) in (None, -1)


def _is_own(thread: threading.Thread) -> bool:
    """Whether a thread belongs to this package, or to the shell in which cells run."""
    package = type(thread).__module__.partition(".")[0]
    return package == "IPython" or thread.name.startswith("ddt-")


#: The record of this process.
RECORD = EndedThreads()


def install() -> None:
    """Record how threads of this process end."""
    original: Callable[[threading.ExceptHookArgs], object] = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        with suppress(Exception):  # it must not reach the user's code
            RECORD.note(args)
        original(args)

    threading.excepthook = hook
