"""Protects work that must be completed from keyboard interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[None]:
    """Take a keyboard interrupt only at the end of this block, which must be short."""
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts go to the main thread
        return
    noted: list[FrameType | None] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if noted and callable(before):  # also the end of a block around this one
        before(signal.SIGINT, noted[0])
    elif noted and before is not signal.SIG_IGN:
        raise KeyboardInterrupt
