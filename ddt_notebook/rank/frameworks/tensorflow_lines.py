"""Finds the user's line from which TensorFlow was called."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from ...model import Position
from ...model.user_code import is_user_code


def users_position(frame: FrameType | None) -> Position | None:
    """The user's line, on the main thread if a thread for a replica has none."""
    found = _users_frame(frame)
    return found or _users_frame(sys._current_frames().get(threading.main_thread().ident or 0))


def _users_frame(frame: FrameType | None) -> Position | None:
    while frame is not None:
        code = frame.f_code
        if is_user_code(code.co_filename):
            return Position(file=code.co_filename, line=frame.f_lineno, function=code.co_name)
        frame = frame.f_back
    return None
