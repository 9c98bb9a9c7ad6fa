"""Finds the lines of the user that lead to a call, and the library through which it is made.

The stack is walked anew for each call, since a callback of the user may stand between a library and
the same line as before. What is known of each file and line on the way is looked up.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FrameType

from ...model.flight import library
from ...model.user_code import is_user_code, package_file
from ...wire.records import encode_callers
from .frames import path_in_torch

#: Whose a file can be: torch's, an installed package's, the user's, or none of these.
_OTHER, _OF_TORCH, _INSTALLED, _OF_USER = range(4)
#: The function that is the top level of a cell or of a file.
_TOP_LEVEL = "<module>"
#: Files and lines that are kept.
_MOST = 4096

#: Calling lines that are kept, and frames that are looked at for them. They bound the time of a
#: call in a deep recursion; chosen, not measured.
_MOST_CALLERS, _FRAMES = 8, range(47)
_LONGEST = 2 + 2 * _MOST_CALLERS  #: numbers of a way before the last of its lines

#: The next files of torch and of a package, and the user's functions and instructions.
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
        # by the name of a file: there are few, and the hash of a text is kept in it. That takes two
        # thirds of the time of a look-up by id, also when the processor's caches are cold
        self._kinds: dict[str, int] = {}
        self._known: dict[_Way, tuple[CallSite, tuple[object, ...]]] = {}

    def of(self, frame: FrameType | None) -> CallSite:
        """The place that leads to a frame."""
        kinds = self._kinds
        in_torch = installed = None
        while frame is not None:
            file = frame.f_code.co_filename
            try:
                kind = kinds[file]
            except KeyError:
                kind = self._learn(file)
            if kind:
                if kind == _OF_USER:
                    break
                if kind == _OF_TORCH:
                    if in_torch is None:
                        in_torch = file
                elif installed is None:
                    installed = file
            frame = frame.f_back
        key: _Way
        if frame is None:
            key = id(in_torch), id(installed)
        else:
            code = frame.f_code
            key = id(in_torch), id(installed), id(code), frame.f_lasti
            if code.co_name != _TOP_LEVEL:
                key = self._follow(frame.f_back, [*key])
        found = self._known.get(key)
        if found is None:
            users = self._users(frame, (len(key) - 2) // 2)
            kept = *(one.f_code for one in users), in_torch, installed
            found = _site(users, in_torch, installed), kept
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found[0]

    def _follow(self, at: FrameType | None, way: list[int]) -> _Way:
        """Add the user's further functions and instructions, up to the top level, to a way."""
        kinds = self._kinds
        for _ in _FRAMES:
            if at is None:
                break
            code = at.f_code
            try:
                kind = kinds[code.co_filename]
            except KeyError:
                kind = self._learn(code.co_filename)
            if kind == _OF_USER:
                way += id(code), at.f_lasti
                if code.co_name == _TOP_LEVEL or len(way) > _LONGEST:
                    break
            at = at.f_back
        return tuple(way)

    @staticmethod
    def _users(frame: FrameType | None, count: int) -> list[FrameType]:
        """The first of the user's frames from one of them on."""
        found: list[FrameType] = []
        while frame is not None and len(found) < count:
            if _kind_of(frame.f_code.co_filename) == _OF_USER:
                found.append(frame)
            frame = frame.f_back
        return found

    def _learn(self, file: str) -> int:
        if len(self._kinds) >= _MOST:
            self._kinds.clear()
        kind = self._kinds[file] = _kind_of(file)
        return kind


def _site(users: list[FrameType], in_torch: str | None, installed: str | None) -> CallSite:
    """The place, from the user's frames and the innermost files of torch and of a package."""
    made_by = path_in_torch(in_torch) if in_torch is not None else None
    if not users:
        return CallSite(library=made_by)
    if installed is not None and library(made_by) is None:
        made_by = installed
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
