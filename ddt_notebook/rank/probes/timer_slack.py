"""Lets gloo's threads wake later than they ask for, so that an idle rank uses less of a processor.

Gloo's thread polls every 10 ms for as long as there is a group, also at an idle prompt. With a
timer slack, Linux lets several of these wake-ups coincide.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_TIMERSLACK = 29
_MINE_AGAIN = 0
#: In nanoseconds. Data wakes such a thread at once; only leaving a group waits for it, about twice.
SLACK_NS = 30_000_000


@contextmanager
def for_new_threads() -> Iterator[None]:
    """Let threads that are started inside this block wake later than they ask for (Linux)."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NS), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_MINE_AGAIN), 0, 0, 0)
