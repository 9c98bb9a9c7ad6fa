"""Finds the user's line on the stack, past the frames of libraries and of this package."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch

from ...model import Position
from ...model.user_code import is_user_code

_TORCH = str(Path(torch.__file__).parent)


@functools.lru_cache(maxsize=4096)
def path_in_torch(file: str) -> str | None:
    """``nn/parallel/distributed.py``; None for a file outside torch."""
    return file.removeprefix(_TORCH).lstrip("/") if file.startswith(_TORCH) else None


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames that belong to the user's code, innermost first."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def user_line(frame: FrameType | None) -> Position | None:
    """The innermost line of the user's code."""
    for found in user_frames(frame):
        code = found.f_code
        return Position(file=code.co_filename, line=found.f_lineno, function=code.co_name)
    return None
