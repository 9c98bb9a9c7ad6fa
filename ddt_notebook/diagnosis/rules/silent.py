"""Faults that stop nobody: the run ends, but not what was meant has happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.cells.ways import told
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.match import Absence
from ddt_notebook.diagnosis.words import count, listing, rank_list, ranks_text
from ddt_notebook.model import Call, Finding

from .wording import last_lines, name, victims_evidence, wait_clause


def blocking_outsiders(context: Context) -> Iterator[Finding]:
    """Calls on a group of which the caller is not a member, for which members of others wait."""
    return (finding for finding in _outsiders(context) if finding.waiting)


def outsiders(context: Context) -> Iterator[Finding]:
    """Calls on a group of which the caller is not a member: they do nothing."""
    return (finding for finding in _outsiders(context) if not finding.waiting)


def _outsiders(context: Context) -> Iterator[Finding]:
    together: dict[tuple[str, str], dict[int, list[Call]]] = defaultdict(lambda: defaultdict(list))
    for single in context.matching.outsiders:
        key = (single.call.op, context.label(single.call.where))
        together[key][single.rank].append(single.call)
    for (op, place), calls in together.items():
        first = next(iter(calls.values()))[0]
        group = f"group {first.group}" if first.group else "a group"
        members = first.members or context.snapshot.groups.get(first.group, ())
        known = f" (its members are {rank_list(members)})" if members else ""
        times = max(map(len, calls.values()))
        missed = [
            rank
            for rank in calls
            if any(rank in w.missing and w.call.op == op for w in context.waits.values())
        ]
        waiting = [rank for rank in context.victims(missed) if rank not in calls]
        yield conclude(
            "D.2.1" if waiting else "D.2.4",
            f"{ranks_text(calls)} called {op} on {group} without being in it: the call did nothing"
            + wait_clause(context, waiting),
            cause="caller-not-in-group",
            ranks=calls,
            waiting=waiting,
            where=context.places(waiting) | dict.fromkeys(sorted(calls), place),
            evidence=[
                f"{ranks_text(calls)} called {op} on {group}{known} at {place}",
                *([f"it happened {count(times, 'time')} on a rank"] if times > 1 else []),
                *victims_evidence(context, waiting),
            ],
            op=op,
        )


def unnoticed_absences(context: Context) -> Iterator[Finding]:
    """Collectives that some members completed although others never entered."""
    if context.snapshot.outcome != "ok":
        return
    for absence in _first_of_group(context):
        call = next(iter(absence.entered.values()))
        if not _pending_only(absence):
            yield _absence(context, absence, call)


def unanswered_handles(context: Context) -> Iterator[Finding]:
    """Hint: asynchronous collectives that nobody waited for and others have not entered (yet)."""
    if context.snapshot.outcome != "ok":
        return
    for absence in _first_of_group(context):
        if _pending_only(absence):
            call = next(iter(absence.entered.values()))
            yield conclude(
                "D.2.4",
                f"{ranks_text(absence.absent)} did not enter {name(context, call)}, which "
                f"{ranks_text(absence.entered)} issued and did not wait for",
                cause="handle-not-waited",
                ranks=absence.absent,
                where={r: context.label(c.where) for r, c in absence.entered.items()},
                confidence="possible",
                op=call.op,
            )


def partial_new_groups(context: Context) -> Iterator[Finding]:
    """Hint: ``new_group`` is to be called by every rank of the default group, member or not."""
    if context.snapshot.outcome != "ok":
        return
    made: dict[int | None, dict[int, Call]] = defaultdict(dict)
    for rank, report in context.reports.items():
        for call in report.calls:
            # without members: formed by its own ranks alone (use_local_synchronization)
            if call.op == "new_group" and call.members and call.status == "done":
                made[call.sequence][rank] = call
    for callers in made.values():
        first = next(iter(callers.values()))
        absent = [rank for rank in first.members if rank in context.reports.keys() - callers.keys()]
        if absent:
            yield conclude(
                "B.1",
                f"{ranks_text(absent)} did not call {name(context, first)}, which "
                f"{ranks_text(callers)} called: groups are named by their number, so later ones "
                "may not find each other",
                cause="new-group-on-some-ranks",
                ranks=absent,
                where={rank: context.label(call.where) for rank, call in callers.items()},
                confidence="possible",
                op=first.op,
            )
            return


def _first_of_group(context: Context) -> Iterator[Absence]:
    seen = set()
    for absence in context.matching.absences:
        calls = absence.entered.values()
        # The Flight Recorder's ring may have lost entries; a call that failed may have had no one.
        if any(c.source == "flight recorder" for c in calls) or all(
            c.status == "failed" for c in calls
        ):
            continue
        if absence.group not in seen:
            seen.add(absence.group)
            yield absence


def _pending_only(absence: Absence) -> bool:
    return all(call.status in ("issued", "failed") for call in absence.entered.values())


def _absence(context: Context, absence: Absence, call: Call) -> Finding:
    idle = all(context.reports[rank].state == "idle" for rank in absence.absent)
    caller = context.reports[min(absence.entered)]
    reasons = [
        reason
        for rank in (absence.absent if not idle else ())
        if (reason := context.sources.why_absent(call, caller, context.reports[rank], None))
    ]
    cause = "cell-ran-on-some-ranks" if idle else "rank-skips-collective"
    return conclude(
        "D.2.4",
        f"{ranks_text(absence.absent)} never entered {name(context, call)}; "
        f"{ranks_text(absence.entered)} went on without it",
        cause=reasons[0].cause if reasons else cause,
        ranks=absence.absent,
        where={r: context.label(c.where) for r, c in sorted(absence.entered.items())},
        evidence=[
            f"{ranks_text(absence.entered)} entered it at {context.label(call.where)}",
            *last_lines(context, absence.absent, absence.group),
            *told(reasons)[:1],
            "the ranks of this group are out of step from here on",
        ],
        op=call.op,
    )


def swaps(context: Context) -> Iterator[Finding]:
    """Hint: two collectives of equal form that ranks issued from exchanged lines."""
    for swap in context.matching.swaps:
        one, other = swap.ranks
        places = [context.label(call.where) for call in swap.calls]
        yield conclude(
            "D.2.4",
            f"{ranks_text(swap.ranks)} came to {swap.calls[0].op} #{swap.sequence} and "
            f"#{swap.sequence + 1} from the same two lines in opposite order",
            cause="swapped-collectives",
            ranks=swap.ranks,
            where={one: places[0], other: places[1]},
            evidence=[
                listing(
                    f"rank {r} entered #{swap.sequence} at {p}"
                    for r, p in zip(swap.ranks, places, strict=True)
                ),
                "the calls fit each other, so nothing fails; the results may be exchanged",
            ],
            confidence="possible",
            op=swap.calls[0].op,
        )
