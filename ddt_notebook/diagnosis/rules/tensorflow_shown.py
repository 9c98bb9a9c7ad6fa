"""Rules about numbers of one worker of TensorFlow that are shown as those of all."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Position
from ddt_notebook.model.tensorflow import RankTensorFlow, ShownResult, WrittenSummary

from .metrics import says_whose
from .tensorflow_workers import trained_together

#: Results that differ by a smaller part are equal. Chosen, not measured.
_EQUAL = 1e-3


def own_results(context: Context) -> Iterator[Finding]:
    """Report a number of some workers' own replicas that only they show, as if it were that of all.

    The mean over a worker's own batch may be meant as an estimate. A part of a loss that is divided
    by the size of the global batch, or a sum over own samples, is none.
    """
    if not trained_together(context):
        return
    seen = {one.rank: one for one in context.snapshot.tensorflow}
    found: dict[Position, dict[int, ShownResult]] = {}
    for rank, one in seen.items():
        for result in one.shown:
            alike = [x for x in one.shown if (x.where, x.text) == (result.where, result.text)]
            if all(_differs(seen, x) for x in alike):
                found.setdefault(result.where, {}).setdefault(rank, result)
    showing: dict[tuple[str, int], set[int]] = defaultdict(set)
    for of in found.values():
        for rank, result in of.items():
            showing[result.graph, result.at].add(rank)
    for where, by_rank in found.items():
        first = next(iter(by_rank.values()))
        everywhere = all(where in one.wrote for one in seen.values())
        if everywhere or len(showing[first.graph, first.at]) == len(seen):
            continue  # each worker shows its own
        if any(says_whose(result.text) for result in by_rank.values()):
            continue
        yield conclude(
            "D.2.4",
            "shows-own-result",
            cause="tensorflow-result-not-reduced",
            ranks=by_rank,
            values={"text": first.text, "line": where.line, "graph": f"{first.graph}()"},
            places={rank: context.place(x.where, "called") for rank, x in by_rank.items()},
            facts=[_values(seen, first)],
            confidence="possible" if first.estimate else "likely",
        )
        return


def mixed_curves(context: Context) -> Iterator[Finding]:
    """Report numbers of several workers' own that are written to one folder under one name.

    TensorBoard draws one curve of what all files in a folder hold.
    """
    if context.snapshot.outcome != "ok":
        return
    curves: dict[tuple[str, str], dict[int, WrittenSummary]] = defaultdict(dict)
    for one in context.snapshot.tensorflow:
        for summary in one.summaries:
            curves[summary.folder, summary.name][one.rank] = summary
    mixed = [by_rank for by_rank in curves.values() if _is_mixed(context, by_rank)]
    if not mixed:
        return
    by_rank = mixed[0]
    first = next(iter(by_rank.values()))
    step, numbers = next(_apart(by_rank))
    yield conclude(
        "D.2.4",
        "curves-mixed",
        cause="tensorflow-result-not-reduced",
        ranks=by_rank,
        values={"name": first.name, "folder": first.folder, "curves": len(mixed)},
        places={rank: context.place(x.where, "called") for rank, x in by_rank.items()},
        facts=[
            Fact(
                kind="points-differ",
                ranks=tuple(by_rank),
                values={"step": step, "numbers": numbers},
            )
        ],
        confidence="likely",
    )


def _is_mixed(context: Context, by_rank: Mapping[int, WrittenSummary]) -> bool:
    ranks = list(by_rank)
    here = all(context.on_one_host(ranks[0], other) for other in ranks)
    return len(ranks) > 1 and here and next(_apart(by_rank), None) is not None


def _apart(by_rank: Mapping[int, WrittenSummary]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """The steps for which all wrote something, and other numbers."""
    points = [dict(zip(one.steps, one.numbers, strict=True)) for one in by_rank.values()]
    for step in points[0]:
        numbers = tuple(of[step] for of in points if step in of)
        if len(numbers) == len(points) and any(
            not math.isclose(a, b, rel_tol=_EQUAL) for a, b in pairwise(numbers)
        ):
            yield step, numbers


def _first(seen: Mapping[int, RankTensorFlow], result: ShownResult) -> dict[int, list[float]]:
    """The first results of each worker; none of a worker that did not have as many."""
    found = {
        rank: [numbers[result.at] for numbers in graph.first if result.at < len(numbers)]
        for rank, one in seen.items()
        for graph in one.results
        if graph.graph == result.graph
    }
    most = max(map(len, found.values()), default=0)
    return {rank: numbers for rank, numbers in found.items() if len(numbers) == most and most}


def _differs(seen: Mapping[int, RankTensorFlow], result: ShownResult) -> bool:
    """Whether the workers have other values of a result."""
    first = _first(seen, result)
    if len(first) < len(seen):
        return False
    return any(
        not math.isclose(a, b, rel_tol=_EQUAL)
        for numbers in zip(*first.values(), strict=True)
        for a, b in pairwise(numbers)
    )


def _values(seen: Mapping[int, RankTensorFlow], result: ShownResult) -> Fact:
    first = _first(seen, result)
    values = tuple(numbers[0] for numbers in first.values())
    return Fact(kind="results-differ", ranks=tuple(first), values={"values": values})
