"""Finds who wrote the message of an exception: PyTorch and Python, a library, or the user."""

from __future__ import annotations

import re

from ddt_notebook.model import RankError

_RAISE = re.compile(r"(raise|assert)\b")
#: The packages other than PyTorch; a path without this part belongs to Python, PyTorch or the user.
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\](?!torch[/\\])")


def raised_by_user(error: RankError) -> bool:
    """Whether the user's own ``raise`` or ``assert`` raised it, with any text.

    For an exception from C++ code, the innermost line is the call, which is not a ``raise``.
    """
    if not error.frames:
        return False
    innermost = error.frames[-1]
    return innermost == error.where and bool(_RAISE.match(innermost.code))


def raised_by_library(error: RankError) -> bool:
    """Whether it comes from a package other than PyTorch, which may use the same words."""
    return bool(error.frames) and bool(_PACKAGES.search(error.frames[-1].file))
