"""Rules about process groups: calls by ranks outside a group, and ``new_group`` on some ranks only.

A rank that skips a ``new_group`` may block others in a later one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Place
from ddt_notebook.model.finding import Values

from .facts import blocked_in, of_call, of_wait, reasons

_Site = tuple[str, int]


def skipped_new_groups(context: Context) -> Iterator[Finding]:
    """Report skipped ``new_group`` calls: the names of groups count them and no longer match."""
    if not hung_by_skip(context):
        return
    ranks, callers = _skipped(context)
    call = next(iter(callers.values()))
    waiting = [rank for rank in sorted(context.halted) if rank not in ranks]
    blocked_s = context.blocked_for(context.halted)
    found = [
        reason
        for rank in ranks
        if (
            reason := context.escape_paths.why_absent(
                call,
                context.reports[min(callers)],
                context.reports[rank],
                _new_groups(context, rank)[0].where,
            )
        )
    ]
    called = of_call(context, call)
    yield conclude(
        "B.2",
        "new-group-skipped",
        cause="new-group-on-some-ranks",
        ranks=ranks,
        waiting=waiting,
        values=called
        | {"callers": tuple(callers)}
        | ({} if blocked_s is None else {"blocked_s": blocked_s}),
        places=context.places([*ranks, *waiting]),
        facts=[
            Fact(
                kind="called",
                place=context.place(call.where, "called"),
                ranks=tuple(callers),
                values=called,
            ),
            *(
                Fact(
                    kind="came-without-it",
                    place=context.place(_new_groups(context, rank)[0].where, "passed"),
                    ranks=(rank,),
                )
                for rank in ranks
            ),
            *reasons(found)[:1],
            *blocked_in(context, sorted(context.halted)),
        ],
        op=call.op,
    )


def hung_by_skip(context: Context) -> bool:
    """Whether all blocked ranks wait for a group about which the ranks disagree."""
    if context.snapshot.outcome != "hung" or not context.halted:
        return False
    calls = context.halted.values()
    forming = any(call.op == "new_group" for call in calls)
    return (
        forming
        and all(call.op == "new_group" or call.group != "0" for call in calls)
        and bool(_skipped(context)[0])
    )


def _skipped(context: Context) -> tuple[list[int], dict[int, Call]]:
    """Return the ranks that left out a ``new_group``, and the other ranks' calls of it."""
    made = {rank: _new_groups(context, rank) for rank in context.reports}
    for index in range(max(map(len, made.values()), default=0)):
        here = {rank: calls[index] for rank, calls in made.items() if index < len(calls)}
        for call in here.values():
            ahead = {
                other: theirs
                for other, theirs in here.items()
                if _site(theirs) != _site(call)
                and _site(call) in map(_site, made[other][index + 1 :])
                and _site(call) not in map(_site, made[other][:index])
            }
            if ahead:
                ranks = [r for r, mine in here.items() if _site(mine) == _site(call)]
                return ranks, ahead
    return [], {}


def _new_groups(context: Context, rank: int) -> list[Call]:
    return [
        call
        for call in context.reports[rank].calls
        if call.op == "new_group" and call.members and call.where is not None
    ]


def _site(call: Call) -> _Site | None:
    return (call.where.file, call.where.line) if call.where else None


def blocking_outsiders(context: Context) -> Iterator[Finding]:
    """Report calls by non-members of a group for which members of other groups wait."""
    return (finding for finding in _outsiders(context) if finding.waiting)


def outsiders(context: Context) -> Iterator[Finding]:
    """Report calls by non-members of a group, which have no effect."""
    return (finding for finding in _outsiders(context) if not finding.waiting)


def _outsiders(context: Context) -> Iterator[Finding]:
    together: dict[tuple[str, Place | None], dict[int, list[Call]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for single in context.matching.outsiders:
        key = (single.call.op, context.place(single.call.where, "called"))
        together[key][single.rank].append(single.call)
    for (op, place), calls in together.items():
        first = next(iter(calls.values()))[0]
        values: Values = {"op": op, "group": first.group}
        members = first.members or context.snapshot.groups.get(first.group, ())
        times = max(map(len, calls.values()))
        missed = [
            rank
            for rank in calls
            if any(rank in w.missing and w.call.op == op for w in context.waits.values())
        ]
        waiting = [rank for rank in context.victims(missed) if rank not in calls]
        yield conclude(
            "D.2.1" if waiting else "D.2.4",
            "caller-not-in-group",
            cause="caller-not-in-group",
            ranks=calls,
            waiting=waiting,
            values=values | of_wait(context, waiting),
            places=context.places(waiting) | dict.fromkeys(sorted(calls), place),
            facts=[
                Fact(
                    kind="called-as-outsider",
                    place=place,
                    ranks=tuple(sorted(calls)),
                    values=values | {"members": tuple(members)},
                ),
                *([Fact(kind="repeated", values={"times": times})] if times > 1 else []),
                *blocked_in(context, waiting),
            ],
            op=op,
        )


def partial_new_groups(context: Context) -> Iterator[Finding]:
    """Report, as a hint, ``new_group`` calls that not every rank of the default group made."""
    if context.snapshot.outcome != "ok":
        return
    made: dict[int | None, dict[int, Call]] = defaultdict(dict)
    for rank, report in context.reports.items():
        for call in report.calls:
            # without members: only its own ranks formed it (use_local_synchronization)
            if call.op == "new_group" and call.members and call.status == "done":
                made[call.sequence][rank] = call
    for callers in made.values():
        first = next(iter(callers.values()))
        absent = [rank for rank in first.members if rank in context.reports.keys() - callers.keys()]
        if absent:
            yield conclude(
                "B.1",
                "new-group-on-some-ranks",
                cause="new-group-on-some-ranks",
                ranks=absent,
                values=of_call(context, first) | {"callers": tuple(callers)},
                places={rank: context.place(c.where, "called") for rank, c in callers.items()},
                confidence="possible",
                op=first.op,
            )
            return


RULES = (blocking_outsiders, skipped_new_groups, outsiders)
HINTS = (partial_new_groups,)
