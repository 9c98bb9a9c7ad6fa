"""Finds a collective that a rank left out which it made in each earlier round at this point.

Ranks with different parts, such as one that takes requests and others that follow it, make their
collectives at lines of their own. Which lines belong together shows in earlier rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from ddt_notebook.model import Call, Place, Position, RankReport
from ddt_notebook.program.escape_paths import EscapePaths, Reason

#: How many of a rank's last collectives are looked at. Chosen, not measured.
_LATEST = 256
#: How many conditions on the way to a call are looked at. Chosen, not measured.
_MOST_CONDITIONS = 8
#: Priority of such a reason.
LEFT_OUT = -3
#: Kinds of reasons that may hold in one round and not in another.
_IN_A_ROUND = frozenset(
    {"decided-by-each-rank", "depends-on-clock", "leaves-by-own-finding", "swallows-before-call"}
)


def left_out(
    paths: EscapePaths, reports: Mapping[int, RankReport], calls: Mapping[int, Call]
) -> tuple[Reason, Call] | None:
    """The condition by which one of two ranks left out a call, and such a call of an earlier round.

    Parameters
    ----------
    calls
        The calls of the two ranks that met, and do not belong together.
    """
    if len(calls) != 2:
        return None
    one, two = calls
    found = [
        turn
        for rank, other in ((one, two), (two, one))
        if (turn := _turn(reports[rank], calls[rank], reports[other], calls[other])) is not None
    ]
    if len(found) != 1:
        return None  # either of them may have left the common order
    ((rank, before, skipped),) = found
    report, passed = reports[rank], list[Place]()
    absent, at = replace(report, stack=()), calls[rank].where
    while len(passed) < _MOST_CONDITIONS:
        reason = paths.why_absent(skipped, report, absent, at, passed)
        if reason is None:
            break
        if reason.kind in _IN_A_ROUND and not _came_past(before, reason):
            return replace(reason, priority=LEFT_OUT), skipped
        passed.append(reason.place)
    return None


def _turn(
    mine: RankReport, call: Call, theirs: RankReport, other: Call
) -> tuple[int, Call, Call] | None:
    """The rank, its call before, and the one that it made next in every round before this one."""
    own, met = _of_group(mine, call), {one.sequence: one for one in _of_group(theirs, other)}
    number = next((at for at, one in enumerate(own) if one.index == call.index), 0)
    if number == 0:
        return None
    before, skipped = own[number - 1], None
    for first, then in pairwise(own[:number]):
        counterpart = met.get(then.sequence)
        if counterpart is None or first.where != before.where:
            continue
        if then.where == call.where or counterpart.where != other.where:
            return None  # this, too, happened before
        skipped = then
    return (mine.rank, before, skipped) if skipped is not None else None


def _of_group(report: RankReport, call: Call) -> list[Call]:
    return [
        one
        for one in report.calls[-_LATEST:]
        if (one.kind, one.group) == (call.kind, call.group) and one.where is not None
    ]


def _came_past(before: Call, reason: Reason) -> bool:
    """Whether the rank made its last call after the condition, in the same function."""
    ways: tuple[Position | None, ...] = (before.where, *before.callers)
    return any(
        line is not None
        and (line.file, line.function) == (reason.place.file, reason.place.function)
        and line.line > (reason.place.line or 0)
        for line in ways
    )
