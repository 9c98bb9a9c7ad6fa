"""Rules about losses that compare the samples of one rank with those of all ranks, or its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.training import Contrast
from ddt_notebook.program.program import Program

#: Fewer samples may have equal labels by chance, and fewer passes by a first batch of one's own.
_SAMPLES, _PASSES = 4, 2


def labels_without_offset(context: Context) -> Iterator[Finding]:
    """Report labels that name the same samples on each rank, though each rank has its own."""
    if context.snapshot.outcome != "ok":
        return
    passes: dict[tuple[int, int], dict[int, Contrast]] = defaultdict(dict)
    for training in context.snapshot.training:
        at: dict[int, int] = defaultdict(int)
        for one in (one for one in training.contrasts if not one.among):
            passes[one.number, at[one.number]][training.rank] = one
            at[one.number] += 1
    size = len(context.snapshot.ranks)
    wrong = [ranks for ranks in passes.values() if _is_wrong(ranks, size)]
    if len({next(iter(ranks.values())).number for ranks in wrong}) < _PASSES:
        return
    if any(_is_right(ranks, size) for ranks in passes.values()):
        return
    ranks = wrong[0]
    first = ranks[min(ranks)]
    others = [rank for rank in ranks if rank != min(ranks)]
    made = _made(context.program)
    yield conclude(
        "D.2.4",
        "labels-of-another-rank",
        cause="labels-without-offset",
        ranks=others,
        values={"owner": min(ranks)},
        places={
            rank: made or context.place(one.where, "called")
            for rank, one in ranks.items()
            if rank in others
        },
        facts=[
            Fact(kind="choices", values={"samples": first.samples, "choices": first.choices}),
            Fact(kind="same-choices"),
            Fact(kind="same-labels"),
            Fact(kind="backward-at", place=context.place(first.where, "called")),
        ],
        confidence="likely",
    )


def among_own_samples(context: Context) -> Iterator[Finding]:
    """Report, as a hint, samples that are compared only with others of the same rank."""
    if context.snapshot.outcome != "ok":
        return
    trainings = {one.rank: one for one in context.snapshot.training}
    for models in replicas.models(context.snapshot):
        size = len(models)
        if size < 2 or set(models[min(models)].members) != set(models):
            continue
        passes = list(zip(*(trainings[rank].contrasts for rank in models), strict=False))
        apart = [
            at
            for at in passes
            if all(one.among for one in at)
            and len({one.others for one in at}) == size
            and len({(one.number, one.where, one.samples) for one in at}) == 1
        ]
        if len({at[0].number for at in apart}) < _PASSES or len(apart) < len(passes):
            continue
        first = apart[0][0]
        yield conclude(
            "D.2.4",
            "contrasts-within-ranks",
            cause="negatives-of-one-rank",
            ranks=models,
            values={"samples": first.samples, "size": size},
            places=dict.fromkeys(sorted(models), context.place(first.where, "called")),
            facts=[
                Fact(
                    kind="own-choices",
                    values={"samples": first.samples, "whole": size * first.samples},
                ),
                Fact(kind="nothing-gathered-for-loss"),
            ],
            confidence="possible",
        )
        return


def _is_wrong(ranks: dict[int, Contrast], size: int) -> bool:
    """Whether every rank's samples have the labels of the first samples of all ranks."""
    if len(ranks) < size or size < 2:
        return False
    first = ranks[min(ranks)]
    return (
        all(one.first == 0 and one.samples >= _SAMPLES for one in ranks.values())
        and all(one.choices == size * one.samples for one in ranks.values())
        and len({(one.samples, one.others) for one in ranks.values()}) == 1
        and (not first.own or len({one.own for one in ranks.values()}) == size)
    )


def _is_right(ranks: dict[int, Contrast], size: int) -> bool:
    return len(ranks) == size and len({one.first for one in ranks.values()}) == size


def _made(program: Program) -> Place | None:
    """The line that counts the labels up, if only one line does such a thing."""
    found = {
        statement
        for tree in program.trees.values()
        for call in tree.calls.get("arange", [])
        if (statement := tree.statement_of(call)) is not None
        and isinstance(statement, ast.Assign | ast.Return)
    }
    return program.place(found.pop(), "source") if len(found) == 1 else None


RULES = (labels_without_offset,)
HINTS = (among_own_samples,)
