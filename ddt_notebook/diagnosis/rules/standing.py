"""Rules about jobs of which only the ranks' stacks are known, and no recorded calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Place, Position, RankReport
from ddt_notebook.model.frameworks import waits_in
from ddt_notebook.model.operations import OPERATIONS, PASSES

from .facts import reasons


def stood_elsewhere(context: Context) -> Iterator[Finding]:
    """Report ranks that stand outside the call in which the others are."""
    waiting = _waiting(context)
    if not waiting or context.snapshot.outcome != "hung":
        return
    elsewhere = [
        rank
        for rank, report in context.reports.items()
        if rank not in waiting and report.state == "running" and report.stack
    ]
    if not elsewhere:
        return
    first = min(waiting)
    report = context.reports[first]
    call = Call(index=0, op=waiting[first], where=report.position)
    found = {
        rank: reason
        for rank in elsewhere
        if (reason := context.why_absent(call, report, context.reports[rank], _at(context, rank)))
    }
    cause = min(found.values(), key=lambda one: one.priority).cause if found else None
    yield conclude(
        "D.2.1",
        "stands-elsewhere",
        cause=cause or "rank-not-at-collective",
        ranks=elsewhere,
        waiting=waiting,
        values={"ops": tuple(sorted(set(waiting.values())))},
        places=_places(context, elsewhere, waiting),
        facts=[*_stood(context, waiting), *reasons(found.values())],
        confidence="likely",
        op=_named(waiting[first]),
    )


def _named(op: str) -> str:
    return f"its {op} pass" if op in PASSES else op


def in_different_calls(context: Context) -> Iterator[Finding]:
    """Report that all ranks are in calls of torch.distributed, but not in the same one."""
    waiting = _waiting(context)
    messages = any(op in OPERATIONS and OPERATIONS[op].peer for op in waiting.values())
    if context.snapshot.outcome != "hung" or len(set(waiting.values())) < 2 or messages:
        return
    if any(report.state == "running" and r not in waiting for r, report in context.reports.items()):
        return
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, op in waiting.items():
        sides[op].append(rank)
    fewest = min(sides.values(), key=len)
    yield conclude(
        "D.2.1",
        "stand-in-different-calls",
        cause="different-collectives",
        ranks=fewest,
        waiting=[rank for rank in waiting if rank not in fewest],
        values={"ops": tuple(sorted(sides))},
        places=_places(context, [], waiting),
        facts=_stood(context, waiting),
        confidence="possible",
        op=waiting[fewest[0]],
    )


def _waiting(context: Context) -> dict[int, str]:
    """Return the operation of each rank that is in one, if no rank's calls are known."""
    if any(report.calls for report in context.reports.values()):
        return {}
    operations = {rank: waits_in(report.stack) for rank, report in context.reports.items()}
    return {rank: op for rank, op in operations.items() if op and _waits(context.reports[rank], op)}


def _waits(report: RankReport, op: str) -> bool:
    """Whether a rank inside an operation waits there; most of a backward pass is computation."""
    computes = op == "backward" and report.activity is not None and report.activity.computes
    return report.state == "running" and not computes


def _at(context: Context, rank: int) -> Position | None:
    return context.reports[rank].position


def _places(context: Context, ranks: list[int], waiting: dict[int, str]) -> dict[int, Place]:
    places = context.places(ranks)
    for rank in waiting:
        place = context.place(context.reports[rank].position, "waits")
        if place is not None:
            places[rank] = place
    return dict(sorted(places.items()))


def _stood(context: Context, waiting: dict[int, str]) -> list[Fact]:
    """Return one fact for each line at which ranks are in a call."""
    together: dict[tuple[str, Place | None], list[int]] = defaultdict(list)
    for rank, op in waiting.items():
        together[op, context.place(context.reports[rank].position, "waits")].append(rank)
    return [
        Fact(kind="stands-in", place=place, ranks=tuple(ranks), values={"op": op})
        for (op, place), ranks in together.items()
    ]


RULES = (stood_elsewhere,)
HINTS = (in_different_calls,)
