"""Rules about ranks that left out a ``new_group``: a later one then blocks some of the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding

from .facts import blocked_in, of_call, reasons

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
