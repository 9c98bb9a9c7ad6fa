"""Warnings of wrapped functions name the line that called them, as without this package.

``warnings.warn(…, stacklevel=2)`` names the caller of a function. If the function is wrapped, that
is the wrapper. A function in C warns at the line of Python that called it.
"""

from __future__ import annotations

import sys
import warnings
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

_OWN = str(Path(__file__).parent)
_SHOWS = warnings.__file__


def install() -> None:
    """Leave the frames of wrappers out when callers are counted."""
    original = warnings.warn

    @wraps(original)
    def warn(
        message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any
    ) -> None:
        level = _with_wrappers(sys._getframe(1), stacklevel)
        original(message, category, level + 1, *args, **kwargs)

    warnings.warn = warn
    show = warnings.showwarning

    @wraps(show)
    def showwarning(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if filename.startswith(_OWN):
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.startswith((_OWN, _SHOWS)):
                frame = frame.f_back
            if frame is not None:
                filename, lineno, line = frame.f_code.co_filename, frame.f_lineno, None
        show(message, category, filename, lineno, file, line)

    warnings.showwarning = showwarning


def _with_wrappers(frame: FrameType | None, level: int) -> int:
    """The stack level, from this frame on, that has so many frames without those of wrappers."""
    wrappers, left = 0, level
    while frame is not None and left > 0:
        if frame.f_code.co_filename.startswith(_OWN):
            wrappers += 1
        else:
            left -= 1
        frame = frame.f_back
    return level + wrappers
