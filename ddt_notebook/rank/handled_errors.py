"""Observes which exceptions ranks handle and report, on Python 3.11.

There, observing all of the user's code would slow it. A handler after which a rank goes on mostly
prints or logs what it has caught, and while it does so, Python knows the exception.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable

from .branch_events import ALWAYS_ON, BranchEvents


def observe_handled_errors(events: BranchEvents) -> None:
    """Let what a handler writes or logs note the exception that it handles."""
    if ALWAYS_ON:
        return
    for stream in (sys.stdout, sys.stderr):
        stream.write = _writing(events, stream.write)  # type: ignore[method-assign]
    handle = logging.Logger.handle

    @functools.wraps(handle)
    def handle_record(self: logging.Logger, record: logging.LogRecord) -> None:
        _note(events)
        handle(self, record)

    logging.Logger.handle = handle_record  # type: ignore[method-assign]


def _writing(events: BranchEvents, write: Callable[[str], int]) -> Callable[[str], int]:
    @functools.wraps(write)
    def write_text(text: str) -> int:
        _note(events)
        return write(text)

    return write_text


def _note(events: BranchEvents) -> None:
    error = sys.exc_info()[1]
    if error is not None:
        events.note_handled(error)
