"""Exceptions that a handler of a signal raises while our own code runs, such as a time limit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def let_through(error: BaseException) -> None:
    """Raise an exception again if a signal's handler raised it: it is meant for the user's code."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = [code for one in handlers if (code := getattr(one, "__code__", None)) is not None]
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code in codes:
            raise error
        at = at.tb_next


@contextmanager
def left_out() -> Iterator[None]:
    """Go on without an observation that fails; what a signal's handler raised meanwhile passes."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (each place says what may raise)
        let_through(error)
