"""Rules about evaluations that weigh samples wrongly: counted twice, or means of uneven parts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Position
from ddt_notebook.model.frameworks import is_barrier
from ddt_notebook.model.partition import LoaderPartition, division
from ddt_notebook.model.shown import Accumulated, RankShown, ShownNumber
from ddt_notebook.program.gradients import divides_by_world
from ddt_notebook.program.iterations import comes_to
from ddt_notebook.program.nodes import names_in

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


#: Ranks may add up in another order; single precision has a relative error of 6e-8.
_RELATIVE = 1e-5
#: A number of fewer digits is near many others.
_DIGITS = 4
#: A mean is far off if it differs by more than this share.
FAR = 0.01


#: The fault card of each kind of mean.
_CAUSES = {
    "mean-of-uneven-batches": "mean-of-uneven-means",
    "mean-of-uneven-ranks": "mean-of-uneven-means",
    "sum-over-own-count": "sum-over-own-count",
    "own-sum-over-all": "metric-not-reduced",
    "sum-of-means": "sum-shown-as-mean",
}


@dataclass(frozen=True)
class _Mean:
    """What a program may show as the mean over all samples.

    Attributes
    ----------
    value
        What it shows.
    true
        The mean over all samples.
    kind
        How the program computes it.
    """

    value: float
    true: float
    kind: Literal[
        "mean-of-uneven-batches",
        "mean-of-uneven-ranks",
        "sum-over-own-count",
        "own-sum-over-all",
        "sum-of-means",
    ]


def uneven_means(context: Context) -> Iterator[Finding]:
    """Report metrics that are sums of the ranks' means or divided by one rank's count, or far off.

    Each rank noted what its evaluation added up, what it gave the other ranks of that, and which
    numbers it wrote after that.
    """
    return (f for f in _uneven_means(context) if f.confidence == "likely")


def slightly_uneven_means(context: Context) -> Iterator[Finding]:
    """Report, as a hint, means of means that stand for different numbers of samples."""
    return (f for f in _uneven_means(context) if f.confidence == "possible")


def _uneven_means(context: Context) -> Iterator[Finding]:
    by_rank = {one.rank: one for one in context.snapshot.shown}
    if context.snapshot.outcome != "ok" or len(by_rank) < len(context.reports) or len(by_rank) < 2:
        return
    sums = list(_sums_of_all(by_rank))
    trues = [true for parts in sums for true in _true_means(parts)]
    for parts in sums:
        apart = _divided(context, parts)
        loop = next(iter(parts.values())).loop
        added = apart and not divides_by_world(context.program, loop)
        for mean in _means(parts, by_rank, divided=apart, added=added):
            shown = {
                rank: number
                for rank, one in by_rank.items()
                for number in one.numbers
                if is_written_for(number, mean.value)
                and not any(is_written_for(number, true) for true in trues)
            }
            if shown:
                yield _mean_finding(context, parts, mean, shown)
                return
        for counts in sums if apart else ():
            for mean, by_own in _own_over_all(by_rank, parts, counts):
                if not any(is_written_for(by_own, true) for true in trues):
                    yield _mean_finding(context, parts, mean, _written(by_rank, by_own))
                    return


def _written(by_rank: Mapping[int, RankShown], number: ShownNumber) -> dict[int, ShownNumber]:
    return {rank: number for rank, one in by_rank.items() if number in one.numbers}


def _own_over_all(
    by_rank: Mapping[int, RankShown],
    parts: Mapping[int, Accumulated],
    counts: Mapping[int, Accumulated],
) -> Iterator[tuple[_Mean, ShownNumber]]:
    """The sums of single ranks, divided by what all ranks counted beside, and the shown numbers.

    The ranks gave each other what they counted, and not the sums, which one object or function
    adds up beside it.
    """
    one, other = parts[min(parts)], counts[min(counts)]
    if one.name == other.name or (one.loop, one.epoch) != (other.loop, other.epoch):
        return
    if one.name.rpartition(".")[0] != other.name.rpartition(".")[0]:
        return
    if not _gave(by_rank, {r: x.total for r, x in counts.items()}, every=True):
        return
    if _gave(by_rank, {r: x.total for r, x in parts.items()}, every=False):
        return
    everything = sum(x.total for x in counts.values())
    if everything <= 0:
        return
    true = sum(x.total for x in parts.values()) / everything
    for rank, part in parts.items():
        value = part.total / everything
        for number in by_rank[rank].numbers:
            if is_written_for(number, value) and not is_written_for(number, true):
                yield _Mean(value, true, "own-sum-over-all"), number


def _gave(by_rank: Mapping[int, RankShown], what: Mapping[int, float], *, every: bool) -> bool:
    """Whether every rank, or any, gave the others its number."""
    gave = (
        any(math.isclose(given, value, rel_tol=_RELATIVE) for given in by_rank[rank].given)
        for rank, value in what.items()
    )
    return all(gave) if every else any(gave)


def _sums_of_all(by_rank: Mapping[int, RankShown]) -> Iterator[dict[int, Accumulated]]:
    """What all ranks added up in the same pass of the same loop."""
    for one in next(iter(by_rank.values())).accumulated:
        key = (one.name, one.loop, one.epoch)
        parts = {
            rank: other
            for rank, shown in by_rank.items()
            for other in shown.accumulated
            if (other.name, other.loop, other.epoch) == key
        }
        if len(parts) == len(by_rank) and all(x.batches and x.samples for x in parts.values()):
            yield parts


def _true_means(parts: Mapping[int, Accumulated]) -> tuple[float, float]:
    """The means over all samples if each batch added a sum over its samples, or their mean."""
    samples = sum(one.samples for one in parts.values())
    return (
        sum(one.total for one in parts.values()) / samples,
        sum(one.weighted for one in parts.values()) / samples,
    )


def _means(
    parts: Mapping[int, Accumulated],
    by_rank: Mapping[int, RankShown],
    *,
    divided: bool,
    added: bool,
) -> Iterator[_Mean]:
    """What may be shown, after what each rank gave the others.

    Parameters
    ----------
    divided
        Whether each rank evaluated other samples.
    added
        Whether also nothing divides by the number of ranks: a sum of means is then no mean.
    """
    of_sums, of_means = _true_means(parts)
    ranks = len(parts)
    batches = sum(one.batches for one in parts.values())

    def gave(what: Mapping[int, float]) -> bool:
        return _gave(by_rank, what, every=True)

    totals = {rank: one.total for rank, one in parts.items()}
    per_batch = {rank: one.total / one.batches for rank, one in parts.items()}
    if all(one.total in (one.batches, one.samples) for one in parts.values()):
        return  # a count
    if gave(totals):
        yield _Mean(sum(totals.values()) / batches, of_means, "mean-of-uneven-batches")
    if gave(per_batch):
        yield _Mean(sum(per_batch.values()) / ranks, of_means, "mean-of-uneven-batches")
        if added:
            yield _Mean(sum(per_batch.values()), of_means, "sum-of-means")
    for what, true in (("total", of_sums), ("weighted", of_means)):
        own = {rank: getattr(one, what) / one.samples for rank, one in parts.items()}
        if gave(own):
            yield _Mean(sum(own.values()) / ranks, true, "mean-of-uneven-ranks")
            if added:
                yield _Mean(sum(own.values()), true, "sum-of-means")
        whole = {rank: getattr(one, what) for rank, one in parts.items()}
        counts = {float(one.samples) for one in parts.values()}
        if not divided or gave({r: float(one.samples) for r, one in parts.items()}):
            continue
        if gave(whole):
            for count in sorted(counts):
                yield _Mean(sum(whole.values()) / count, true, "sum-over-own-count")
    own_batches = {rank: float(one.batches) for rank, one in parts.items()}
    if divided and gave(totals) and not gave(own_batches):
        for count in sorted({*own_batches.values()}):
            yield _Mean(sum(totals.values()) / count, of_means, "sum-over-own-count")


def _divided(context: Context, parts: Mapping[int, Accumulated]) -> bool:
    """Whether each rank evaluated other samples, as far as they have an index or content."""
    found: dict[int, LoaderPartition] = {}
    for partition in context.snapshot.partition:
        for loader in partition.loaders:
            one = parts.get(partition.rank)
            if one is not None and loader.last is not None and loader.last.where == one.loop:
                found[partition.rank] = loader
    if len(found) < len(parts):
        return False
    if all(loader.indexed and not loader.uncounted for loader in found.values()):
        seen = division(found)
        return seen.overlap <= seen.padding
    contents = [set(loader.epochs[-1].content) for loader in found.values()]
    return all(contents) and not set.intersection(*contents)


def is_written_for(shown: ShownNumber, value: float) -> bool:
    """Whether a number was written for a value, as it is or in per cent."""
    digits = re.sub(r"e.*|\D", "", shown.number, flags=re.IGNORECASE).lstrip("0")
    if len(digits) < _DIGITS or not math.isfinite(value):
        return False
    number = float(shown.number)
    step = 10.0 ** (math.floor(math.log10(abs(number))) + 1 - len(digits)) if number else 1.0
    near = max(0.51 * step, abs(number) * _RELATIVE)
    return any(abs(scaled - number) <= near for scaled in (value, 100 * value))


def _mean_finding(
    context: Context,
    parts: Mapping[int, Accumulated],
    mean: _Mean,
    shown: Mapping[int, ShownNumber],
) -> Finding:
    ranks = sorted(shown)
    wrong = mean.kind in ("sum-over-own-count", "own-sum-over-all", "sum-of-means")
    far = abs(mean.value - mean.true) > FAR * abs(mean.true)
    places = {rank: context.place(shown[rank].where, "reads") for rank in ranks}
    samples = tuple(one.samples for one in parts.values())
    return conclude(
        "D.2.4",
        mean.kind,
        cause=_CAUSES[mean.kind],
        ranks=ranks,
        values={
            "line": shown[ranks[0]].where.line,
            "text": shown[ranks[0]].text,
            "shown": mean.value,
            "mean": mean.true,
        },
        places={rank: place for rank, place in places.items() if place is not None},
        facts=[
            Fact(kind="samples-evaluated", ranks=tuple(parts), values={"samples": samples}),
            Fact(
                kind="added-up",
                place=context.place(next(iter(parts.values())).loop, "loops"),
                values={"name": next(iter(parts.values())).name},
            ),
            *_exchanged_at(context, ranks[0], parts[ranks[0]], shown[ranks[0]].where),
        ],
        confidence="likely"
        if wrong or (far and mean.kind == "mean-of-uneven-ranks")
        else "possible",
        op="all_reduce",
    )


def _exchanged_at(
    context: Context, rank: int, part: Accumulated, shown: Position
) -> Iterator[Fact]:
    """Yield the line between a loop and what shows its result that exchanges the result."""
    loop = part.loop
    if loop is None:
        return
    function = loop.file, loop.function
    lines = {
        call.where: call
        for call in context.reports[rank].calls
        if call.where is not None
        and (call.where.file, call.where.function) == function
        and loop.line < call.where.line
        and (call.where.line <= shown.line or (shown.file, shown.function) != function)
        and call.kind == "collective"
        and not is_barrier(call.op)
        and all(math.prod(shape) <= _FEW_ELEMENTS for shape in call.shapes)
        and _names(context, call.where, part.name)
    }
    if len(lines) == 1:
        (where,) = lines
        values = {"op": lines[where].op}
        yield Fact(kind="exchanged-at", place=context.place(where, "called"), values=values)


def _names(context: Context, where: Position, name: str) -> bool:
    statement = context.program.statement_at(where)
    return statement is not None and name.partition(".")[0].partition("[")[0] in names_in(statement)


RULES = (uneven_means,)
HINTS = (padded_evaluations, slightly_uneven_means)
