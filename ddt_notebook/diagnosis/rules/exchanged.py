"""Rules about what ranks gave to collectives of their own code, and what became of the results."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Position
from ddt_notebook.model.exchanged import Exchanged, UsedValue
from ddt_notebook.model.partition import LoaderPartition, division
from ddt_notebook.model.shown import ShownNumber
from ddt_notebook.program.loop_means import mean_of_a_loop
from ddt_notebook.program.own_rows import divided_by_rows

from .evaluations import FAR, is_written_for, uneven_means
from .metrics import fed_by_hand
from .reading import broadcasts
from .used_modules import students_agree

#: Results of sums in single precision, added up in any order.
_RELATIVE = 1e-5
#: Words by which a line of output shows its reader that a number is a mean, or a sum.
_MEAN = re.compile(r"(?<![a-z])(mean|avg|averaged?)(?![a-z])", re.IGNORECASE)
_SUM = re.compile(r"(?<![a-z])(sum(med)?|total)(?![a-z])", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+\.\d+")
#: Parts that differ by less are those of data that cannot be divided evenly.
_UNEVEN = 1.25


def means_of_uneven_parts(context: Context) -> Iterator[Finding]:
    """Report means of ranks, over different numbers of values each, that are averaged."""
    if any(True for _ in uneven_means(context)):
        return
    together = list(_together(context))
    for calls in together:
        first = next(iter(calls.values()))
        same_line = [
            other
            for other in together
            if (one := next(iter(other.values()))).where == first.where
            and one.members == first.members
        ]
        if any(one.of_loss for one in calls.values()) or _in_each_step(same_line):
            continue
        for element in range(len(first.given)):
            counts = _uneven_counts(calls, element)
            if not counts or any(_uneven_counts(o, element) != counts for o in same_line):
                continue  # parts of a data set have the same size each time
            means = {rank: one.given[element] for rank, one in calls.items()}
            plain = sum(means.values()) / len(means)
            weighted = sum(means[rank] * counts[rank] for rank in means) / sum(counts.values())
            if abs(plain - weighted) <= FAR * abs(weighted):
                continue
            used = {
                rank: place
                for rank, one in calls.items()
                if (place := _used_as(one, plain, element)) is not None
            }
            if used:
                yield conclude(
                    "D.2.4",
                    "mean-of-uneven-parts",
                    cause="mean-of-uneven-means",
                    ranks=calls,
                    values={"shown": plain, "mean": weighted, "op": first.op},
                    places={
                        rank: context.place(one.where, "called") for rank, one in calls.items()
                    },
                    facts=[
                        *(
                            Fact(kind="mean-of", ranks=(rank,), values={"counted": counts[rank]})
                            for rank in calls
                        ),
                        _taken_at(context, used),
                    ],
                    confidence="likely",
                    op=first.op,
                )
                return


def _uneven_counts(calls: Mapping[int, Exchanged], element: int) -> dict[int, int]:
    """Of how many numbers each rank gave the mean; empty if of equally many, or if not known."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, one in calls.items():
        for mean in one.means:
            if mean.element == element:
                found[mean.name].setdefault(rank, mean.count)
    known = [counts for counts in found.values() if len(counts) == len(calls)]
    if not known or any(len({*counts.values()}) == 1 for counts in known):
        return {}
    counts = known[0]
    return counts if max(counts.values()) >= _UNEVEN * min(counts.values()) else {}


def _in_each_step(calls: list[dict[int, Exchanged]]) -> bool:
    """Whether a line is called as often as there are backward passes: it shows estimates."""
    first, last = next(iter(calls[0].values())), next(iter(calls[-1].values()))
    passes = last.backwards - first.backwards
    return 0 < passes <= last.number - first.number


def _used_as(one: Exchanged, value: float, element: int) -> Position | None:
    """The line that read or wrote a value which the result gives."""
    if not one.result or one.reduce_op not in ("SUM", "AVG"):
        return None
    for read in one.reads:
        if _near(read.value, value):
            return read.where
    return next((n.where for n in one.written if is_written_for(n, value)), None)


def sums_over_own_counts(context: Context) -> Iterator[Finding]:
    """Report sums of all ranks that a rank divides by its own count of samples."""
    if any(True for _ in uneven_means(context)):
        return
    samples = _own_samples(context)
    for calls in _together(context):
        if any(one.reduce_op != "SUM" for one in calls.values()):
            continue
        for element in range(len(next(iter(calls.values())).given)):
            for name in next(iter(calls.values())).counts:
                found = _over_own_count(context, calls, element, name, samples)
                if found is not None:
                    yield found
                    return


