"""Lets gloo's threads wake later than requested, so that an idle rank uses less processor time.

Gloo's thread polls every 10 ms while there is a group, even at an idle prompt. With a timer slack,
Linux combines several of these wake-ups.
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
    """Let threads that start inside this block wake later than requested (Linux)."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NS), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_MINE_AGAIN), 0, 0, 0)
