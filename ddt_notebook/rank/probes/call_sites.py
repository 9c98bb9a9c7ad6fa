"""Finds the lines of the user that lead to a call, and the library through which it is made.

The stack is looked at anew for each call, since a callback of the user may stand between a library
and the same line as before. Mostly it consists of the same functions as at an earlier call; to
compare them takes two thirds of the time of looking up the file of each. Mostly the arguments are
those of that call, too, so that what is kept of it need not be looked up.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CodeType, FrameType

from ...model.flight import library
from ...model.user_code import is_user_code, package_file
from ...wire.records import CallRecord, encode_callers
from .frames import path_in_torch
from .known_calls import KnownCall

#: Whose a file can be: torch's, an installed package's, the user's, or none of these.
_OTHER, _OF_TORCH, _INSTALLED, _OF_USER = range(4)
#: The function that is the top level of a cell or of a file.
_TOP_LEVEL = "<module>"
#: Files, lines and calls that are kept.
_MOST = 4096

#: Calling lines that are kept, and frames that are looked at for them. They bound the time of a
#: call in a deep recursion; chosen, not measured.
_MOST_CALLERS, _FRAMES = 8, 47
_LONGEST = 2 * _MOST_CALLERS  #: numbers of the lines before the last one
#: Stacks with the same innermost call that are compared. Libraries call from few places.
_COMPARED = 4
#: Innermost calls of which the stacks are kept.
_MOST_INNER = 512
#: The latest calls that are kept, those among which one like an unexpected one is looked for, and
#: how many calls before these two are compared.
_MOST_CALLS, _LOOKED_AT, _ALIKE = 2048, 64, 8

#: The next files of torch and of a package, and the user's functions and instructions.
_Way = tuple[int, ...]
#: The functions up to the next one of the user, which is the last, and its instruction.
_Run = tuple[tuple[CodeType, ...], int]


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


@dataclass(slots=True, eq=False)
class Made:
    """A call that was made; the same object for those with equal stacks and arguments.

    Attributes
    ----------
    runs
        All functions on its stack, from the innermost one on, so that no other one has the ``id``
        of one of them; the same object for the same stack. Empty if more decides about its place.
    site
        Its place.
    given
        What distinguishes it from other calls with such a stack; None if that is not known.
    known
        What is kept of it; None if that is not known.
    """

    runs: tuple[_Run, ...]
    site: CallSite
    given: object = None
    known: KnownCall | None = None


#: What is expected before the first call: no stack is like it.
_NONE = Made(((((lambda: None).__code__,), -1),), CallSite())


class CallSites:
    """The places from which calls were made so far."""

    def __init__(self) -> None:
        # by the name of a file: there are few, and the hash of a text is kept in it. That takes two
        # thirds of the time of a look-up by id, also when the processor's caches are cold
        self._kinds: dict[str, int] = {}
        self._known: dict[_Way, tuple[CallSite, tuple[object, ...]]] = {}
        self.forget_calls()

    def forget_calls(self) -> None:
        """Forget what was kept of calls."""
        #: By the innermost function and instruction, a call of each stack, the latest one first.
        self._stacks: dict[tuple[int, int], list[Made]] = {}
        #: By the ``id`` of what is on the stack, those with arguments.
        self._made: dict[tuple[int, KnownCall], Made] = {}
        #: The latest calls, and where among them one is that came before one like the next. Steps
        #: repeat each other, but a layer's call may follow itself or another.
        self._order: list[Made] = [_NONE]
        self._next = 0

    def of(self, frame: FrameType | None) -> CallSite:
        """The place that leads to a frame, of a call whose arguments are not kept."""
        made = self.made(frame)
        if made.runs and self._order[-1] is not made:
            self._came(made)
        return made.site

    def made(self, frame: FrameType | None) -> Made:
        """The call that is expected, if the stack is its own; else one without arguments."""
        order, at_next = self._order, self._next
        expected, at, users = order[at_next], frame, frame
        for codes, instruction in expected.runs:
            for code in codes:
                if at is None or at.f_code is not code:
                    break
                users, at = at, at.f_back
            else:
                if users is not None and users.f_lasti == instruction:
                    continue
            return self._found(frame)
        order.append(expected)
        self._next = at_next + 1
        if at_next >= _MOST_CALLS:
            self._shorten()
        return expected

    def other(self, made: Made, given: object, known: KnownCall) -> None:
        """Note that the last call, of which `made` returned one, was given something else."""
        if not made.runs:
            return
        key = id(made.runs), known
        one = self._made.get(key)
        is_new = one is None
        if one is None:
            if len(self._made) >= _MOST:
                self._made.clear()
            one = self._made[key] = Made(made.runs, made.site, given, known)
        one.given = given
        if self._order[-1] is not made:
            self._came(one)
        elif is_new:  # nothing like it came before
            self._order[-1] = one
        else:
            del self._order[-1]
            self._came(one)

    def _shorten(self) -> None:
        """Forget the earliest calls."""
        half = _MOST_CALLS // 2
        del self._order[:half]
        self._next -= half

    def _came(self, made: Made) -> None:
        """Note a call that was not expected, and find one like it that came after the same ones."""
        order = self._order
        order.append(made)
        last, most = len(order) - 1, 0
        for at in range(last - 1, max(0, last - _LOOKED_AT), -1):
            if order[at] is made:
                alike = 1
                while alike < min(_ALIKE, at) and order[at - alike] is order[last - alike]:
                    alike += 1
                if alike > most:
                    self._next, most = at + 1, alike
        if not most:
            self._next = 0
        if last >= 2 * _MOST_CALLS:
            self._next = max(0, self._next - last // 2)
            del order[: last // 2]

    def _found(self, frame: FrameType | None) -> Made:
        """A call without arguments from a frame, where another stack was expected."""
        if frame is None:
            return Made((), self._walk(frame)[0])
        inner = id(frame.f_code), frame.f_lasti
        alike = self._stacks.get(inner)
        if alike is not None:
            for made in alike:
                if _is_on(frame, made.runs):
                    return made
        site, runs = self._walk(frame)
        made = Made(runs, site)
        if runs:
            if len(self._stacks) >= _MOST_INNER:
                self._stacks.clear()
            self._stacks[inner] = [made, *(alike or ())][:_COMPARED]
        return made

    def _walk(self, frame: FrameType | None) -> tuple[CallSite, tuple[_Run, ...]]:
        """The place that leads to a frame, and what is on the stack if that decides about it."""
        kinds = self._kinds
        in_torch = installed = None
        first, left = frame, _FRAMES
        way: list[int] = []
        runs: list[_Run] = []
        codes: list[CodeType] = []
        is_whole = False
        while frame is not None and left >= 0:
            code = frame.f_code
            codes.append(code)
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = self._learn(code.co_filename)
            if kind == _OF_USER:
                way += id(code), frame.f_lasti
                runs.append((tuple(codes), frame.f_lasti))
                codes.clear()
                is_whole = code.co_name == _TOP_LEVEL or len(way) > _LONGEST
                if is_whole:
                    break
            elif not way:
                if kind == _OF_TORCH:
                    in_torch = in_torch or code.co_filename
                elif kind == _INSTALLED:
                    installed = installed or code.co_filename
            left -= bool(way)
            frame = frame.f_back
        key = id(in_torch), id(installed), *way
        found = self._known.get(key)
        if found is None:
            users = self._users(first, len(way) // 2)
            kept = *(one.f_code for one in users), in_torch, installed
            found = _site(users, in_torch, installed), kept
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found[0], tuple(runs) if is_whole else ()

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


def locate(record: CallRecord, site: CallSite) -> None:
    """Add the user's line, and the library's file if a library made the call."""
    record.file, record.line, record.function = site.file, site.line, site.function
    record.callers, record.library = site.callers, site.library


def locate_in(record: CallRecord, site: CallSite, package: str) -> None:
    """As `locate`, for a call of a framework whose own files are no library of the user's."""
    locate(record, site)
    # torch is no caller of a framework's operation: its backward pass may run a hook
    if record.library and (package_file(record.library) or package).startswith(package):
        record.library = None


def _is_on(frame: FrameType, runs: tuple[_Run, ...]) -> bool:
    """Whether a stack is that of a frame; `CallSites.made` does the same without a call."""
    at: FrameType | None = frame
    for codes, instruction in runs:
        user = None
        for code in codes:
            if at is None or at.f_code is not code:
                return False
            user, at = at, at.f_back
        if user is None or user.f_lasti != instruction:
            return False
    return True


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