def _over_own_count(
    context: Context,
    calls: Mapping[int, Exchanged],
    element: int,
    name: str,
    samples: Callable[[int, int], bool],
) -> Finding | None:
    counts = {rank: one.counts[name] for rank, one in calls.items() if name in one.counts}
    if len(counts) < len(calls) or _exchanged_too(context, counts):
        return None
    total = sum(one.given[element] for one in calls.values())
    are_samples = all(samples(rank, count) for rank, count in counts.items())
    are_shares = all(_is_share(one.given[element], counts[rank]) for rank, one in calls.items())
    shown: dict[int, ShownNumber] = {}
    for rank, one in calls.items():
        value = total / counts[rank]
        if value.is_integer() or not _near(one.result[element], total):
            continue
        for number in one.written:
            per_cent = are_shares and value > 1 and _near_written(number, 100 * value)
            if per_cent or (are_samples and is_written_for(number, value)):
                shown[rank] = number
    if not shown:
        return None
    ranks = sorted(shown)
    first = calls[ranks[0]]
    places = {rank: context.place(shown[rank].where, "reads") for rank in ranks}
    return conclude(
        "D.2.4",
        "sum-over-own-count",
        cause="sum-over-own-count",
        ranks=ranks,
        values={
            "line": shown[ranks[0]].where.line,
            "text": shown[ranks[0]].text,
            "shown": total / counts[ranks[0]],
            "mean": total / sum(counts.values()),
        },
        places={rank: place for rank, place in places.items() if place is not None},
        facts=[
            Fact(kind="reduced-at", place=context.place(first.where, "called")),
            Fact(
                kind="own-counts",
                ranks=tuple(counts),
                values={"name": name, "counts": tuple(counts.values())},
            ),
            *(
                Fact(kind="read-at", place=context.place(read.where, "reads"))
                for read in first.reads[:1]
            ),
        ],
        confidence="likely",
        op=first.op,
    )


def sums_over_own_rows(context: Context) -> Iterator[Finding]:
    """Report sums of the samples of all ranks that are divided by the samples of one rank.

    Without data parallelism, ranks may add up parts of the same samples.
    """
    if not students_agree(context):
        return
    for calls in _together(context):
        first = next(iter(calls.values()))
        if any(one.reduce_op != "SUM" for one in calls.values()):
            continue
        names = set.intersection(*({s.name for s in one.sums} for one in calls.values()))
        found = divided_by_rows(context.program, first.where, names) if names else None
        if found is None or len({one.given for one in calls.values()}) == 1:
            continue
        name, place = found
        rows = {r: next(s.count for s in one.sums if s.name == name) for r, one in calls.items()}
        yield conclude(
            "D.2.4",
            "sum-over-own-rows",
            cause="sum-over-own-count",
            ranks=calls,
            values={"ratio": sum(rows.values()) / rows[min(rows)]},
            places=dict.fromkeys(calls, place),
            facts=[
                Fact(kind="reduced-at", place=context.place(first.where, "called")),
                Fact(
                    kind="own-counts",
                    ranks=tuple(rows),
                    values={"name": f"len({name})", "counts": tuple(rows.values())},
                ),
            ],
            confidence="likely",
            op=first.op,
        )
        return


def _is_share(part: float, count: int) -> bool:
    return part.is_integer() and 0 <= part <= count


def _near_written(number: ShownNumber, value: float) -> bool:
    """Whether a number was written for a value in per cent."""
    return float(number.number) > 100 and is_written_for(number, value)


def _exchanged_too(context: Context, counts: Mapping[int, int]) -> bool:
    """Whether ranks also gave their counts to the others, or have received them from a collective.

    A meter that was synchronized before holds the count of all ranks.
    """
    return any(
        _near(number, counts[one.rank])
        for one in context.snapshot.exchanged
        if one.rank in counts
        for value in one.values
        for number in (*value.given, *value.result)
    )


def _own_samples(context: Context) -> Callable[[int, int], bool]:
    """A function that returns whether a number is that of the samples in a rank's own pass.

    Passes of earlier cells do not count, since their loaders may still exist.
    """
    found: dict[int, set[int]] = defaultdict(set)
    loaders: dict[str, dict[int, LoaderPartition]] = defaultdict(dict)
    runs: dict[int, int] = {}
    for partition in context.snapshot.partition:
        runs[partition.rank] = partition.run
        for loader in partition.loaders:
            loaders[loader.name][partition.rank] = loader
    for ranks in loaders.values():
        if len(ranks) < 2 or not all(one.indexed and not one.uncounted for one in ranks.values()):
            continue
        seen = division(ranks)
        if seen.overlap > seen.padding:
            continue
        for rank, loader in ranks.items():
            found[rank] |= {
                epoch.samples
                for epoch in loader.epochs
                if epoch.complete and epoch.samples != epoch.batches and epoch.run == runs[rank]
            }
    return lambda rank, count: count in found[rank]


