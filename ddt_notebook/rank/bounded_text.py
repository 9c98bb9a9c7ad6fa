"""Text made by an object of the user, in a bounded time and of a bounded length."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

_Made = TypeVar("_Made")
#: How long the user's code may take to make the text of one cell's result or exceptions.
LIMIT_S = 2.0
#: How long the traceback of an exception, and its lines as data, may take to make each.
TRACEBACK_LIMIT_S = 4.0
_MOST_CHARACTERS = 200_000
#: Of more notes of an exception, the first ones are shown.
_MOST_NOTES = 100
#: What swallows the first interruption is interrupted again after this time.
_AGAIN_S = 0.1


class _TookTooLong(BaseException):
    """Raised in the user's code; it derives from BaseException so that fewer handlers catch it."""


class TextMaker:
    """Makes texts of the user's objects, all of them together within a limit, each once.

    A signal interrupts what takes longer, also while it sleeps. Code in C that holds the main
    thread is interrupted when it returns. In other threads than the main one there is no limit.

    Parameters
    ----------
    limit_s
        Seconds for all texts.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._left_s = limit_s
        self._limit_s = limit_s
        self._made: dict[int, tuple[object, str]] = {}  # with the object, so that its id stays its

    def text(self, subject: object, make: Callable[[Any], str] = str) -> str:
        """The text that ``make`` returns for an object, or a note on why there is none."""
        if id(subject) not in self._made:
            self._made[id(subject)] = subject, self._make(subject, make)
        return self._made[id(subject)][1]

    def notes_of(self, error: object) -> list[str]:
        """The notes of an exception, as far as they could be made."""
        made: list[str] = []

        def notes(error: Any) -> str:
            found = getattr(error, "__notes__", ())
            listed = found if isinstance(found, (list, tuple)) else [found]
            made.extend(cut(str(note)) for note in listed[:_MOST_NOTES])
            return (
                f"[{left} more notes are left out]"
                if (left := len(listed) - _MOST_NOTES) > 0
                else ""
            )

        last = self._make(error, notes)
        return [*made, last] if last else made

    def _make(self, subject: object, make: Callable[[Any], str]) -> str:
        kind = type(subject).__name__
        name = getattr(make, "__name__", "str")
        late = f"<{kind}: its __{name}__ took longer than {self._limit_s:g} s and was interrupted>"
        if self._left_s <= 0:
            return f"<{kind}: its __{name}__ was not called, because others took too long>"
        try:
            found = self.limited(lambda: make(subject))
        except _TookTooLong:
            self._left_s = 0
            return late
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (the user's code may raise anything)
            return f"<{kind}: its __{name}__ raised {type(error).__name__}>"
        if self._left_s <= 0:  # it swallowed the interruption
            return late
        return cut(found)

    def limited(self, make: Callable[[], _Made]) -> _Made:
        """What ``make`` returns; where time is limited, an exception is raised in it."""
        if threading.current_thread() is not threading.main_thread():
            return make()
        started = time.monotonic()
        armed = True

        def interrupt(*_: object) -> None:
            if armed:
                self._left_s = 0
                raise _TookTooLong

        before = signal.signal(signal.SIGALRM, interrupt)
        users = signal.setitimer(signal.ITIMER_REAL, self._left_s, _AGAIN_S)
        try:
            return make()
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            took = time.monotonic() - started
            self._left_s -= took
            if users[0]:  # the user's own alarm
                signal.setitimer(signal.ITIMER_REAL, max(users[0] - took, 0.001), users[1])


def within(limit_s: float, make: Callable[[], _Made], instead: Callable[[], _Made]) -> _Made:
    """What ``make`` returns, or else ``instead``, if ``make`` takes longer than ``limit_s``."""
    try:
        return TextMaker(limit_s).limited(make)
    except _TookTooLong:
        return instead()


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """A text of at most about ``most`` characters; a note at its end counts the others."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most} more characters)"
