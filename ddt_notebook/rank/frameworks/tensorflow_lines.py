"""Finds the user's line from which TensorFlow was called.

AutoGraph translates the functions that become graphs; what runs then is a generated file.
"""

from __future__ import annotations

import functools
import sys
import threading
from types import FrameType
from typing import Any

from ...model import Position
from ...model.user_code import is_user_code

#: Where the user wrote a line of a file that AutoGraph has generated.
_ORIGINS: dict[tuple[str, int], Position] = {}


def install() -> None:
    """Note from now on what AutoGraph translates."""
    from tensorflow.python.autograph.pyct import origin_info

    original = origin_info.create_source_map

    @functools.wraps(original)
    def create_source_map(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        for generated, origin in found.items():
            _ORIGINS[generated.filename, generated.lineno] = Position(
                file=origin.loc.filename,
                line=origin.loc.lineno,
                function=origin.function_name or "",
            )
        return found

    origin_info.create_source_map = create_source_map


def users_position(frame: FrameType | None) -> Position | None:
    """The user's line, on the main thread if a thread for a replica has none."""
    found = position_in(frame)
    return found or position_in(sys._current_frames().get(threading.main_thread().ident or 0))


def position_in(frame: FrameType | None) -> Position | None:
    """The user's line in a stack."""
    while frame is not None:
        code = frame.f_code
        found = position_of(code.co_filename, frame.f_lineno, code.co_name)
        if found is not None:
            return found
        frame = frame.f_back
    return None


def position_of(file: str, line: int, function: str) -> Position | None:
    """The user's line that runs as this one; None if it is not the user's."""
    # AutoGraph gives the user's own for what is on the main thread, but not for threads of replicas
    origin = _ORIGINS.get((file, line))
    if origin is not None and is_user_code(origin.file):
        return origin
    return Position(file=file, line=line, function=function) if is_user_code(file) else None
