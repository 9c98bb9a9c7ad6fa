"""Rules about values that are read where, or when, a collective has not delivered them.

The call log shows which calls were made, with which root and whether they returned a handle; the
source shows what a rank does with the tensor afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Position
from ddt_notebook.model.collective import shape_label
from ddt_notebook.model.exchanged import EarlyRead
from ddt_notebook.model.training import OptimizerTraining
from ddt_notebook.program.async_work import first_change, first_read
from ddt_notebook.program.collective_functions import collective_functions
from ddt_notebook.program.names import DELIVERING_LATE
from ddt_notebook.program.result_use import Use, uses_of_result

from .facts import of_call

#: A handle that is waited for one step later is open once, at the end of the run.
_ENOUGH_STEPS = 3
#: The calls of each line: position -> rank -> calls.
Sites = dict[Position, dict[int, list[Call]]]


def read_on_wrong_rank(context: Context) -> Iterator[Finding]:
    """Report ranks that use the result of ``reduce`` although only another rank has it.

    It is a hint if they only compute something that the cell never reads, or only show what each
    rank holds.
    """
    for calls, readers in _wrong_readers(context):
        used = {rank: use for rank, use in readers.items() if not _harmless(context, use)}
        yield _wrong_rank(context, calls, used or readers)


def _harmless(context: Context, use: Use) -> bool:
    shows_rank = context.program.conditions.reads_rank(use.statement)
    return use.kind == "kept" or (use.kind == "print" and shows_rank and not use.scaled)


def _wrong_readers(
    context: Context,
) -> Iterator[tuple[dict[int, list[Call]], dict[int, Use]]]:
    if context.snapshot.outcome != "ok":
        return
    reduced = sites(context, "reduce")
    carriers = collective_functions(context.program) if reduced else frozenset()
    for place, calls in reduced.items():
        roots = {call.root for mine in calls.values() for call in mine}
        if len(roots) != 1 or None in roots:
            continue
        others = sorted(calls.keys() - roots)
        uses = uses_of_result(context.program, place, "reduce", others, carriers)
        found = {
            rank: use for rank, use in uses.items() if use.kind != "step" or not broadcasts(context)
        }
        if found:
            yield calls, found


def broadcasts(context: Context) -> bool:
    """Whether the cell sends values from one rank to all; then only that rank's values matter."""
    return any(
        call.op.startswith("broadcast") and call.source == "call log"
        for report in context.snapshot.ranks
        for call in report.calls
    )


def sites(context: Context, *ops: str) -> Sites:
    """Return the calls of operations by line of the cell and rank."""
    found: Sites = defaultdict(lambda: defaultdict(list))
    for rank, report in context.reports.items():
        for call in report.calls:
            if call.op in ops and call.status in ("done", "issued"):
                place = call.where
                if place is not None:
                    found[place][rank].append(call)
    return found


#: What a rank does with a tensor of which it has only a part -> the kind of the fact.
_USED = {
    "print": "prints-own-part",
    "decision": "decides-by-own-part",
    "step": "applies-own-part",
    "kept": "computes-with-own-part",
}


def _wrong_rank(context: Context, calls: dict[int, list[Call]], readers: dict[int, Use]) -> Finding:
    first = next(iter(calls.values()))[0]
    ranks = sorted(readers)
    places = {rank: use.place for rank, use in readers.items()}
    use = readers[ranks[0]]
    return conclude(
        "D.2.4",
        "reduced-elsewhere",
        cause="reduce-read-on-wrong-rank",
        ranks=ranks,
        values=of_call(context, first) | {"root": first.root, "line": use.place.line},
        places=places,
        facts=[
            Fact(
                kind="reduced-to",
                place=context.place(first.where, "called"),
                values={"root": first.root},
            ),
            Fact(kind=_USED[use.kind], place=places[ranks[0]], ranks=(ranks[0],)),
            Fact(kind="others-hold-parts"),
        ],
        confidence="possible" if _harmless(context, use) else "likely",
        op=first.op,
    )


