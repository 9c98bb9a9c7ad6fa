"""Which ranks train one model together, and how that is known."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddt_notebook.diagnosis.cells import syntax
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.words import count, ranks_text
from ddt_notebook.model import Position

#: Cut a batch into one part for each rank.
_CUTS = frozenset({"chunk", "split", "tensor_split", "array_split"})
#: Take one part of a tensor.
_PARTS = frozenset({"narrow", "index_select", "scatter", "islice"})


@dataclass(frozen=True, slots=True)
class Team:
    """Ranks that average gradients.

    Attributes
    ----------
    ranks
        Ascending.
    evidence
        How that is known.
    trainings
        How many optimizers stepped on a rank in this run.
    """

    ranks: tuple[int, ...]
    evidence: str
    trainings: int = 1


def teams(context: Context) -> list[Team]:
    """The ranks that train a model together; disjoint or equal sets, the largest first."""
    known = [*_reduced_by_hand(context), *_sharded(context), *_wrapped(context)]
    found = {team.ranks: team for team in known}
    return sorted(found.values(), key=lambda team: (-len(team.ranks), team.ranks))


def _wrapped(context: Context) -> Iterator[Team]:
    """Models in DistributedDataParallel that were trained in this run."""
    trainings = {training.rank: training for training in context.snapshot.training}
    for training in trainings.values():
        stepped = max(len(training.optimizers), 1)
        for model in training.models:
            ranks = tuple(rank for rank in model.members if rank in trainings)
            if model.forwards and len(ranks) > 1:
                what = "DistributedDataParallel averages the gradients"
                yield Team(ranks, f"{what} of {model.name} on {ranks_text(ranks)}", stepped)


def _sharded(context: Context) -> Iterator[Team]:
    """Models that FSDP2 spreads over all ranks, along one dimension."""
    partitions = context.snapshot.partition
    trained = {t.rank for t in context.snapshot.training if t.backwards}
    ranks = tuple(p.rank for p in partitions if p.rank in trained)
    for name in {shard.name for p in partitions for shard in p.shards}:
        shards = [s for p in partitions for s in p.shards if s.name == name]
        meshes = {shard.mesh.rpartition("=")[2] for shard in shards if shard.wrapper == "FSDP2"}
        if len(ranks) == len(shards) > 1 and meshes == {str(len(ranks))}:
            yield Team(ranks, f"FSDP2 reduces the gradients of {name} on {ranks_text(ranks)}")


def _reduced_by_hand(context: Context) -> Iterator[Team]:
    """Gradients that the cell itself reduces: ``dist.all_reduce(p.grad)``."""
    lines: Counter[tuple[tuple[int, ...], str, int]] = Counter()
    for report in context.snapshot.ranks:
        for call in report.calls:
            if call.op == "all_reduce" and call.where is not None and len(call.members) > 1:
                lines[call.members, call.where.file, call.where.line] += 1
    times: Counter[tuple[int, ...]] = Counter()
    for (members, file, line), number in lines.items():
        place = context.place(Position(file=file, line=line))
        times[members] += number if place is not None and "grad" in place.code else 0
    for members, reduced in times.items():
        if reduced:
            yield Team(members, f"the cell reduces gradients ({count(reduced, 'all_reduce')})")


def take_parts(context: Context, ranks: Iterable[int]) -> bool:
    """Whether ranks that load the same batches train on different parts of them."""
    given = [_first_inputs(context, rank) for rank in ranks]
    known = min(map(len, given), default=0)
    if known:
        return len({inputs[:known] for inputs in given}) > 1
    return slices_by_rank(context)


def _first_inputs(context: Context, rank: int) -> tuple[int, ...]:
    trainings = [one for one in context.snapshot.training if one.rank == rank]
    return tuple(fed for one in trainings for model in one.models for fed in model.first_inputs)


def slices_by_rank(context: Context) -> bool:
    """Whether the code takes a part of something by the number of the rank."""
    nodes, derived = _by_rank(context)
    return any(_takes_a_part(node, derived) for node in nodes)


def leaves_part_out(context: Context) -> bool:
    """Whether the code joins what lies before and behind a rank's part, as cross-validation does.

    The ranks then train on overlapping data, each without the part that it evaluates on.
    """
    nodes, derived = _by_rank(context)
    return any(
        isinstance(node, (ast.Call, ast.BinOp))
        and {"before", "behind"} <= {_side(part, derived) for part in ast.walk(node)}
        for node in nodes
    )


def _side(node: ast.AST, derived: set[str]) -> str:
    """What ``x[:part]`` and ``x[part:]`` take, where the number of the rank decides on the part."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return ""
    lower, upper = node.slice.lower, node.slice.upper
    if lower is None and upper is not None and _mentions(upper, derived):
        return "before"
    return "behind" if upper is None and lower is not None and _mentions(lower, derived) else ""


def _by_rank(context: Context) -> tuple[list[ast.AST], set[str]]:
    """The nodes of all cells, and the names that are computed from the number of the rank."""
    cells = (context.snapshot.cell, *context.snapshot.earlier_cells)
    trees = [tree for cell in cells if (tree := syntax.parse(cell)) is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    derived = {"rank", "get_rank"}
    for node in nodes:
        if isinstance(node, ast.Assign) and _mentions(node.value, derived):
            names = [part for target in node.targets for part in ast.walk(target)]
            derived |= {name.id for name in names if isinstance(name, ast.Name)}
    return nodes, derived


def _takes_a_part(node: ast.AST, derived: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return _called(node) in _PARTS and any(_mentions(one, derived) for one in node.args)
    if not isinstance(node, ast.Subscript) or not _mentions(node.slice, derived):
        return False
    ranged = any(isinstance(part, ast.Slice) for part in ast.walk(node.slice))
    return ranged or (isinstance(node.value, ast.Call) and _called(node.value) in _CUTS)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    parts = ast.walk(node)
    return any(getattr(part, "id", getattr(part, "attr", "")) in names for part in parts)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
