"""Finds the ranks that train one model together, and the fact that shows it."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddt_notebook.diagnosis.communication import teams_of_engines
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Position
from ddt_notebook.model.frameworks import known_operation, meets_by_tensor
from ddt_notebook.program.gradients import holds_gradients
from ddt_notebook.program.nodes import argument
from ddt_notebook.program.sharded_values import slices_by_rank

#: By which FSDP reduces gradients.
_SCATTERS = ("reduce_scatter", "_reduce_scatter")


@dataclass(frozen=True, slots=True)
class Team:
    """Ranks that average gradients.

    Attributes
    ----------
    ranks
        Ascending.
    fact
        The fact that shows it.
    trainings
        How many optimizers stepped on a rank in this run.
    """

    ranks: tuple[int, ...]
    fact: Fact
    trainings: int = 1


def teams(context: Context) -> list[Team]:
    """Return the ranks that train a model together; disjoint or equal sets, the largest first."""
    known = [
        *_reduced_by_hand(context),
        *_reduced_by_fsdp(context),
        *_sharded(context),
        *_in_engines(context),
        *_in_backward_passes(context),
        *_wrapped(context),
        *_averaged_now_and_then(context),
    ]
    found = {team.ranks: team for team in known}
    return sorted(found.values(), key=lambda team: (-len(team.ranks), team.ranks))


def _wrapped(context: Context) -> Iterator[Team]:
    """Yield the teams of models in DistributedDataParallel that were trained in this run."""
    trainings = {training.rank: training for training in context.snapshot.training}
    for training in trainings.values():
        stepped = max(len(training.optimizers), 1)
        for model in training.models:
            ranks = tuple(rank for rank in model.members if rank in trainings)
            if model.forwards and len(ranks) > 1:
                fact = Fact(kind="ddp-averages", ranks=ranks, values={"model": model.name})
                yield Team(ranks, fact, stepped)


def _averaged_now_and_then(context: Context) -> Iterator[Team]:
    """Yield the teams of models in DDP that trained without it, and that a library averages.

    So does local SGD: DDP only makes the model equal on all ranks.
    """
    trained = {one.rank for one in context.snapshot.training if one.backwards}
    for training in context.snapshot.training:
        calls = context.reports[training.rank].calls if training.rank in context.reports else ()
        averaged = {
            call.shapes
            for call in calls
            if call.op == "all_reduce" and call.called_from is not None
            if any(math.prod(shape) > 1 for shape in call.shapes)
        }
        for model in training.models:
            ranks = tuple(rank for rank in model.members if rank in trained)
            if not model.forwards and len(ranks) > 1 and len(averaged) > 1:
                fact = Fact(kind="averaged-now-and-then", ranks=ranks, values={"model": model.name})
                yield Team(ranks, fact)


def _sharded(context: Context) -> Iterator[Team]:
    """Yield the teams of models that FSDP2 spreads over all ranks along one dimension."""
    partitions = context.snapshot.partition
    trained = {t.rank for t in context.snapshot.training if t.backwards}
    ranks = tuple(p.rank for p in partitions if p.rank in trained)
    for name in {shard.name for p in partitions for shard in p.shards}:
        shards = [s for p in partitions for s in p.shards if s.name == name]
        meshes = {shard.mesh.rpartition("=")[2] for shard in shards if shard.wrapper == "FSDP2"}
        if len(ranks) == len(shards) > 1 and meshes == {str(len(ranks))}:
            yield Team(ranks, Fact(kind="fsdp-reduces", ranks=ranks, values={"model": name}))


def _reduced_by_fsdp(context: Context) -> Iterator[Team]:
    """Yield the ranks between which FSDP scattered all gradients, wherever the model was held.

    A model in a variable of a function is gone when the run has ended. Ranks that exchange parts
    of a sequence as well may have to read the same batches.
    """
    trained = tuple(sorted(t.rank for t in context.snapshot.training if t.backwards))
    calls = [call for report in context.snapshot.ranks for call in report.calls]
    scattered = {
        call.members for call in calls if call.caller == "FSDP" and call.op.startswith(_SCATTERS)
    }
    parts = any(call.kind == "p2p" or call.op.startswith("all_to_all") for call in calls)
    if len(trained) > 1 and scattered == {trained} and not parts:
        one = next(t for t in context.snapshot.training if t.backwards)
        name = next((o.model for o in one.optimizers if o.model), "the model")
        yield Team(trained, Fact(kind="fsdp-reduces", ranks=trained, values={"model": name}))


def _in_engines(context: Context) -> Iterator[Team]:
    """Yield the teams of DeepSpeed's engines that were made and trained in this run."""
    trained = {t.rank for t in context.snapshot.training if t.backwards}
    for ranks in teams_of_engines(context.snapshot.ranks):
        if len(ranks) > 1 and trained.issuperset(ranks):
            yield Team(ranks, Fact(kind="deepspeed-averages", ranks=ranks))


