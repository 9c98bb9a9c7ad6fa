"""Hints: a sum that is taken for a mean, and a mean that is divided once more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude_text
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Finding
from ddt_notebook.program.result_use import divided_by_world, divides, uses_of_result

from .reading import sites

_MEAN = re.compile(r"\b(mean|avg|averaged?)\b", re.IGNORECASE)


def sums_shown_as_means(context: Context) -> Iterator[Finding]:
    """Hint: a sum over the ranks is printed as a mean, and nothing divides it."""
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
            line = next(iter(shown.values())).line
            yield conclude_text(
                "D.2.4",
                f"line {line} shows the sum over {len(calls)} ranks as a mean",
                cause="sum-shown-as-mean",
                ranks=shown,
                places=shown,
                evidence=[f"summed at {context.label(place)}", "nothing divides it"],
                confidence="possible",
                op=first.op,
            )


def averaged_twice(context: Context) -> Iterator[Finding]:
    """Hint: what ``ReduceOp.AVG`` has averaged is divided by the number of ranks."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, "all_reduce", "reduce").items():
        first = next(iter(calls.values()))[0]
        if {call.reduce_op for mine in calls.values() for call in mine} != {"AVG"}:
            continue
        shown = divided_by_world(context.program, place, first.op)
        if shown is not None:
            yield conclude_text(
                "D.2.4",
                f"line {shown.line} divides by the number of ranks what {first.label} has averaged",
                cause="averaged-twice",
                ranks=calls,
                places=dict.fromkeys(sorted(calls), shown),
                evidence=[f"averaged over the ranks at {context.label(place)}"],
                confidence="possible",
                op=first.op,
            )