def seen_before_wait(context: Context) -> Iterator[Finding]:
    """Report tensors that ranks were seen to read before ``wait()``."""
    if context.snapshot.outcome != "ok":
        return
    for (where, _), reads in _early(context).items():
        first = reads[min(reads)]
        calls = {
            rank: call
            for place, of_line in sites(context, first.op).items()
            for rank, (call, *_) in of_line.items()
            if (place.file, place.line) == (where.file, where.line)
        }
        if any(rank not in calls for rank in reads):
            continue
        places = {rank: context.place(one.read_at, "reads") for rank, one in reads.items()}
        yield conclude(
            "D.2.4",
            "read-before-wait",
            cause="result-read-before-wait",
            ranks=reads,
            values=of_call(context, calls[min(reads)]) | {"line": first.read_at.line},
            places=places,
            facts=[
                Fact(kind="issued-async", place=context.place(where, "called")),
                Fact(kind="read-at", place=places[min(reads)]),
                Fact(kind="seen-before-wait"),
            ],
            confidence="likely",
            op=first.op,
        )
        return


def _early(context: Context) -> dict[tuple[Position, Position], dict[int, EarlyRead]]:
    found: dict[tuple[Position, Position], dict[int, EarlyRead]] = defaultdict(dict)
    for one in context.snapshot.exchanged:
        for read in one.early:
            found[read.where, read.read_at][one.rank] = read
    return found


def read_before_wait(context: Context) -> Iterator[Finding]:
    """Report results that are read between an asynchronous call and ``wait()``."""
    if context.snapshot.outcome != "ok":
        return
    if any(True for _ in seen_before_wait(context)):
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
        reading = first_read(context.program, place, first.op)
        if reading is None:
            continue
        yield conclude(
            "D.2.4",
            "read-before-wait",
            cause="result-read-before-wait",
            ranks=ranks,
            values=of_call(context, first) | {"line": reading.line},
            places=dict.fromkeys(sorted(ranks), reading),
            facts=[
                Fact(kind="issued-async", place=context.place(place, "called")),
                Fact(kind="read-at", place=reading),
                Fact(kind="no-wait-between"),
            ],
            confidence="likely",
            op=first.op,
        )


def stepped_before_wait(context: Context) -> Iterator[Finding]:
    """Report gradients of one line whose handles are waited for, except for some in each step.

    That others of the line are waited for shows that its waits are recorded: another thread or a
    library could wait for all of them unseen.
    """
    if context.snapshot.outcome != "ok":
        return
    trainings = {one.rank: one for one in context.snapshot.training}
    for place, calls in sites(context, "all_reduce").items():
        if context.program.call_at(place, "all_reduce") is None:
            continue  # a library issued them from this line
        found: dict[int, OptimizerTraining] = {}
        for rank, mine in calls.items():
            left = [c for c in mine if c.asynchronous and c.status == "issued"]
            sent = {shape_label(shape) for call in left for shape in call.shapes}
            if len(left) in (0, len(mine)) or rank not in trainings:
                continue
            for optimizer in trainings[rank].optimizers:
                steps = optimizer.steps
                if _ENOUGH_STEPS <= steps <= len(left) and sent <= optimizer.shapes.keys():
                    found[rank] = optimizer
        if not found:
            continue
        one, mine = next((optimizer, calls[rank]) for rank, optimizer in found.items())
        never = sum(call.status == "issued" for call in mine)
        yield conclude(
            "D.2.4",
            "stepped-before-wait",
            cause="result-read-before-wait",
            ranks=found,
            values=of_call(context, mine[0]) | {"optimizer": one.name, "never": never},
            places={rank: context.place(one.where, "steps") for rank, one in found.items()},
            facts=[
                Fact(kind="issued-async", place=context.place(place, "called")),
                Fact(
                    kind="waited-for-others",
                    values={"never": never, "calls": len(mine), "steps": one.steps},
                ),
            ],
            confidence="likely",
            op=mine[0].op,
        )


def changed_before_wait(context: Context) -> Iterator[Finding]:
    """Report tensors that are changed in place while they are still being sent."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, "isend").items():
        first = next(iter(calls.values()))[0]
        changing = first_change(context.program, place, first.op)
        if changing is None:
            continue
        yield conclude(
            "D.2.4",
            "changed-before-wait",
            cause="buffer-changed-before-wait",
            ranks=calls,
            values=of_call(context, first) | {"line": changing.line},
            places=dict.fromkeys(sorted(calls), changing),
            facts=[
                Fact(kind="sent-at", place=context.place(place, "called")),
                Fact(kind="changed-at", place=changing),
                Fact(kind="no-wait-between"),
            ],
            confidence="likely",
            op=first.op,
        )


RULES = (
    read_on_wrong_rank,
    seen_before_wait,
    read_before_wait,
    stepped_before_wait,
    changed_before_wait,
)
