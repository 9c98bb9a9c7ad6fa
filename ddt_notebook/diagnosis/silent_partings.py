"""Finds a collective that fitted, although ranks came to it from different lines, before an error.

A rank that skipped a collective enters its next one, and both may fit: two barriers, or two objects
of one size. Then the rank goes on too early, or works with what was meant for another call, and
raises something that says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ddt_notebook.model import Call, Fact, Position, RankReport, Snapshot
from ddt_notebook.model.finding import Values
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.program import Program

from .errors import is_peer_error
from .matched_calls import Matching, Meetings, Mismatch, Side
from .own_lines import by_arms
from .ways import Ways

#: Causes that a condition on the rank shows.
_BY_RANK = frozenset({"collective-under-rank-condition", "early-exit-on-rank-condition"})


#: Kind of the fact that ranks came to the last collective before an error from different lines.
CAME_APART = "came-apart"


class Evidence(Protocol):
    """What is asked of a `Context`, which itself asks this module."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def reports(self) -> Mapping[int, RankReport]: ...
    @property
    def matching(self) -> Matching: ...
    @property
    def ways(self) -> Ways: ...
    @property
    def program(self) -> Program: ...

    def label(self, position: Position | None) -> str: ...

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None: ...
    def why_inferred(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None: ...


def parted_in_silence(context: Evidence) -> Mismatch | None:
    """The last collective before a rank's own error, if ranks were out of step in it.

    None if the line that parted them is not known, or if other calls show the mismatch.
    """
    for rank, other, last, met in _apart_before_errors(context):
        meetings = context.matching.meetings[last.group]
        first = _first(context, meetings, rank, other, last.sequence or 0)
        if _is_known(context, meetings[first], rank, other):
            return _mismatch(context, last, met)
    return None


def came_apart(context: Evidence, rank: int) -> list[Fact]:
    """The fact that a rank and others came to its last collective from different lines, if any."""
    for raised, _, last, met in _apart_before_errors(context):
        if raised == rank:
            found = _mismatch(context, last, met)
            lines = [
                (side.ranks, at.place)
                for side in found.sides
                if (at := found.place(side.call)) is not None
            ]
            values: Values = {"op": last.op, "sequence": last.sequence, "lines": tuple(lines)}
            return [Fact(kind=CAME_APART, ranks=(rank,), values=values)]
    return []


def _apart_before_errors(context: Evidence) -> Iterator[tuple[int, int, Call, dict[int, Call]]]:
    """Yield a rank, another one, and the rank's last collective, to which they came apart."""
    if context.matching.mismatches or context.snapshot.outcome not in ("failed", "hung"):
        return
    for rank in _raised(context):
        done = [
            call
            for call in context.reports[rank].calls
            if call.kind == "collective" and call.sequence is not None and call.status == "done"
        ]
        if not done:
            continue
        last = done[-1]
        met = context.matching.meetings.get(last.group, {}).get(last.sequence or 0, {})
        for other, call in met.items():
            if call.source == last.source and not context.ways.meet(last, call):
                yield rank, other, last, met


def _raised(context: Evidence) -> list[int]:
    """Ranks with an error of their own; none if all raised the same one at one line."""
    found = {
        rank: (report.error.type, context.label(report.error.where))
        for rank, report in context.reports.items()
        if report.state == "raised"
        and report.error is not None
        and report.error.type != "KeyboardInterrupt"
        and not is_peer_error(report.error)
    }
    alike = len(found) == len(context.reports) and len({*found.values()}) == 1
    return [] if alike else list(found)


def _first(context: Evidence, meetings: Meetings, rank: int, other: int, sequence: int) -> int:
    """The first collective from which on two ranks came from different lines to each one."""
    while True:
        before = meetings.get(sequence - 1, {})
        mine, theirs = before.get(rank), before.get(other)
        if mine is None or theirs is None or context.ways.meet(mine, theirs):
            return sequence
        sequence -= 1


def have_own_lines(context: Evidence, met: Mapping[int, Call], rank: int, other: int) -> bool:
    """Whether the source shows a line of its own for each of two ranks that met in a collective.

    A correct program may make one collective at two lines, one for each side.
    """
    if next(by_arms(context.program, met[rank], met[other]), None) is not None:
        return True
    both = ((rank, other), (other, rank))
    inferred = [_why_absent(context, met, *ranks, context.why_inferred) for ranks in both]
    return any(one is not None and one.other_branch for one in inferred)


def _is_known(context: Evidence, met: dict[int, Call], rank: int, other: int) -> bool:
    """Whether a line is known that kept one of two ranks from the other one's call."""
    if have_own_lines(context, met, rank, other):
        return False
    for here, there in ((rank, other), (other, rank)):
        reason = _why_absent(context, met, here, there)
        if reason is None or reason.other_branch:
            continue
        back = _why_absent(context, met, there, here)
        one_line = back is not None and back.place == reason.place and not back.other_branch
        if back is None or one_line or reason.priority < back.priority:
            return reason.kind == "parted" or reason.cause in _BY_RANK
    return False


def _why_absent(
    context: Evidence,
    met: Mapping[int, Call],
    here: int,
    there: int,
    why: Callable[..., Reason | None] | None = None,
) -> Reason | None:
    """Why one rank did not make the call of another one, by observation or as ``why`` says it."""
    call, other = met[here], met[there]
    at = context.ways.apart(other, call) or other.where
    asked = why or context.why_absent
    return asked(call, context.reports[here], context.reports[there], at)


def _mismatch(context: Evidence, last: Call, met: dict[int, Call]) -> Mismatch:
    sides: list[list[int]] = []
    for rank in sorted(met):
        side = next((one for one in sides if context.ways.meet(met[one[0]], met[rank])), None)
        if side is None:
            sides.append([rank])
        else:
            side.append(rank)
    sides.sort(key=lambda side: -len(side))
    return Mismatch(
        group=last.group,
        sequence=last.sequence or 0,
        sides=tuple(Side(tuple(side), met[side[0]]) for side in sides),
        calls=met,
        fields=(),
        ways=context.ways,
    )
