"""Keyboard interrupts, kept away from work that must be done whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raise a keyboard interrupt only at the end of this block, which must be short.

    A group that is formed on some ranks only would be worse than a moment's delay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts go to the main thread
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if noted:
        raise KeyboardInterrupt
