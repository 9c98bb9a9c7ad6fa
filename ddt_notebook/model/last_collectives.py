"""The last collectives of a group side by side: who completed, entered or missed each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .collective import Call
from .operations import BLOCKS_HOST
from .rank import RankReport
from .snapshot import Snapshot

#: What a rank did about one collective: it completed it, issued it to a device, waits in it, failed
#: in it, raised an exception at its line, died in it, or never entered it though another rank did.
Step = Literal["done", "issued", "waiting", "failed", "raised", "died", "missing"]


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
    passed
        What they passed to it, if ranks disagree: ``("19210 × float32",)``, ``("root 1",)``.
    """

    step: Step
    op: str = ""
    waited_s: float | None = None
    passed: tuple[str, ...] = ()


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
    open_calls = [report.blocked_call for report in snapshot.ranks if report.rank in waits]
    blocked = [call for call in open_calls if call is not None]
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
    differ = {
        n: _differences([calls[n] for calls in entered.values() if n in calls], op)
        for n, op in columns
    }
    found: dict[tuple[tuple[object, ...], ...], list[tuple[int, list[Entry]]]] = {}
    for report in reports:
        calls = entered[report.rank]
        entries = []
        for n, op in columns:
            entry = _entry(report, calls, n, op, passed, ends=n == last)
            if n in calls and not entry.op:
                entry = replace(entry, passed=_passed(calls[n], differ[n]))
            entries.append(entry)
        alike = tuple((entry.step, entry.op, entry.passed) for entry in entries)
        found.setdefault(alike, []).append((report.rank, entries))
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


def _differences(calls: Sequence[Call], op: str) -> set[str]:
    """The fields in which the calls of one collective disagree; another operation stands apart."""
    alike = [call for call in calls if call.op == op]
    return {field for call in alike for field in alike[0].differences(call)}


def _passed(call: Call, fields: set[str]) -> tuple[str, ...]:
    said = [call.tensor_label] if fields & {"shape", "dtype"} else []
    if "root" in fields and call.root is not None:
        said.append(f"root {call.root}")
    if "reduce_op" in fields and call.reduce_op:
        said.append(call.reduce_op)
    return tuple(filter(None, said))


def _entry(
    report: RankReport, calls: dict[int, Call], number: int, op: str, passed: Step, *, ends: bool
) -> Entry:
    """What a rank did about one collective; ``ends`` if no rank has entered a later one."""
    call = calls.get(number)
    if call is None:
        # of a rank's earlier calls, those on which all ranks agreed may not have been kept
        return Entry(passed if number < max(calls, default=0) else "missing")
    other = call.op if call.op != op else ""
    if call.status == "failed":
        return Entry("failed", other)
    if call.index == report.blocked_in:
        return Entry("waiting", other, report.blocked_s)
    if report.state == "died" and call.status == "pending":
        return Entry("died", other)
    if ends and _raised_at(report, call):
        return Entry("raised", other)  # a recorder also calls it done if its connection was lost
    open_ = report.blocked_call if report.device_waits else None
    before = open_ is not None and number < (open_.sequence or 0)  # a group has one stream
    certain = call.op in BLOCKS_HOST or call.source == "flight recorder" or before
    return Entry("done" if certain and call.status == "done" else passed, other)


def _raised_at(report: RankReport, call: Call) -> bool:
    """Whether an exception left the rank's cell at the line of its call."""
    error = report.error
    if report.state != "raised" or error is None or error.released:
        return False
    return error.call == call.index or (error.where is not None and error.where == call.where)


def _lane(alike: Sequence[tuple[int, list[Entry]]]) -> Lane:
    """One lane for ranks that did the same; it shows their longest wait."""
    entries = []
    for column in zip(*(entries for _, entries in alike), strict=True):
        waits = [entry.waited_s for entry in column if entry.waited_s is not None]
        entries.append(replace(column[0], waited_s=max(waits, default=None)))
    return Lane(tuple(rank for rank, _ in alike), tuple(entries))
