"""The thread in which this process trains: the main thread, unless a job gave it another one.

Some launchers call the user's training function in a thread of each worker, and keep the main
thread for their own work. All that a rank records is recorded of one thread, and the monitor shows
where that thread stands.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from .probes.frames import user_frames

#: In these files of Python, a thread waits for others.
_WAITING_CODE = frozenset(
    sys.modules[name].__file__ for name in ("threading", "selectors") if name in sys.modules
)
#: A thread that has just started another one gets this long to begin its wait, in seconds.
_SETTLES_S, _LOOKS = 0.2, 20


@dataclass(frozen=True, slots=True)
class Serving:
    """A function of the user that another thread runs for the training thread.

    Attributes
    ----------
    ident, native_id
        The number of the thread, as Python and the operating system have it.
    since_s
        When the function was called, on the machine's monotonic clock in seconds.
    """

    ident: int
    native_id: int
    since_s: float


class TrainingThread:
    """The thread that is recorded, and when recording goes on in another one.

    Attributes
    ----------
    ident
        Its number, as `threading.get_ident` returns it.
    has_begun
        Returns whether it has trained or entered a collective.
    is_in_call
        Returns whether a call of it is being recorded.
    moved
        Is called in another thread when recording goes on there, with the innermost frame of the
        thread that it leaves. None if it stays: in a session,
        cells run on the main thread.
    ended
        Is called when a training function that was given its own thread has ended, with its
        exception or None.
    served_by
        Returns which thread of a framework runs a function of the user for this thread now, as
        `Serving`; None if none does.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew with the main thread, as in a child of this process."""
        self.ident = threading.main_thread().ident or 0
        self.has_begun: Callable[[], bool] = lambda: True
        self.is_in_call: Callable[[], bool] = lambda: True
        self.moved: Callable[[FrameType | None], object] | None = None
        self.ended: Callable[[BaseException | None], object] | None = None
        self.served_by: Callable[[], Serving | None] = lambda: None
        self._stays = False  # whether another thread has been refused
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Record the current thread from here on."""
        if self.ident != threading.get_ident():
            left = self.frame()
            self.ident = threading.get_ident()
            if self.moved is not None:
                self.moved(left)

    @property
    def is_current(self) -> bool:
        """Whether the current thread is recorded."""
        return threading.get_ident() == self.ident

    @property
    def works_here(self) -> bool:
        """Whether the current thread is recorded, or runs a function for it."""
        if self.is_current:
            return True
        serving = self.served_by()
        return serving is not None and serving.ident == threading.get_ident()

    @property
    def native_id(self) -> int:
        """The operating system's number of the thread; 0 if it has ended."""
        if self.ident == threading.main_thread().ident:
            return os.getpid()  # after a fork, Python 3.11 keeps the parent's number
        thread = self._thread()
        return 0 if thread is None else thread.native_id or 0

    def frame(self) -> FrameType | None:
        """The innermost frame of the thread."""
        return sys._current_frames().get(self.ident)

    def moves(self) -> bool:
        """Whether training turns out to go on in the current thread, which is then recorded.

        It does if the recorded thread has ended, or has done nothing but form groups and now waits
        for other threads, or runs nothing of the user's. All ranks should decide alike, so a thread
        that is busy is looked at once, and for a short while.
        """
        if self.moved is None:
            return False
        with self._lock:
            if self.is_current:
                return True
            if self._thread() is None or self._returns():
                self.follow()
                return True
            self._stays = self._stays or self.has_begun() or not self._waits()
            if not self._stays:
                self.follow()
            return not self._stays

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the user's training function, for which this thread was started."""
        __tracebackhide__ = True
        self.follow()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        return result

    def _end(self, error: BaseException | None) -> None:
        if self.ended is not None and self.is_current:
            self.ended(error)

    def _thread(self) -> threading.Thread | None:
        return next((one for one in threading.enumerate() if one.ident == self.ident), None)

    def _returns(self) -> bool:
        """Whether the user's code goes on in the main thread, which then is recorded for good."""
        if threading.current_thread() is not threading.main_thread() or self.is_in_call():
            return False
        self._stays = next(user_frames(sys._getframe()), None) is not None
        return self._stays

    def _waits(self) -> bool:
        """Whether the recorded thread waits for others or runs nothing of the user's."""
        for look in range(_LOOKS):
            if look:
                time.sleep(_SETTLES_S / _LOOKS)
            frame = self.frame()
            if next(user_frames(frame), None) is None:
                return True
            waits = starts = False
            while frame is not None and frame.f_code.co_filename in _WAITING_CODE:
                waits, starts = True, starts or frame.f_code is _START
                frame = frame.f_back
            if waits and not starts:
                return True
        return False


#: Its own wait ends as soon as the thread runs.
_START = threading.Thread.start.__code__
#: That of this process.
CURRENT = TrainingThread()
os.register_at_fork(after_in_child=CURRENT.forget)
