"""Hints about sums that are used as means, and means that are divided again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.program.result_use import divided_by_world, divides, uses_of_result

from .facts import of_call
from .reading import sites

_MEAN = re.compile(r"\b(mean|avg|averaged?)\b", re.IGNORECASE)


def sums_shown_as_means(context: Context) -> Iterator[Finding]:
    """Report, as a hint, sums over the ranks that are printed as means without a division."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, "all_reduce", "reduce").items():
        operations = {call.reduce_op for mine in calls.values() for call in mine}
        if operations != {"SUM"}:
            continue
        first = next(iter(calls.values()))[0]
        if divides(context.program, place):
            continue
        uses = uses_of_result(context.program, place, first.op, calls, frozenset())
        shown = {
            rank: use.place
            for rank, use in uses.items()
            if use.kind == "print" and not use.scaled and _MEAN.search(use.text)
        }
        if shown:
            yield conclude(
                "D.2.4",
                "sum-printed-as-mean",
                cause="sum-shown-as-mean",
                ranks=shown,
                places=shown,
                values={"line": next(iter(shown.values())).line, "size": len(calls)},
                facts=[
                    Fact(kind="summed-at", place=context.place(place, "called")),
                    Fact(kind="never-divided"),
                ],
                confidence="possible",
                op=first.op,
            )


def averaged_twice(context: Context) -> Iterator[Finding]:
    """Report, as a hint, results of ``ReduceOp.AVG`` that are divided by the number of ranks."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, "all_reduce", "reduce").items():
        first = next(iter(calls.values()))[0]
        if {call.reduce_op for mine in calls.values() for call in mine} != {"AVG"}:
            continue
        shown = divided_by_world(context.program, place, first.op)
        if shown is not None:
            yield conclude(
                "D.2.4",
                "mean-divided-again",
                cause="averaged-twice",
                ranks=calls,
                places=dict.fromkeys(sorted(calls), shown),
                values={"line": shown.line} | of_call(context, first),
                facts=[Fact(kind="averaged-at", place=context.place(place, "called"))],
                confidence="possible",
                op=first.op,
            )


HINTS = (sums_shown_as_means, averaged_twice)