def sums_of_losses(context: Context) -> Iterator[Finding]:
    """Report, as a hint, sums of the ranks' mean losses that are shown as the loss.

    It is a finding if the text says that it shows a mean.
    """
    return (found for found in _sums_of_losses(context) if found.confidence == "possible")


def sums_of_losses_as_means(context: Context) -> Iterator[Finding]:
    """Report sums of the ranks' mean losses that are shown with the name of a mean."""
    return (found for found in _sums_of_losses(context) if found.confidence == "likely")


def _sums_of_losses(context: Context) -> Iterator[Finding]:
    losses = {one.rank: one.loss for one in context.snapshot.training}
    for calls in _together(context):
        first = next(iter(calls.values()))
        means = all(
            (loss := losses.get(rank)) is not None and loss.reduction == "mean" and loss.factor == 1
            for rank in calls
        )
        if not means or first.reduce_op != "SUM" or len(first.given) > 1 or len(calls) < 2:
            continue
        if not all(one.of_loss for one in calls.values()):
            continue
        total = sum(one.given[0] for one in calls.values())
        shown = _written_sums(calls, total) or _averaged_sums(calls)
        if not shown:
            continue
        number, total = shown[min(shown)]
        text, mean = number.text, total / len(calls)
        places = {rank: context.place(one.where, "reads") for rank, (one, _) in shown.items()}
        yield conclude(
            "D.2.4",
            "sum-of-means",
            cause="sum-shown-as-mean",
            ranks=shown,
            values={
                "line": number.where.line,
                "text": text,
                "shown": total,
                "mean": mean,
            },
            places={rank: place for rank, place in places.items() if place is not None},
            facts=[Fact(kind="reduced-at", place=context.place(first.where, "called"))],
            confidence="likely" if _MEAN.search(text) else "possible",
            op=first.op,
        )
        return


def sums_of_loop_means(context: Context) -> Iterator[Finding]:
    """Report sums of what each rank averaged over a loop on inputs of its own, shown as a mean.

    The program feeds DDP itself, without a loader, and without gradients.
    """
    shown = {one.rank: one for one in context.snapshot.shown}
    if any(True for _ in uneven_means(context)) or any(True for _ in _sums_of_losses(context)):
        return
    for calls in _together(context):
        first = next(iter(calls.values()))
        if first.reduce_op != "SUM" or len(first.given) > 1 or len(calls) < 2:
            continue
        if any(one.given[0].is_integer() or rank not in shown for rank, one in calls.items()):
            continue
        total = sum(one.given[0] for one in calls.values())
        written = _written_sums(calls, total)
        if not written or not fed_by_hand(context, {rank: shown[rank] for rank in calls}):
            continue
        place = mean_of_a_loop(context.program, first.where, first.op)
        if place is None:
            continue
        number, _ = written[min(written)]
        places = {rank: context.place(one.where, "reads") for rank, (one, _) in written.items()}
        yield conclude(
            "D.2.4",
            "sum-of-means",
            cause="sum-shown-as-mean",
            ranks=written,
            values={
                "line": number.where.line,
                "text": number.text,
                "shown": total,
                "mean": total / len(calls),
            },
            places={rank: place for rank, place in places.items() if place is not None},
            facts=[
                Fact(kind="reduced-at", place=context.place(first.where, "called")),
                Fact(kind="averaged-in-loop", place=place),
            ],
            confidence="likely",
            op=first.op,
        )
        return


def _written_sums(
    calls: Mapping[int, Exchanged], total: float
) -> dict[int, tuple[ShownNumber, float]]:
    """What each rank wrote for the sum, with the sum; empty if a rank wrote the mean, too."""
    mean = total / len(calls)
    written = [(rank, number) for rank, one in calls.items() for number in one.written]
    if any(is_written_for(number, mean) for _, number in written):
        return {}
    return {
        rank: (number, total)
        for rank, number in written
        if is_written_for(number, total) and not _says_sum(number.text, mean)
    }


def _averaged_sums(calls: Mapping[int, Exchanged]) -> dict[int, tuple[ShownNumber, float]]:
    """What each rank wrote for a mean of such sums over several steps, with that mean."""
    return {
        rank: (mean.number, mean.value)
        for rank, one in calls.items()
        for mean in one.averaged
        if is_written_for(mean.number, mean.value)
        and not _says_sum(mean.number.text, mean.value / len(calls))
    }


