"""Aligns the events of two ranks: where they took different paths, and where they met again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddt_notebook.model.branches import BranchOutcome

#: How many events of both ranks are searched for the place where they meet again.
_WINDOW = 400
#: The file and the name of a function.
_Function = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Parting:
    """A place at which two ranks took different paths.

    Attributes
    ----------
    absent, waiter
        The paths of the two ranks; None if the rank was not there.
    apart
        For each of the two ranks, the numbers of the events at which they parted and at which they
        met again; the second number is None if they did not.
    """

    absent: BranchOutcome | None
    waiter: BranchOutcome | None
    apart: tuple[tuple[int, int | None], tuple[int, int | None]]

    @property
    def ways(self) -> tuple[object, ...]:
        """Where the ranks parted, and where each of them went."""
        return tuple((one.site, one.to_line) for one in (self.absent, self.waiter) if one)

    @property
    def met_again(self) -> bool:
        return self.apart[0][1] is not None


def align(
    absent: list[BranchOutcome], waiter: list[BranchOutcome], start: tuple[int, int]
) -> Iterator[Parting]:
    """The places at which two ranks took different paths, in order of time.

    Parameters
    ----------
    absent, waiter
        The events of the two ranks.
    start
        The numbers of their first events.
    """
    known: dict[object, int] = {}
    sites = [[known.setdefault(o.site, len(known)) for o in one] for one in (absent, waiter)]
    callers = _callers(absent), _callers(waiter)
    i = j = 0
    while i < len(absent) and j < len(waiter):
        mine, theirs = absent[i], waiter[j]
        at_one_site = sites[0][i] == sites[1][j]
        if at_one_site and (mine.to_line, mine.error) == (theirs.to_line, theirs.error):
            i, j = i + 1, j + 1
            continue
        ahead = None if at_one_site else _after_callees((absent, waiter), sites, i, j)
        ahead = ahead or _next_meeting(sites, callers, i + at_one_site, j + at_one_site)
        apart = (
            (start[0] + i, start[0] + ahead[0] if ahead else None),
            (start[1] + j, start[1] + ahead[1] if ahead else None),
        )
        rests = (
            absent[i + at_one_site : ahead[0] if ahead else None],
            waiter[j + at_one_site : ahead[1] if ahead else None],
        )
        yield from _caught(rests, apart, at_once=True)
        if at_one_site:
            yield Parting(mine, theirs, apart)
        yield from _caught(rests, apart, at_once=False)
        if ahead is None:
            return
        i, j = ahead
    if i < len(absent):  # nothing was decided on the waiting rank while the other one raised
        apart = ((start[0] + i, None), (start[1] + j, None))
        yield from _caught((absent[i:], []), apart, at_once=True)


def _caught(
    rests: tuple[list[BranchOutcome], list[BranchOutcome]],
    apart: tuple[tuple[int, int | None], tuple[int, int | None]],
    *,
    at_once: bool,
) -> Iterator[Parting]:
    """The exceptions that one of two ranks caught while they were apart.

    Parameters
    ----------
    rests
        What each rank did after it parted.
    at_once
        True for a rank that parted by raising the exception; False for other ranks.
    """
    for of_absent, rest in zip((True, False), rests, strict=True):
        if (bool(rest) and rest[0].kind == "raised") is not at_once:
            continue
        for at, outcome in enumerate(rest):
            if swallows(rest, at):
                mine, theirs = (outcome, None) if of_absent else (None, outcome)
                yield Parting(mine, theirs, apart)


def swallows(events: list[BranchOutcome], at: int) -> bool:
    """Whether a rank handled an exception: no ``finally`` or ``with`` raised it again."""
    caught = events[at]
    if caught.kind != "handled":
        return False
    within = (caught.file, caught.function)
    for number in range(at + 1, len(events)):
        event = events[number]
        if (event.file, event.function) != within or event.kind not in ("return", "raised"):
            continue
        if event.kind == "raised":
            return event.error != caught.error
        # a trace function reports a frame that an exception leaves again like one that returns
        after = events[number + 1] if number + 1 < len(events) else None
        return after is None or (after.kind, after.error) != ("raised", caught.error)
    return True


def _callers(events: list[BranchOutcome]) -> list[_Function | None]:
    """For each event, the function from which that of the event was called; None if not known.

    Only the ends of functions are events. Read backwards, they say which functions are open. A
    function that called another one before its own first event is taken for that one's caller; this
    is the same on each rank that goes on alike.
    """
    found: list[_Function | None] = []
    opened: list[_Function] = []
    for event in reversed(events):
        function = event.file, event.function
        if event.kind in ("return", "raised"):
            opened.append(function)
        elif function in opened:
            while opened[-1] != function:
                opened.pop()
        else:  # it had not ended yet, nor had its callers
            opened = [function]
        found.append(opened[-2] if len(opened) > 1 else None)
    return found[::-1]


def _after_callees(
    events: tuple[list[BranchOutcome], list[BranchOutcome]], sites: list[list[int]], i: int, j: int
) -> tuple[int, int] | None:
    """The line of one rank's event, if the other one only ran functions called there until then.

    So a loop may ask its loader once more on one rank and end on the other one: they part where the
    loop goes on or ends, and not where the loader works.
    """
    ahead = [_comes_back(events[0], sites[0], i, events[1][j], sites[1][j])]
    ahead.append(_comes_back(events[1], sites[1], j, events[0][i], sites[0][i]))
    if ahead[0] is not None and (ahead[1] is None or ahead[0] - i <= ahead[1] - j):
        return ahead[0], j
    return None if ahead[1] is None else (i, ahead[1])


def _comes_back(
    events: list[BranchOutcome], sites: list[int], at: int, line: BranchOutcome, site: int
) -> int | None:
    """The next event of a rank at a line, if its function was left neither before nor between.

    A generator is left without an event; then a function that was open before goes on.
    """
    function = line.file, line.function
    before = events[max(0, at - _WINDOW) : at]
    if not _is_open(function, before):
        return None
    called: set[_Function] = {function}
    for number in range(at, min(len(events), at + _WINDOW)):
        ran = _function(events[number])
        if ran == function:
            return number if sites[number] == site else None
        if ran not in called and _is_open(ran, before):
            return None
        called.add(ran)
    return None


def _is_open(function: _Function, events: list[BranchOutcome]) -> bool:
    """Whether a function was entered before the end of some events, and not left again."""
    last = next((one for one in reversed(events) if _function(one) == function), None)
    return last is not None and last.kind not in ("return", "raised")


def _function(event: BranchOutcome) -> _Function:
    return event.file, event.function


def _next_meeting(
    sites: list[list[int]],
    callers: tuple[list[_Function | None], list[_Function | None]],
    i: int,
    j: int,
) -> tuple[int, int] | None:
    """The nearest later place at which both ranks reached the same line.

    If both callers are known, they are the same: a model is called for training and for a sample.
    """
    first: dict[tuple[int, _Function | None], int] = {}
    anywhere: dict[int, int] = {}
    for at, site in enumerate(sites[1][j : j + _WINDOW]):
        first.setdefault((site, callers[1][j + at]), at)
        anywhere.setdefault(site, at)
    best: tuple[int, int, int] | None = None
    for at, site in enumerate(sites[0][i : i + _WINDOW]):
        if best is not None and at >= best[0]:
            break
        caller = callers[0][i + at]
        if caller is None:
            near = [anywhere.get(site)]
        else:
            near = [first.get((site, caller)), first.get((site, None))]
        for there in near:
            if there is not None and (best is None or at + there < best[0]):
                best = (at + there, at, there)
    return None if best is None else (i + best[1], j + best[2])
