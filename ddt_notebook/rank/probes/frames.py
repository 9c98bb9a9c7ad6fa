"""Finds the user's line on the stack, past torch's and our own frames."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch

_PLUMBING = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent.parent),
    "<frozen",
    contextlib.__file__,
    functools.__file__,
)


@functools.lru_cache(maxsize=4096)
def is_plumbing(file: str) -> bool:
    """Whether a file belongs to torch, to the probes or to what calls them.

    Other libraries do not count: what calls ``torch.distributed`` may be one that the user wrote.
    `model.position.is_library` knows all of them.
    """
    return file.startswith(_PLUMBING)


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
