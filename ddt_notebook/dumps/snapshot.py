"""Converts the dumps of a job's ranks to one `Snapshot` that every rule and view can read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..formatting import ranks_text
from ..model import Call, Cell, RankReport, Snapshot
from .calls import Calls
from .columns import Columns
from .entries import Entries, groups_of

#: Collectives that no rank completes before every member has entered them.
_COMPLETE_TOGETHER = frozenset(
    {"all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "barrier"}
)


def snapshot_of(dumps: Sequence[Columns], notes: Sequence[str] = ()) -> Snapshot:
    """The snapshot of a job from the dumps of its ranks, ordered by rank."""
    entries = Entries.of(dumps)
    groups, guessed = groups_of(dumps, entries)
    calls = Calls(dumps, entries, groups).of_each_dump()
    reports = _as_of_the_last_dump(
        [_report(dump, kept, dropped) for dump, (kept, dropped) in zip(dumps, calls, strict=True)]
    )
    world = 1 + max([d.rank for d in dumps] + [r for ranks in groups.values() for r in ranks])
    lost = sorted(set(range(world)) - {dump.rank for dump in dumps})
    said = list(notes)
    if lost:
        said.append(f"no dump of {ranks_text(lost)}: killed, or not able to write one")
    if guessed:
        said.append(
            f"the dumps do not say who belongs to {', '.join(f'group {g}' for g in guessed)}; "
            "taken to be the ranks that used it"
        )
    backends = (kind.name.partition(":")[0] for kind in entries.kinds if ":" in kind.name)
    return Snapshot(
        cell=Cell(number=0, source=""),
        origin="dumps",
        outcome="hung" if any(r.state == "blocked" for r in reports) or lost else "ok",
        ranks=reports,
        groups=groups,
        world_size=world,
        backend=next(backends, ""),
        timeout_s=max((kind.timeout_ms for kind in entries.kinds), default=0) / 1000,
        notes=tuple(said),
    )


def _as_of_the_last_dump(reports: list[RankReport]) -> tuple[RankReport, ...]:
    """The reports; ranks whose dump is older than those of the others are not blocked.

    If a rank has entered a collective that others have completed, and these went on to one that it
    has not entered, it has completed the first one as well, after its dump was written.
    """
    done: dict[tuple[str, int | None], set[int]] = defaultdict(set)
    waits: dict[int, Call] = {}
    reached: dict[tuple[str, int | None], int] = defaultdict(int)
    for report in reports:
        blocked = report.blocked_call
        if blocked is not None and blocked.op in _COMPLETE_TOGETHER:
            waits[report.rank] = blocked
        for call in report.calls:
            if call.op in _COMPLETE_TOGETHER and call.status == "done":
                done[call.group, call.sequence].add(report.rank)
    # how far those came that completed a collective and wait in a later one of the group
    for at in {(call.group, call.sequence) for call in waits.values()}:
        waiting = (waits[rank] for rank in done[at] if rank in waits)
        numbers = [call.sequence or 0 for call in waiting if call.group == at[0]]
        reached[at] = max(numbers, default=0)
    return tuple(
        replace(report, state="recorded", blocked_in=None, position=None)
        if (mine := waits.get(report.rank)) is not None
        and reached[mine.group, mine.sequence]
        > max(call.sequence or 0 for call in report.calls if call.group == mine.group)
        else report
        for report in reports
    )


def _report(dump: Columns, calls: tuple[Call, ...], dropped: int) -> RankReport:
    blocked = next((call for call in calls if call.status == "pending"), None)
    return RankReport(
        rank=dump.rank,
        state="recorded" if blocked is None else "blocked",
        blocked_in=None if blocked is None else blocked.index,
        position=None if blocked is None else blocked.where,
        calls=calls,
        calls_dropped=dump.dropped + dropped,
    )