def _says_sum(text: str, mean: float) -> bool:
    """Whether a line of output says that it shows a sum, or shows the mean beside it."""
    beside = (float(number) for number in _NUMBER.findall(text))
    return bool(_SUM.search(text)) or any(math.isclose(n, mean, rel_tol=1e-2) for n in beside)


def gathered_constants(context: Context) -> Iterator[Finding]:
    """Report gathered tensors whose gradient is lost, although a loss uses them.

    It is a hint if the program itself has ended the gradient.
    """
    lines: dict[Position, dict[int, Exchanged]] = defaultdict(dict)
    if context.snapshot.outcome != "ok":
        return
    for one in context.snapshot.exchanged:
        for value in one.values:
            if value.loss is not None:
                lines[value.where].setdefault(one.rank, value)
    for calls in lines.values():
        first = next(iter(calls.values()))
        if {*calls} < {*first.members}:
            continue
        carried = all(one.gradient == "carried" for one in calls.values())
        yield conclude(
            "D.2.5",
            "gathered-without-gradient",
            cause="gathered-without-gradient",
            ranks=calls,
            values={"op": first.op, "line": first.where.line},
            places={rank: context.place(one.where, "called") for rank, one in calls.items()},
            facts=[
                Fact(kind="gradient-carried" if carried else "gradient-stopped"),
                Fact(kind="constant-in-loss", place=context.place(first.loss, "called")),
            ],
            confidence="likely" if carried else "possible",
            op=first.op,
        )
        return


def scheduled_by_parts(context: Context) -> Iterator[Finding]:
    """Report ranks that set their learning rate by what ``reduce`` delivers to another one.

    It is a hint while their rates are equal all the same.
    """
    for calls in _together(context):
        root = next(iter(calls.values())).root
        used: dict[int, UsedValue] = {
            rank: one.scheduled[0] for rank, one in calls.items() if one.scheduled
        }
        other = {rank: one for rank, one in used.items() if rank != root}
        if root not in used or not other:
            continue
        if all(_near(one.value, used[root].value) for one in other.values()):
            continue
        parted = _parted(context)
        if not parted and broadcasts(context):
            continue  # perhaps the rate
        first = calls[root]
        places = {rank: context.place(one.where, "reads") for rank, one in other.items()}
        yield conclude(
            "D.2.4",
            "reduced-elsewhere",
            cause="reduce-read-on-wrong-rank",
            ranks=other,
            values={"label": first.op, "root": root, "line": used[min(other)].where.line},
            places=places,
            facts=[
                Fact(
                    kind="reduced-to",
                    place=context.place(first.where, "called"),
                    values={"root": root},
                ),
                *(
                    Fact(kind="schedules-by", ranks=(rank,), values={"value": one.value})
                    for rank, one in used.items()
                ),
                Fact(kind="others-hold-parts"),
            ],
            confidence="likely" if parted else "possible",
            op=first.op,
        )
        return


def _parted(context: Context) -> bool:
    """Whether learning rates differed between ranks at some step, or replicas parted."""
    if any(group.first_apart is not None for group in replicas.replicas(context.snapshot)):
        return True
    found: dict[tuple[str, int], set[tuple[float, ...]]] = defaultdict(set)
    for training in context.snapshot.training:
        for optimizer in training.optimizers:
            for state in optimizer.states:
                found[optimizer.name, state.step].add(state.rates)
    return any(len(rates) > 1 for rates in found.values())


def _together(context: Context) -> Iterator[dict[int, Exchanged]]:
    """The examined calls that all ranks of a group made together at one line."""
    if context.snapshot.outcome != "ok":
        return
    found: dict[tuple[Position, int, tuple[int, ...]], dict[int, Exchanged]] = defaultdict(dict)
    for rank in context.snapshot.exchanged:
        for one in rank.values:
            if one.given:
                found[one.where, one.number, one.members].setdefault(rank.rank, one)
    for (_, _, members), calls in found.items():
        same = {(one.op, one.reduce_op, one.root, len(one.given)) for one in calls.values()}
        if calls.keys() == {*members} and len(same) == 1:
            yield calls


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_RELATIVE)


def _taken_at(context: Context, used: Mapping[int, Position]) -> Fact:
    return Fact(
        kind="mean-taken-at",
        ranks=tuple(used),
        place=context.place(next(iter(used.values())), "reads"),
    )


RULES = (
    scheduled_by_parts,
    means_of_uneven_parts,
    sums_over_own_counts,
    sums_over_own_rows,
    gathered_constants,
    sums_of_losses_as_means,
    sums_of_loop_means,
)
HINTS = (sums_of_losses,)
