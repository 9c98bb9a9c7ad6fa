"""Rules about ranks that attend to parts of the same sequences, as in DeepSpeed-Ulysses."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Position
from ddt_notebook.model.frameworks.deepspeed import SEQUENCE
from ddt_notebook.model.partition import Epoch, LoaderPartition

from .stage_data import are_apart, first_passes

#: Calls by which ranks may give each other what they have read. DeepSpeed's adapter of loaders
#: does so with `all_gather`.
_SHARING = ("broadcast", "scatter", "all_gather", "gather", "send", "isend")


def sequences_read_apart(context: Context) -> Iterator[Finding]:
    """Report ranks of one sequence-parallel group that train on other samples.

    Each rank takes its part of a sequence. If the loaders bring them other samples, the parts that
    attend to each other belong to other sequences.
    """
    if context.snapshot.outcome != "ok":
        return
    apart: dict[int, tuple[LoaderPartition, Epoch]] = {}
    groups: list[tuple[int, ...]] = []
    for group, ranks in _groups(context):
        if _share(context, group, ranks):
            continue
        for read in _trained_on(context, ranks):
            passes = [one for _, one in read.values()]
            if len(read) == len(ranks) and are_apart(passes) and not _are_pieces(passes):
                apart |= read
                groups.append(ranks)
                break
    if not groups:
        return
    yield conclude(
        "D.2.2",
        "sequences-read-apart",
        cause="deepspeed-sequences-read-apart",
        ranks=sorted(apart),
        places={
            rank: context.place(loader.sampled_at or loader.made_at, "created")
            for rank, (loader, _) in sorted(apart.items())
        },
        facts=[
            Fact(kind="attend-together", ranks=groups[0]),
            *(
                Fact(kind="samples-read", ranks=(rank,), values={"first": apart[rank][1].first})
                for rank in groups[0]
            ),
        ],
        confidence="likely",
    )


def _groups(context: Context) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups that all their ranks have noted, by their names."""
    noted: dict[tuple[str, tuple[int, ...]], set[int]] = defaultdict(set)
    for rank, report in context.reports.items():
        for call in report.calls:
            if call.op == SEQUENCE and call.detail:
                one = json.loads(call.detail)
                noted[one["group"], tuple(one["ranks"])].add(rank)
    for (group, ranks), by in noted.items():
        if by >= set(ranks):
            yield group, ranks


def _trained_on(
    context: Context, ranks: Sequence[int]
) -> Iterator[dict[int, tuple[LoaderPartition, Epoch]]]:
    """Yield the first pass of each line's loader on ranks that trained during it."""
    read: dict[Position, dict[int, tuple[LoaderPartition, Epoch]]] = defaultdict(dict)
    for partition in context.snapshot.partition:
        if partition.rank in ranks:
            for line, (loader, first) in first_passes(partition).items():
                if (
                    first.trained and first.batches > 1
                ):  # of one, the exchange stands before the note
                    read[line][partition.rank] = loader, first
    yield from read.values()


def _share(context: Context, group: str, ranks: Sequence[int]) -> bool:
    """Whether some of the ranks may give each other what they have read.

    The note stands before the first pass of an engine, and so after what made it.
    """
    for rank in ranks:
        calls = context.reports[rank].calls
        begun = next(call.index for call in calls if call.op == SEQUENCE)
        for call in calls:
            together = len(set(ranks) & set(call.members or ranks)) > 1
            later = call.index > begun and call.kind != "setup"
            if later and together and _may_carry_samples(call, group):
                return True
    return False


def _may_carry_samples(call: Call, group: str) -> bool:
    """Whether a call may carry a batch: not the size of one, and no gradients or parameters."""
    if not call.op.startswith(_SHARING):
        return False
    if not call.shapes or "object" in call.dtypes:
        return True
    is_batch = any(math.prod(shape) > 1 for shape in call.shapes)
    of_integers = any("float" not in dtype for dtype in call.dtypes)
    return is_batch and (call.group == group or of_integers)


def _are_pieces(passes: Iterable[Epoch]) -> bool:
    """Whether samples with successive indices came together: they may be parts of a sequence."""
    columns = [sorted(column) for column in zip(*(one.first for one in passes), strict=False)]
    return all(column[-1] - column[0] == len(column) - 1 for column in columns)


RULES = (sequences_read_apart,)
