"""Whose words an exception uses: those of PyTorch and Python, or those of the user's own code."""

from __future__ import annotations

import re

from ddt_notebook.model import RankError

_RAISE = re.compile(r"(raise|assert)\b")
#: Where Python's own modules and PyTorch are; what is elsewhere is a library of somebody else.
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\](?!torch[/\\])")


def raised_by_user(error: RankError) -> bool:
    """Whether the user's own ``raise`` or ``assert`` made it: the text may then say anything.

    An exception of C++ code has the same innermost line as the call, which is no ``raise``.
    """
    if not error.frames:
        return False
    innermost = error.frames[-1]
    return innermost == error.where and bool(_RAISE.match(innermost.code))


def raised_by_library(error: RankError) -> bool:
    """Whether it comes from a package other than PyTorch, which may use the same words."""
    return bool(error.frames) and bool(_PACKAGES.search(error.frames[-1].file))
