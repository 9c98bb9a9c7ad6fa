"""Finds a thread whose collective kept the ranks from meeting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddt_notebook.diagnosis.errors import is_peer_error
from ddt_notebook.diagnosis.matched_calls import Matching
from ddt_notebook.model import Position, RankReport, Snapshot
from ddt_notebook.model.threads import ThreadCall
from ddt_notebook.model.waits import MOVING

#: The signals by which gloo ends a process after a mismatch.
_ABORTS = frozenset({6, 7, 11})


@dataclass(frozen=True, slots=True)
class ThreadClash:
    """Calls of threads that met other collectives than their own, or none.

    Attributes
    ----------
    calls
        The call of each rank on which a thread made it.
    others
        The members of the group on which no thread made it.
    certain
        Whether it was seen which calls met.
    """

    calls: dict[int, ThreadCall]
    others: tuple[int, ...]
    certain: bool


def thread_clash(snapshot: Snapshot, matching: Matching) -> ThreadClash | None:
    """Find it in a run that did not end well; None if something else may have come before it."""
    reports = {report.rank: report for report in snapshot.ranks}
    if snapshot.outcome == "ok" or not any(one.thread_calls for one in reports.values()):
        return None
    for report in reports.values():
        own = report.error is not None and not is_peer_error(report.error)
        if (report.state == "raised" and own) or (
            report.state == "died" and report.exit_signal not in _ABORTS
        ):
            return None
    for rank, call, certain in _met_another(snapshot, matching):
        alike = {
            other: same
            for other, report in reports.items()
            for same in report.thread_calls
            if (same.op, same.group) == (call.op, call.group) and _one_line(same.where, call.where)
        }
        members = _members(snapshot, call.group)
        by_main = {
            other
            for other in members
            if other != rank
            and any(
                one.source == "call log" and one.group == call.group and one.op == call.op
                for one in reports[other].calls
                if _one_line(one.where, call.where)
            )
        }
        if not by_main:  # that a thread of one rank meets the main threads of others is meant
            others = tuple(sorted(set(members) - alike.keys()))
            return ThreadClash(alike, others, certain)
    return None


def _met_another(snapshot: Snapshot, matching: Matching) -> Iterator[tuple[int, ThreadCall, bool]]:
    """The calls of threads that did not meet their own, and whether that was seen."""
    reports = {report.rank: report for report in snapshot.ranks}
    for report in snapshot.ranks:
        for call in report.thread_calls:
            mismatched = any(
                one.group == call.group
                and report.rank in one.calls
                and _one_line(one.calls[report.rank].where, call.where)
                for one in matching.mismatches
            )
            alone = (
                call.pending
                and not matching.mismatches
                and _waits_in_main(report)
                and any(
                    one.group == call.group
                    and report.rank in one.entered
                    and _one_line(one.entered[report.rank].where, call.where)
                    and not any(_made_it(reports[r], call) for r in one.absent if r in reports)
                    for one in matching.absences
                )
            )
            if mismatched or alone:
                yield report.rank, call, True
    for report in snapshot.ranks:  # what the Flight Recorder of a process that died held is lost
        for call in report.thread_calls if report.state == "died" else ():
            if call.pending and any(
                one.group == call.group and not _one_line(one.where, call.where)
                for other in snapshot.ranks
                for one in other.calls
            ):
                yield report.rank, call, False


def _waits_in_main(report: RankReport) -> bool:
    """Whether the main thread of a rank waits for something else than other ranks."""
    seen = report.activity
    return report.state == "running" and seen is not None and not seen.computes


def _made_it(report: RankReport, call: ThreadCall) -> bool:
    """Whether a thread of a rank has made such a call, or the rank may still come to it."""
    made = any(_one_line(one.where, call.where) for one in report.thread_calls)
    return made or report.state in MOVING


def _members(snapshot: Snapshot, group: str) -> tuple[int, ...]:
    known = (one.members for report in snapshot.ranks for one in report.calls if one.group == group)
    ranks = {report.rank for report in snapshot.ranks}
    return tuple(r for r in next(filter(None, known), tuple(sorted(ranks))) if r in ranks)


def _one_line(one: Position | None, other: Position | None) -> bool:
    return one is not None and other is not None and one.is_same_line(other)