def _in_backward_passes(context: Context) -> Iterator[Team]:
    """Yield the teams of optimizers that reduce gradients while a backward pass computes them.

    The line of such a reduction is that of the backward pass.
    """
    if not meets_by_tensor(context.snapshot.framework):
        return
    lines = {t.rank: t.where for t in context.snapshot.training if t.backwards}
    for report in context.snapshot.ranks:
        line = lines.get(report.rank)
        for call in report.calls:
            operation = known_operation(call.op)
            if operation is None or not operation.reduces or line is None or call.where is None:
                continue
            here = (call.where.file, call.where.line) == (line.file, line.line)
            if here and len(call.members) > 1 and set(call.members) <= lines.keys():
                fact = Fact(kind="optimizer-averages", ranks=call.members)
                yield Team(call.members, fact)


def _reduced_by_hand(context: Context) -> Iterator[Team]:
    """Yield the teams of gradients that the cell reduces: ``dist.all_reduce(p.grad)``."""
    lines: Counter[tuple[tuple[int, ...], str, int]] = Counter()
    several: set[tuple[tuple[int, ...], str, int]] = set()
    for report in context.snapshot.ranks:
        for call in report.calls:
            if call.op == "all_reduce" and call.where is not None and len(call.members) > 1:
                at = (call.members, call.where.file, call.where.line)
                lines[at] += 1
                if any(math.prod(shape) > 1 for shape in call.shapes):
                    several.add(at)
    times: Counter[tuple[int, ...]] = Counter()
    for (members, file, line), number in lines.items():
        written = context.program.call_at(Position(file=file, line=line), "all_reduce")
        if written is None or not holds_gradients(context.program, written):
            continue
        # a number that was computed from gradients is their norm, which tensor parallelism sums
        if (members, file, line) in several or _is_gradient(argument(written, 0, "tensor")):
            times[members] += number
    for members, reduced in times.items():
        if reduced:
            yield Team(members, Fact(kind="cell-reduces-gradients", values={"calls": reduced}))


def _is_gradient(node: ast.expr | None) -> bool:
    """Whether an expression is ``p.grad`` or ``p.grad.data``."""
    while isinstance(node, ast.Attribute) and node.attr != "grad":
        node = node.value
    return isinstance(node, ast.Attribute)


def take_parts(context: Context, ranks: Iterable[int]) -> bool:
    """Whether ranks that load the same batches train on different parts of them."""
    given = [_first_inputs(context, rank) for rank in ranks]
    known = min(map(len, given), default=0)
    if known:
        return len({inputs[:known] for inputs in given}) > 1
    return slices_by_rank(context.program)


def _first_inputs(context: Context, rank: int) -> tuple[int, ...]:
    trainings = [one for one in context.snapshot.training if one.rank == rank]
    return tuple(fed for one in trainings for model in one.models for fed in model.first_inputs)
