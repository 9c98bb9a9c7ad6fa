"""Hints about evaluations that count samples twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Position
from ddt_notebook.model.partition import LoaderPartition, division
from ddt_notebook.program.iterations import comes_to

from .loaders import loops, samples, used_loaders

#: A sum of counts has a few elements; what is larger is a part of a model.
_FEW_ELEMENTS = 64


def padded_evaluations(context: Context) -> Iterator[Finding]:
    """Report, as a hint, sums over samples of which the sampler repeated some to fill up parts."""
    for name, loaders in used_loaders(context).items():
        if len(loaders) < 2 or any(_trains(loader) for loader in loaders.values()):
            continue
        seen = division(loaders)
        if not 0 < seen.overlap <= seen.padding:
            continue
        sums = {rank: _sum_after(context, rank, loader) for rank, loader in loaders.items()}
        first = sums[min(sums)]
        if first is None or not all(sums.values()):
            continue
        yield conclude(
            "D.2.4",
            "padding-counted",
            cause="padded-samples-counted",
            ranks=loaders,
            values={
                "loader": name,
                "repeated": seen.overlap,
                "covered": seen.covered,
                "counted": seen.covered + seen.overlap,
            },
            places=loops(context, loaders),
            facts=[
                samples(loaders),
                Fact(kind="summed-at", place=context.place(first.where, "called")),
            ],
            confidence="possible",
            op=first.op,
        )


def _trains(loader: LoaderPartition) -> bool:
    last = loader.epochs[-1]
    return bool(last.trained) or not last.complete


def _sum_after(context: Context, rank: int, loader: LoaderPartition) -> Call | None:
    """The first small sum that a rank makes behind its loop, also in a function called there."""
    loop = loader.epochs[-1].where
    report = context.reports.get(rank)
    if loop is None or report is None:
        return None
    behind: dict[tuple[str, int], bool] = {}
    for call in report.calls:
        where = call.where
        if where is None or not _is_small_sum(call):
            continue
        line = (where.file, where.line)
        if line not in behind:
            behind[line] = _is_behind(context, where, loop)
        if behind[line]:
            return call
    return None


def _is_small_sum(call: Call) -> bool:
    return (
        call.op in ("all_reduce", "reduce")
        and call.reduce_op == "SUM"
        and all(math.prod(shape) <= _FEW_ELEMENTS for shape in call.shapes)
    )


def _is_behind(context: Context, where: Position, loop: Position) -> bool:
    if (where.file, where.function) == (loop.file, loop.function):
        return where.line > loop.line
    return comes_to(context.program, [loop], where)


HINTS = (padded_evaluations,)
