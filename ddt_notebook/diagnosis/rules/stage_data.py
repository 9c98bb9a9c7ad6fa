"""Rules about the batches that the stages of one copy of a model read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import classify
from ddt_notebook.model import Fact, Finding, Position
from ddt_notebook.model.agreements import readers
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition

from .exception import of_error

#: The kind of this finding, and the symptom of tensors that do not fit each other.
STAGES_APART, SHAPES = "stage-loaders-differ", "D.1.5"
#: One rank may read what it then sends to the others.
_SENDING = ("broadcast", "scatter")


def stages_read_apart(context: Context) -> Iterator[Finding]:
    """Report stages of one copy of a model whose loaders return other samples.

    The first stage computes with the tokens of a batch, and the last one with the labels. Ranks of
    a tensor-parallel group are compared by what they compute with.
    """
    partitions = {part.rank: part for part in context.snapshot.partition}
    for ranks in _copies(context):
        if not set(ranks) <= partitions.keys() or _sends(context, ranks):
            continue
        passes = {rank: first_passes(partitions[rank]) for rank in ranks}
        for made_at in dict.fromkeys(line for one in passes.values() for line in one):
            read = {rank: one[made_at][1] for rank, one in passes.items() if made_at in one}
            if are_apart(read.values()):
                yield _finding(context, made_at, read)
                return


def _finding(context: Context, made_at: Position, read: dict[int, Epoch]) -> Finding:
    return conclude(
        "D.2.4",
        STAGES_APART,
        cause="megatron-stages-read-apart",
        ranks=sorted(read),
        places={rank: context.place(made_at, "created") for rank in sorted(read)},
        facts=[
            Fact(kind="samples-read", ranks=(rank,), values={"first": one.first})
            for rank, one in sorted(read.items())
        ]
        + [
            Fact(kind="raised", place=at, ranks=(rank,), values=of_error(error))
            for rank in sorted(read)
            if (error := context.reports[rank].error) is not None
            and classify(error).symptom == SHAPES
            and (at := context.place(error.where, "raised")) is not None
        ],
        confidence="likely",
    )


def _copies(context: Context) -> list[list[int]]:
    """The stages of each copy, as the ranks that hold parts of one model at one tensor place."""
    axes = {one.rank: one.axes for one in context.agreements if one.axes}
    found: dict[object, list[int]] = defaultdict(list)
    for rank, lowest in readers(context.agreements).items():
        found[lowest, axes[rank].get("tensor")].append(rank)
    return [sorted(ranks) for ranks in found.values() if len(ranks) > 1]


def _sends(context: Context, ranks: list[int]) -> bool:
    """Whether one of the ranks may give its batch to others of them."""
    return any(
        call.op.startswith(_SENDING) and len(set(ranks) & set(call.members or ranks)) > 1
        for rank in ranks
        for call in context.reports[rank].calls
    )


def first_passes(partition: RankPartition) -> dict[Position, tuple[LoaderPartition, Epoch]]:
    """Return the first pass in this run of each loader over samples with an index, by its line."""
    found: dict[Position, tuple[LoaderPartition, Epoch] | None] = {}
    for loader in partition.loaders:
        first = next((one for one in loader.epochs if one.run == partition.run), None)
        if loader.made_at is not None and loader.indexed and first is not None:
            known = loader.made_at in found  # one line may make several
            found[loader.made_at] = None if known else (loader, first)
    return {line: one for line, one in found.items() if one is not None}


def are_apart(read: Iterable[Epoch]) -> bool:
    """Whether these passes began with other samples, as far as all of them came."""
    passes = list(read)
    same_pass = len({(one.number, one.made) for one in passes}) == 1
    far = min(len(one.first) for one in passes)
    seen = min(len(one.content) for one in passes)
    return (
        same_pass
        and len({one.first[:far] for one in passes}) > 1
        and (not seen or len({one.content[:seen] for one in passes}) > 1)
    )


RULES = (stages_read_apart,)
