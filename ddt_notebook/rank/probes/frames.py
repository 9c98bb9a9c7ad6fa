"""Finds the user's line on the stack, past the frames of libraries and of this package."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ...model import Position
from ...model.user_code import is_user_code, package_file

_TORCH = str(Path(torch.__file__).parent)
#: Before Python 3.13, a function's frame keeps the copy that ``f_locals`` makes of its variables.
_KEEPS_COPY = sys.version_info < (3, 13)
#: References to that copy if nobody else has one: the frame's, a local name, and an argument.
_OWN_REFERENCES = 3


#: Torch's file that calls the ``forward`` of a module.
_MODULE = "nn/modules/module.py"


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


def model_call(frame: FrameType | None) -> Position | None:
    """The user's line that called the outermost module; None if no line of the user's is within it.

    A ``forward`` of the user's is called by torch, and what calls the whole model is not.
    """
    inside = False
    for found in user_frames(frame):
        caller = found.f_back
        if caller is not None and path_in_torch(caller.f_code.co_filename) == _MODULE:
            inside = True
        elif inside:
            code = found.f_code
            return Position(file=code.co_filename, line=found.f_lineno, function=code.co_name)
    return None


def calling_package(frame: FrameType | None) -> str:
    """The file of the installed library, other than torch, between here and the user's code."""
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        if file := package_file(frame.f_code.co_filename):
            return file
        frame = frame.f_back
    return ""


def local_variables(frame: FrameType) -> Mapping[str, Any]:
    """The variables of a frame, without a trace of the look in the frame.

    The copy that the frame keeps would hold the results of this moment, such as a loss with its
    graph, in memory until the function returns. It is emptied, unless the user (who called
    ``locals()``) or a debugger works with it.
    """
    local = frame.f_locals
    if not _KEEPS_COPY or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return local
    found = dict(local)
    traced = frame.f_trace is not None or sys.gettrace() is not None
    if not traced and sys.getrefcount(local) <= _OWN_REFERENCES:
        local.clear()
    return found


def scopes(frame: FrameType | None, most: int) -> Iterator[Mapping[str, Any]]:
    """The variables of the user's innermost frames, local before global ones, each scope once."""
    seen: set[int] = set()
    for user in itertools.islice(user_frames(frame), most):
        yielded = user.f_globals
        if user.f_code.co_flags & inspect.CO_NEWLOCALS or user.f_locals is not yielded:
            yield local_variables(user)
        if id(yielded) not in seen:
            seen.add(id(yielded))
            yield yielded
