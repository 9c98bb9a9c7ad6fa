"""Finds the lines of the user that lead to a call, and the library through which it is made.

The stack is walked anew for each call, since a callback of the user may stand between a library and
the same line as before. What is known of each function and line on the way is looked up.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CodeType, FrameType

from ...model.flight import library
from ...model.user_code import is_user_code, package_file
from ...wire.records import encode_callers
from .frames import path_in_torch

#: What code can be: torch's, an installed package's, a function of the user's, the top level of a
#: cell or of a file of the user's, or none of these.
_OTHER, _OF_TORCH, _INSTALLED, _OF_USER, _TOP_LEVEL = range(5)
#: Functions and lines that are kept.
_MOST = 4096

#: Calling lines that are kept, and frames that are looked at for them. They bound the time of a
#: call in a deep recursion; chosen, not measured.
_MOST_CALLERS, _FRAMES = 8, range(48)
_LONGEST = 2 + 2 * _MOST_CALLERS  #: numbers of a way before the last of its lines

#: The next functions of torch and of a package, and the user's functions and instructions.
_Way = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallSite:
    """Where a call is made; the same object for the same place.

    Attributes
    ----------
    file, line, function
        The user's line, as in `CallRecord`.
    callers
        The lines that led there, as in `CallRecord`.
    library
        The library that makes the call, as in `CallRecord`.
    """

    file: str = ""
    line: int = 0
    function: str = "<module>"
    library: str | None = None
    callers: str = ""


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
            if kind >= _OF_USER:
                break
            if kind == _OF_TORCH:
                if in_torch is None:
                    in_torch = code
            elif kind == _INSTALLED and installed is None:
                installed = code
            frame = frame.f_back
        way = [id(in_torch), id(installed)]
        if frame is not None:
            self._follow(frame, way)
        key = tuple(way)
        found = self._known.get(key)
        if found is None:
            users = self._users(frame, (len(way) - 2) // 2)
            codes = *(one.f_code for one in users), in_torch, installed
            found = _site(users, in_torch, installed), codes
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found[0]

    def _follow(self, frame: FrameType, way: list[int]) -> None:
        """Add the user's functions and instructions, up to the top level, to a way."""
        kinds = self._kinds
        at: FrameType | None = frame
        for _ in _FRAMES:
            if at is None:
                return
            code = at.f_code
            try:
                kind = kinds[id(code)]
            except KeyError:
                kind = self._learn(code)
            if kind >= _OF_USER:
                way += id(code), at.f_lasti
                if kind == _TOP_LEVEL or len(way) > _LONGEST:
                    return
            at = at.f_back

    def _users(self, frame: FrameType | None, count: int) -> list[FrameType]:
        """The first of the user's frames from one of them on."""
        found: list[FrameType] = []
        while frame is not None and len(found) < count:
            if self._kinds.get(id(frame.f_code), _OTHER) >= _OF_USER:
                found.append(frame)
            frame = frame.f_back
        return found

    def _learn(self, code: CodeType) -> int:
        if len(self._codes) >= _MOST:
            self._kinds.clear()
            self._codes.clear()
        kind = self._kinds[id(code)] = _kind_of(code.co_filename)
        if kind == _OF_USER and code.co_name == "<module>":
            kind = self._kinds[id(code)] = _TOP_LEVEL
        self._codes.append(code)
        return kind


def _site(
    users: list[FrameType], in_torch: CodeType | None, installed: CodeType | None
) -> CallSite:
    """The place, from the user's frames and the innermost functions of torch and of a package."""
    made_by = path_in_torch(in_torch.co_filename) if in_torch is not None else None
    if not users:
        return CallSite(library=made_by)
    if installed is not None and library(made_by) is None:
        made_by = installed.co_filename
    (file, line, function), *callers = [
        (one.f_code.co_filename, one.f_lineno or one.f_code.co_firstlineno, one.f_code.co_name)
        for one in users
    ]
    return CallSite(file, line, function, made_by, encode_callers(callers))


@functools.lru_cache(maxsize=_MOST)
def _kind_of(file: str) -> int:
    if is_user_code(file):
        return _OF_USER
    if path_in_torch(file) is not None:
        return _OF_TORCH
    return _OTHER if package_file(file) is None else _INSTALLED
