"""Rules about ranks that wait for each other in a cycle."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding
from ddt_notebook.model.operations import RECEIVES, SENDS
from ddt_notebook.program.iterations import comes_again

from .facts import blocked_in, by_call, of_call
from .groups import hung_by_skip


def wait_cycles(context: Context) -> Iterator[Finding]:
    """Report sets of blocked ranks that wait for each other; the finding names both sides."""
    if hung_by_skip(context):
        return
    edges = {
        rank: frozenset(
            other
            for other in wait.missing & context.halted.keys()
            if not context.strayed(other, wait.call)
        )
        for rank, wait in context.waits.items()
    }
    for members in _circles(edges):
        if members & context.handled.keys():
            continue
        entangled = any(context.waits[rank].mismatched & members for rank in members)
        if not entangled:
            yield _finding(context, members, edges)


def _circles(edges: dict[int, frozenset[int]]) -> Iterator[frozenset[int]]:
    """Yield sets of ranks that reach each other, at least two at a time."""
    reach = {rank: _reachable(rank, edges) for rank in edges}
    done: set[int] = set()
    for rank in sorted(edges):
        if rank in done or rank not in reach[rank]:
            continue
        members = frozenset(other for other in reach[rank] if rank in reach.get(other, ()))
        done |= members
        yield members


def _reachable(start: int, edges: dict[int, frozenset[int]]) -> set[int]:
    seen: set[int] = set()
    todo = list(edges[start])
    while todo:
        rank = todo.pop()
        if rank not in seen:
            seen.add(rank)
            todo += edges.get(rank, frozenset())
    return seen


def _finding(
    context: Context, members: frozenset[int], edges: dict[int, frozenset[int]]
) -> Finding:
    waiting = context.victims(members)
    sides = [
        Fact(
            kind="waits-for",
            place=context.place(call.where, "waits"),
            ranks=tuple(ranks),
            values=of_call(context, call)
            | {"awaited": tuple(sorted(set().union(*(edges[rank] & members for rank in ranks))))},
        )
        for ranks, call in by_call(context, sorted(members))
    ]
    blocked_s = context.blocked_for(members)
    return conclude(
        "D.2.1",
        "wait-cycle",
        cause=_cause(context, [context.halted[rank] for rank in sorted(members)]),
        ranks=members,
        waiting=waiting,
        values={} if blocked_s is None else {"blocked_s": blocked_s},
        places=context.places([*members, *waiting]),
        facts=[*sides, Fact(kind="each-waits"), *blocked_in(context, waiting)],
        op=context.halted[min(members)].op,
    )


def _cause(context: Context, calls: list[Call]) -> str:
    if all(call.kind == "p2p" for call in calls):
        if len({call.tag for call in calls}) > 1 and _both_ways(calls):
            return "message-tags-differ"
        return "message-without-partner" if _both_ways(calls) else "both-sides-wait"
    groups = {call.group for call in calls}
    if all(call.kind == "collective" for call in calls) and len(groups) > 1:
        return "different-groups" if _meant_as_one(context, calls) else "groups-in-opposite-order"
    return "wait-cycle"


def _meant_as_one(context: Context, calls: list[Call]) -> bool:
    """Whether the ranks would call the operation only once, each on another group."""
    again = {comes_again(context.program, c.where, c.op) if c.where else None for c in calls}
    if again == {None}:  # without source, one line is probably one collective
        return len({(c.where.file, c.where.line) for c in calls if c.where}) == 1
    return len({call.op for call in calls}) == 1 and True not in again


def _both_ways(calls: list[Call]) -> bool:
    """Whether some send while others receive."""
    return any(c.op in SENDS for c in calls) and any(c.op in RECEIVES for c in calls)


RULES = (wait_cycles,)
