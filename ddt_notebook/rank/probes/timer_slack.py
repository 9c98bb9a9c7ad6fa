"""How late threads may wake that only look now and then.

Gloo's thread looks every 10 ms for as long as there is a group, also at an idle prompt; Linux lets
several such looks be one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_TIMERSLACK = 29
_MINE_AGAIN = 0
#: Data wakes such a thread at once; only leaving a group waits for it, about twice.
SLACK_NS = 30_000_000


@contextmanager
def for_new_threads() -> Iterator[None]:
    """Let the threads that this one starts inside sleep longer than they ask (Linux)."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NS), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_MINE_AGAIN), 0, 0, 0)
