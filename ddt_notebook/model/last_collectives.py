"""The last collectives of a group side by side: who completed, entered or missed each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .collective import Call
from .operations import BLOCKS_HOST
from .rank import RankReport
from .snapshot import Snapshot

#: What a rank did about one collective: it completed it, issued it to a device, waits in it, failed
#: in it, or never entered it though another rank did.
Step = Literal["done", "issued", "waiting", "failed", "missing"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What ranks did about one collective.

    Attributes
    ----------
    step
        See `Step`.
    op
        The operation that they called, if it is another one than most ranks called.
    waited_s
        How long the longest wait has lasted, in seconds; None if they do not wait.
    """

    step: Step
    op: str = ""
    waited_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranks that did the same, with an entry for each column."""

    ranks: tuple[int, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LastCollectives:
    """The end of one group's collectives.

    Attributes
    ----------
    columns
        Number and operation of each collective, oldest first.
    lanes
        One for all ranks that did the same, by lowest rank.
    group
        Name of the group.
    """

    columns: tuple[tuple[int, str], ...]
    lanes: tuple[Lane, ...]
    group: str = "0"


def last_collectives(
    snapshot: Snapshot, waiting: Iterable[int], limit: int
) -> LastCollectives | None:
    """The last collectives of the group in which ranks wait, at most ``limit``.

    Returns None if these ranks do not wait in collectives of one group, if the calls of a member
    are not known, or if the group made a single one: there is nothing to compare it with.
    """
    waits = set(waiting)
    calls = [report.blocked_call for report in snapshot.ranks if report.rank in waits]
    blocked = [call for call in calls if call is not None]
    groups = {call.group for call in blocked}
    if len(groups) != 1 or any(call.kind != "collective" for call in blocked):
        return None
    group = groups.pop()
    members = blocked[0].members or snapshot.groups.get(group, ())
    reports = [report for report in snapshot.ranks if report.rank in members or not members]
    entered = {report.rank: _of_group(report, group) for report in reports}
    if not all(entered.values()):
        return None
    last = max(number for calls in entered.values() for number in calls)
    numbers = range(max(1, last - limit + 1), last + 1)
    if len(numbers) < 2:
        return None
    ops = [_usual([calls[n].op for calls in entered.values() if n in calls]) for n in numbers]
    passed: Step = "issued" if snapshot.calls_only_issue else "done"
    columns = [(n, op) for n, op in zip(numbers, ops, strict=True) if op]
    found: dict[tuple[tuple[Step, str], ...], list[tuple[int, list[Entry]]]] = {}
    for report in reports:
        entries = [_entry(report, entered[report.rank], n, op, passed) for n, op in columns]
        found.setdefault(tuple((e.step, e.op) for e in entries), []).append((report.rank, entries))
    lanes = tuple(_lane(alike) for alike in found.values())
    return LastCollectives(tuple(columns), lanes, group) if len(columns) > 1 else None


def _of_group(report: RankReport, group: str) -> dict[int, Call]:
    calls = {
        call.sequence: call
        for call in report.calls
        if call.group == group and call.kind == "collective" and call.sequence is not None
    }
    waits = report.blocked_call
    if waits is None or waits.group != group or waits.sequence is None:
        return calls
    # what a rank has issued behind the collective that is open has not happened
    open_ = waits.sequence
    return {n: c for n, c in calls.items() if n <= open_ or c.status in ("done", "failed")}


def _usual(ops: Sequence[str]) -> str:
    return Counter(ops).most_common(1)[0][0] if ops else ""


def _entry(report: RankReport, calls: dict[int, Call], number: int, op: str, passed: Step) -> Entry:
    call = calls.get(number)
    if call is None:
        # of a rank's earlier calls, those on which all ranks agreed may not have been kept
        return Entry(passed if number < max(calls, default=0) else "missing")
    other = call.op if call.op != op else ""
    if call.status == "failed":
        return Entry("failed", other)
    if call.index == report.blocked_in:
        return Entry("waiting", other, report.blocked_s)
    open_ = report.blocked_call if report.device_waits else None
    before = open_ is not None and number < (open_.sequence or 0)  # a group has one stream
    certain = call.op in BLOCKS_HOST or call.source == "flight recorder" or before
    return Entry("done" if certain and call.status == "done" else passed, other)


def _lane(alike: Sequence[tuple[int, list[Entry]]]) -> Lane:
    """One lane for ranks that did the same; it shows their longest wait."""
    entries = []
    for column in zip(*(entries for _, entries in alike), strict=True):
        waits = [entry.waited_s for entry in column if entry.waited_s is not None]
        entries.append(Entry(column[0].step, column[0].op, max(waits, default=None)))
    return Lane(tuple(rank for rank, _ in alike), tuple(entries))
