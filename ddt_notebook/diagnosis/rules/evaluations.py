"""Hints about evaluations that count samples twice."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Position
from ddt_notebook.model.partition import LoaderPartition, division

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
    """The first small sum that a rank makes behind its loop, in the same function."""
    loop = loader.epochs[-1].where
    report = context.reports.get(rank)
    if loop is None or report is None:
        return None
    return next((call for call in report.calls if _is_sum_behind(call, loop)), None)


def _is_sum_behind(call: Call, loop: Position) -> bool:
    where = call.where
    return (
        where is not None
        and call.op in ("all_reduce", "reduce")
        and call.reduce_op == "SUM"
        and (where.file, where.function) == (loop.file, loop.function)
        and where.line > loop.line
        and all(math.prod(shape) <= _FEW_ELEMENTS for shape in call.shapes)
    )


HINTS = (padded_evaluations,)
