"""Rules about values of one rank that are shown or used as those of all ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import combinations
from operator import or_

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.partition import LoaderPartition, unpack_indices
from ddt_notebook.model.shown import RankShown, ShownValue
from ddt_notebook.program.parse import Document
from ddt_notebook.program.result_use import Use
from ddt_notebook.program.sharded_values import ShardedValue, ShardedValues, slices_by_rank

from .data import NEARLY_ALL

#: Words by which a line of output shows its reader that a value is of one rank, or of all ranks.
#: They are searched in what was written, or in a string literal that is written, and never in names
#: or comments: nothing else says for what the reader will take the value.
_LOCAL = re.compile(
    r"(?<![a-z])(rank|local|shard|own|mine|my|partial|worker|share|subset|fold)(?![a-z])",
    re.IGNORECASE,
)
_GLOBAL = re.compile(
    r"(?<![a-z])(global(?!_(step|batch|rank|epoch|iter))|overall|across"
    r"|all (the )?(ranks|workers|processes|gpus|devices))(?![a-z])",
    re.IGNORECASE,
)
_DECIMAL = re.compile(r"-?\d+\.\d+")
#: Means of all ranks that are nearer to a rank's own value may have been written in its place. The
#: share of the value; chosen, not measured.
_APART = 0.005


def says_whose(text: str) -> bool:
    """Whether a line of output says that its numbers are those of one rank."""
    return _LOCAL.search(text) is not None


def shown_values(context: Context) -> Iterator[Finding]:
    """Report values of an evaluation on divided data that some ranks show as that of all.

    Each rank noted what it wrote and from which tensors it had read it.
    """
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or len(snapshot.ranks) < 2:
        return
    nothing = {rank: RankShown(rank=rank) for rank in context.reports}
    by_rank = nothing | {one.rank: one for one in snapshot.shown}
    if not all(one.complete for one in by_rank.values()):
        return  # a line that a record does not have may have written on that rank, too
    seen: dict[tuple[str, int], dict[int, ShownValue]] = {}
    for rank, one in by_rank.items():
        for value in one.values:
            seen.setdefault((value.where.file, value.where.line), {}).setdefault(rank, value)
    for values in seen.values():
        where = next(iter(values.values())).where
        if all(where in one.wrote for one in by_rank.values()):
            continue  # each rank shows its own
        if _by_branches(values, seen.values(), len(by_rank)):
            continue
        if any(says_whose(value.text) for value in values.values()):
            continue
        if not all(_is_the_ranks_own(by_rank, rank, value) for rank, value in values.items()):
            continue
        if all(_is_of_a_share(context, by_rank, value) for value in values.values()):
            yield _shown_finding(context, values)
            return


def _by_branches(
    values: Mapping[int, ShownValue], lines: Iterable[Mapping[int, ShownValue]], ranks: int
) -> bool:
    """Whether the other ranks show the same value of their own in another branch."""
    first = next(iter(values.values()))
    showing = set(values)
    for line in lines:
        other = next(iter(line.values()))
        same_function = (other.where.file, other.where.function) == (
            first.where.file,
            first.where.function,
        )
        if same_function and other.taken == first.taken and not set(line) & set(values):
            showing |= set(line)
    return len(showing) == ranks


def _is_the_ranks_own(by_rank: Mapping[int, RankShown], rank: int, value: ShownValue) -> bool:
    """Whether a value is certainly one rank's, though the ranks exchanged other numbers before.

    What the ranks read in the same line has other values on other ranks, and another mean, which
    is not written beside it.
    """
    if not value.beside:
        return True
    found = {
        other: (own.results[value.form], own.samples)
        for other, one in by_rank.items()
        for own in one.own
        if own.taken == value.taken and value.form in own.results
    }
    if len(found) < len(by_rank) or len({result for result, _ in found.values()}) == 1:
        return False
    results = [result for result, _ in found.values()]
    samples = sum(count for _, count in found.values())
    means = [sum(results), sum(results) / len(results)]
    means += [sum(x * count for x, count in found.values()) / samples] if samples else []
    written = [float(number) for number in _DECIMAL.findall(value.text)]
    beside = [one for one in written if abs(one - value.value) > _APART * abs(value.value)]
    return not any(
        abs(scale * mean - one) <= _APART * abs(one)
        for mean in means
        for one in (*beside, value.value)
        for scale in (1, 100)
    )


def _is_of_a_share(context: Context, by_rank: Mapping[int, RankShown], value: ShownValue) -> bool:
    """Whether all ranks evaluated, each on a part of the data."""
    if value.loop is not None:
        found = [_evaluated_on(context, rank, value) for rank in by_rank]
        loaders = [loader for loader in found if loader is not None]
        if len(loaders) < len(found):
            return False
        if all(loader.indexed for loader in loaders):
            indexed = [unpack_indices(loader.handed_out) for loader in loaders]
            everything = reduce(or_, indexed)
            return max(p.bit_count() for p in indexed) < NEARLY_ALL * everything.bit_count()
        return _read_other_samples(loaders)
    return fed_by_hand(context, by_rank)


def _evaluated_on(context: Context, rank: int, value: ShownValue) -> LoaderPartition | None:
    """Return the loader with which a rank evaluated in the same loop; None for none."""
    for partition in context.snapshot.partition:
        for loader in partition.loaders if partition.rank == rank else ():
            last = loader.last
            if last is not None and last.where == value.loop and not last.trained:
                return loader
    return None


def _read_other_samples(loaders: Iterable[LoaderPartition]) -> bool:
    """Whether ranks read different samples without an index, by content.

    Each rank read the same ones in two passes. So no random numbers make the samples differ, as
    those of an augmentation do.
    """
    seen: list[set[int]] = []
    for loader in loaders:
        passes = [set(one.content) for one in loader.epochs if not one.trained]
        if not passes or passes[-1] not in passes[:-1] or not passes[-1]:
            return False
        seen.append(passes[-1])
    return not any(one & other for one, other in combinations(seen, 2))


def fed_by_hand(context: Context, by_rank: Mapping[int, RankShown]) -> bool:
    """Whether ranks evaluated on different parts of data that the program cut itself."""
    inputs = [one.inputs for one in by_rank.values()]
    known = min(map(len, inputs))
    if not known:
        return False
    contents = {tuple(fed.content for fed in one[:known]) for one in inputs}
    if len(contents) < len(inputs):
        return False
    # parts of the same memory at different places were cut from the same data
    wholes = {tuple(fed.storage_bytes for fed in one[:known]) for one in inputs}
    begins = {tuple(fed.offset for fed in one[:known]) for one in inputs}
    cut = len(wholes) == 1 and all(next(iter(wholes))) and len(begins) == len(inputs)
    return cut or slices_by_rank(context.program)


def _shown_finding(context: Context, values: Mapping[int, ShownValue]) -> Finding:
    ranks = sorted(values)
    places = {rank: context.place(values[rank].where) for rank in ranks}
    first = values[ranks[0]]
    return conclude(
        "D.2.4",
        "writes-own-share",
        cause="metric-not-reduced",
        ranks=ranks,
        values={"line": first.where.line, "text": first.text},
        places={rank: place for rank, place in places.items() if place is not None},
        facts=[
            Fact(kind="value-read", place=context.place(first.taken, "reads")),
            Fact(kind="data-divided"),
            Fact(kind="other-numbers-exchanged" if first.beside else "no-collective-before"),
        ],
        confidence="likely",
        op="all_reduce",
    )


def local_values(context: Context) -> Iterator[Finding]:
    """Report metrics of an evaluation on divided data in which one rank's part stands for all.

    A value of a training step may be intended as an estimate: it is a hint if its text is about all
    ranks.
    """
    if any(True for _ in shown_values(context)):
        return
    hint: Finding | None = None
    for value, uses in _shown(context):
        if not value.trains:
            yield _finding(context, uses, "metric-not-reduced")
            return
        if _GLOBAL.search(" ".join(use.text for use in uses.values())):
            hint = hint or _finding(context, uses, "local-loss-as-global")
    if hint is not None:
        yield hint


def _shown(context: Context) -> Iterator[tuple[ShardedValue, dict[int, Use]]]:
    """Yield values of a rank's shard that ranks show for all or use in decisions."""
    snapshot = context.snapshot
    states = {report.state for report in snapshot.ranks}
    if snapshot.outcome != "ok" or states != {"finished"} or len(snapshot.ranks) < 2:
        return
    cell = Document.of(snapshot.cell).name
    values = ShardedValues(context.program)
    for value in values:
        for name in value.names:
            uses: dict[int, Use] = {}
            for rank in context.reports:
                use = next(filter(_counts, values.uses(value, name, rank)), None)
                if use is not None and use.place.file == cell:
                    uses[rank] = use
            printed = {rank: use for rank, use in uses.items() if use.kind == "print"}
            decided = {rank: use for rank, use in uses.items() if use.kind == "decision"}
            if decided or 0 < len(printed) < len(context.reports):
                yield value, decided or printed


def _counts(use: Use) -> bool:
    """Whether a use treats the value as that of all ranks."""
    if use.kind == "print":
        return not _LOCAL.search(use.text)
    # `if correct:` tests whether there is a value, not how good it is
    return use.kind == "decision" and use.compares and use.stops_or_saves


def _finding(context: Context, uses: dict[int, Use], cause: str) -> Finding:
    ranks = sorted(uses)
    use = uses[ranks[0]]
    return conclude(
        "D.2.4",
        "prints-own-share" if use.kind == "print" else "decides-by-own-share",
        cause=cause,
        ranks=ranks,
        values={
            "what": "metric" if cause == "metric-not-reduced" else "loss",
            "line": use.place.line,
        },
        places=dict.fromkeys(ranks, use.place),
        facts=[Fact(kind="data-divided"), Fact(kind="no-collective-before")],
        confidence="likely" if cause == "metric-not-reduced" else "possible",
        op="all_reduce",
    )


RULES = (shown_values, local_values)
