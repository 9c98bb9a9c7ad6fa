"""Finds the line of the user that makes a call, and the library through which it is made.

The stack is walked anew for each call, since a callback of the user may stand between a library and
the same line as before. What is known of each function and line on the way is looked up.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CodeType, FrameType

from ...model.flight import library
from ...model.user_code import is_user_code, package_file
from .frames import path_in_torch

#: What a function can be: torch's, an installed package's, the user's, or none of these.
_OTHER, _OF_TORCH, _INSTALLED, _OF_USER = range(4)
#: Functions and lines that are kept.
_MOST = 4096

#: The user's function and instruction, and the next functions of torch and of a package.
_Way = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class CallSite:
    """Where a call is made; the same object for the same place.

    Attributes
    ----------
    file, line, function
        The user's line, as in `CallRecord`.
    library
        The library that makes the call, as in `CallRecord`.
    """

    file: str = ""
    line: int = 0
    function: str = "<module>"
    library: str | None = None


class CallSites:
    """The places from which calls were made so far."""

    def __init__(self) -> None:
        # by id, as the hash of a code object takes long; the codes are kept, so ids stay their own
        self._kinds: dict[int, int] = {}
        self._codes: list[CodeType] = []
        self._known: dict[_Way, tuple[CallSite, tuple[CodeType | None, ...]]] = {}

    def of(self, frame: FrameType | None) -> CallSite:
        """The place that leads to a frame."""
        kinds = self._kinds
        in_torch = installed = None
        while frame is not None:
            code = frame.f_code
            try:
                kind = kinds[id(code)]
            except KeyError:
                kind = self._learn(code)
            if kind == _OF_USER:
                break
            if kind == _OF_TORCH:
                if in_torch is None:
                    in_torch = code
            elif kind == _INSTALLED and installed is None:
                installed = code
            frame = frame.f_back
        key = (
            (id(frame.f_code), frame.f_lasti, id(in_torch), id(installed))
            if frame is not None
            else (0, 0, id(in_torch), 0)
        )
        found = self._known.get(key)
        if found is None:
            users = frame.f_code if frame is not None else None
            found = _site(frame, in_torch, installed), (users, in_torch, installed)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found[0]

    def _learn(self, code: CodeType) -> int:
        if len(self._codes) >= _MOST:
            self._kinds.clear()
            self._codes.clear()
        kind = self._kinds[id(code)] = _kind_of(code.co_filename)
        self._codes.append(code)
        return kind


def _site(
    frame: FrameType | None, in_torch: CodeType | None, installed: CodeType | None
) -> CallSite:
    """The place, from the user's frame and the innermost functions of torch and of a package."""
    made_by = path_in_torch(in_torch.co_filename) if in_torch is not None else None
    if frame is None:
        return CallSite(library=made_by)
    code = frame.f_code
    if installed is not None and library(made_by) is None:
        made_by = installed.co_filename
    line = frame.f_lineno or code.co_firstlineno
    return CallSite(code.co_filename, line, code.co_name, made_by)


@functools.lru_cache(maxsize=_MOST)
def _kind_of(file: str) -> int:
    if is_user_code(file):
        return _OF_USER
    if path_in_torch(file) is not None:
        return _OF_TORCH
    return _OTHER if package_file(file) is None else _INSTALLED
