"""Values that are read where, or when, a collective has not delivered them.

The call log says which calls were made, with which root and whether they returned a handle; the
source says what a rank does with the tensor afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.cells.carriers import carriers
from ddt_notebook.diagnosis.cells.pending import first_change, first_read
from ddt_notebook.diagnosis.cells.usage import Trail, Use, argument, call_at, key
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.words import agree, ranks_text
from ddt_notebook.model import Call, Finding, Position
from ddt_notebook.program.names import DELIVERING_LATE

#: Calls of one line: position -> rank -> calls.
Sites = dict[Position, dict[int, list[Call]]]


def read_on_wrong_rank(context: Context) -> Iterator[Finding]:
    """``reduce`` leaves its result on one rank, and others use their tensor as if they had it.

    If all they do is to compute something that nothing reads in this cell, or to show what each
    rank holds, it is a hint.
    """
    for calls, readers in _wrong_readers(context):
        used = {rank: use for rank, use in readers.items() if not _harmless(use[1])}
        yield _wrong_rank(context, calls, used or readers)


def _harmless(use: Use) -> bool:
    shown = use.kind == "print" and "rank" in use.text.lower() and not use.scaled
    return use.kind == "kept" or shown


def _wrong_readers(
    context: Context,
) -> Iterator[tuple[dict[int, list[Call]], dict[int, tuple[int, Use]]]]:
    if context.snapshot.outcome != "ok":
        return
    reduced = sites(context, "reduce")
    carrying = carriers(context.sources) if reduced else frozenset()
    for place, calls in reduced.items():
        roots = {call.root for mine in calls.values() for call in mine}
        node = call_at(context.sources, place, "reduce")
        statement = context.sources.statement(place)
        start = key(argument(node, 0, "tensor")) if node is not None else None
        if len(roots) != 1 or None in roots or start is None or statement is None:
            continue
        found = {}
        for rank in sorted(calls.keys() - roots):
            trail = Trail(context.sources, rank, carrying)
            use = trail.follow(place.cell or 0, statement, start)
            if use is not None and not (use[1].kind == "step" and _broadcasts(context)):
                found[rank] = use
        if found:
            yield calls, found


def _broadcasts(context: Context) -> bool:
    """Whether the cell sends values from one rank to all: then only that rank's own count."""
    return any(
        call.op.startswith("broadcast") and call.source == "call log"
        for report in context.snapshot.ranks
        for call in report.calls
    )


def sites(context: Context, *ops: str) -> Sites:
    """Calls of operations by the line of a cell and by rank."""
    found: Sites = defaultdict(lambda: defaultdict(list))
    for rank, report in context.reports.items():
        for call in report.calls:
            if call.op in ops and call.status in ("done", "issued"):
                place = call.where
                if place is not None and place.cell is not None:
                    found[place][rank].append(call)
    return found


_DOES = {
    "print": "prints what it holds",
    "decision": "decides by what it holds",
    "step": "applies what it holds as a gradient",
    "kept": "computes with what it holds",
}


def _wrong_rank(
    context: Context, calls: dict[int, list[Call]], readers: dict[int, tuple[int, Use]]
) -> Finding:
    first = next(iter(calls.values()))[0]
    ranks = sorted(readers)
    where = {r: context.sources.label(cell, use.line) for r, (cell, use) in readers.items()}
    _, use = readers[ranks[0]]
    return conclude(
        "D.2.4",
        f"{ranks_text(ranks)} {agree(ranks, 'uses', 'use')} a tensor in line {use.line} that "
        f"{first.label} has reduced on rank {first.root} only",
        cause="reduce-read-on-wrong-rank",
        ranks=ranks,
        where=where,
        evidence=[
            f"reduced to rank {first.root} at {context.label(first.where)}",
            f"rank {ranks[0]} {_DOES[use.kind]} at {where[ranks[0]]}",
            "on the other ranks the tensor holds their own value or a part of the result",
        ],
        confidence="possible" if _harmless(use) else "likely",
        op=first.op,
    )


def read_before_wait(context: Context) -> Iterator[Finding]:
    """A result is read between an asynchronous call and ``wait()``."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, *DELIVERING_LATE).items():
        first = next(iter(calls.values()))[0]
        ranks = [
            rank
            for rank, mine in calls.items()
            if all(call.asynchronous for call in mine)
            and not (first.op == "broadcast" and mine[0].root == rank)
        ]
        if not ranks:
            continue
        node = call_at(context.sources, place, first.op)
        tree, statement = context.sources.tree(place.cell), context.sources.statement(place)
        if node is None or tree is None or statement is None:
            continue
        line = first_read(tree, statement, node)
        if line is None:
            continue
        reading = context.sources.label(place.cell, line)
        yield conclude(
            "D.2.4",
            f"{ranks_text(ranks)} {agree(ranks, 'reads', 'read')} the result of {first.label} in "
            f"line {line}, before it was waited for",
            cause="result-read-before-wait",
            ranks=ranks,
            where=dict.fromkeys(sorted(ranks), reading),
            evidence=[
                f"issued with async_op=True at {context.label(place)}",
                f"read at {reading}",
                "no wait() for its handle stands between the two lines",
            ],
            confidence="likely",
            op=first.op,
        )


def changed_before_wait(context: Context) -> Iterator[Finding]:
    """A tensor is changed in place while it is still being sent."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, "isend").items():
        first = next(iter(calls.values()))[0]
        node = call_at(context.sources, place, first.op)
        tree, statement = context.sources.tree(place.cell), context.sources.statement(place)
        if node is None or tree is None or statement is None:
            continue
        line = first_change(tree, statement, node)
        if line is None:
            continue
        changing = context.sources.label(place.cell, line)
        yield conclude(
            "D.2.4",
            f"{ranks_text(calls)} {agree(calls, 'changes', 'change')} in line {line} the tensor "
            f"that {first.label} is still sending",
            cause="buffer-changed-before-wait",
            ranks=calls,
            where=dict.fromkeys(sorted(calls), changing),
            evidence=[
                f"sent at {context.label(place)}",
                f"changed in place at {changing}",
                "no wait() for its handle stands between the two lines",
            ],
            confidence="likely",
            op=first.op,
        )
