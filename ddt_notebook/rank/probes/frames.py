"""Finds the user's line on the stack, past the frames of torch and of this package."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch

_TORCH = str(Path(torch.__file__).parent)
_PACKAGE = str(Path(__file__).parents[2])
_PLUMBING = (_TORCH, _PACKAGE, "<frozen", contextlib.__file__, functools.__file__)


@functools.lru_cache(maxsize=4096)
def is_plumbing(file: str) -> bool:
    """Whether a file belongs to torch, to this package or to modules through which both call.

    Other libraries do not count, since the user may have written one that calls
    ``torch.distributed``. `model.position.is_library` covers all libraries.
    """
    return file.startswith(_PLUMBING)


@functools.lru_cache(maxsize=4096)
def path_in_torch(file: str) -> str | None:
    """``nn/parallel/distributed.py``; None for a file outside torch."""
    return file.removeprefix(_TORCH).lstrip("/") if file.startswith(_TORCH) else None


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames that belong to the user's code, innermost first."""
    while frame is not None:
        if not is_plumbing(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def user_line(frame: FrameType | None) -> dict[str, object] | None:
    """A `Position` as plain data: the innermost line of a cell, else of the user's files."""
    innermost = None
    for found in user_frames(frame):
        innermost = innermost or found
        if found.f_code.co_filename.startswith("cell["):
            innermost = found
            break
    if innermost is None:
        return None
    code = innermost.f_code
    return {"file": code.co_filename, "line": innermost.f_lineno, "function": code.co_name}
