"""Text made by an object of the user, in a bounded time and of a bounded length."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

#: How long the user's code may take to make the text of one cell's result or exceptions.
LIMIT_S = 2.0
_MOST_CHARACTERS = 200_000
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

    def _make(self, subject: object, make: Callable[[Any], str]) -> str:
        kind = type(subject).__name__
        name = getattr(make, "__name__", "str")
        late = f"<{kind}: its __{name}__ took longer than {self._limit_s:g} s and was interrupted>"
        if self._left_s <= 0:
            return f"<{kind}: its __{name}__ was not called, because others took too long>"
        try:
            found = self._limited(lambda: make(subject))
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

    def _limited(self, make: Callable[[], str]) -> str:
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


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """A text of at most about ``most`` characters; a note at its end counts the others."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most} more characters)"
