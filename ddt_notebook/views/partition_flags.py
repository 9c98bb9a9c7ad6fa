"""What is odd about how data was divided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..model.partition import Division, LoaderPartition, division
from . import words
from .flags import Flag, ordered
from .places import group

_SAMPLER = "give the loader a DistributedSampler"


def flags(loaders: Mapping[str, Mapping[int, LoaderPartition]]) -> list[Flag]:
    """All that is odd about the loaders, the gravest first."""
    found: list[Flag] = []
    for name, by_rank in loaders.items():
        seen = division(by_rank)
        short = words.middle(name, 60)
        if seen.ranks:
            found += _of_loader(short, by_rank, seen)
        found += _of_sampler(short, by_rank)
    return ordered(found)


def _of_loader(name: str, by_rank: Mapping[int, LoaderPartition], seen: Division) -> list[Flag]:
    found = [*_overlap(name, by_rank, seen)]
    if problem := next((x.problem for x in by_rank.values() if x.problem), ""):
        found.append(Flag("hint", f"some batches of {name} could not be counted: {problem}"))
    if seen.gaps:
        dropped = any(loader.drop_last for loader in by_rank.values())
        missing = sum(loader.replicas is not None for loader in by_rank.values())
        text = (
            f"{words.count(seen.gaps, 'sample')} of {name} went to no rank "
            f"(index {_indices(seen.first_gap)}"
        )
        if dropped:
            found.append(Flag("hint", f"{text}): drop_last leaves them out"))
        elif missing and len(seen.ranks) < max(loader.replicas or 0 for loader in by_rank.values()):
            found.append(Flag("warning", f"{text}): only {words.ranks(seen.ranks)} iterated"))
        else:
            found.append(Flag("warning", f"{text})"))
    if seen.uneven and not seen.joined:
        counts = sorted(seen.batches.items(), key=lambda item: item[1])
        (fewest, low), (most, high) = counts[0], counts[-1]
        when = f" in epoch {seen.epoch}" if seen.epoch else ""
        text = (
            f"{name} gave rank {fewest} {words.count(low, 'batch')} and rank {most} {high:,}"
            f"{when}: the ranks with more then wait in a collective for the others; make the "
            "counts even, or use join()"
        )
        found.append(Flag("warning", text))
    same = [rank for rank, loader in by_rank.items() if loader.same_order]
    if same:
        fixed = {x.last.sampler_epoch for x in by_rank.values() if x.last is not None} - {None}
        advice = "call sampler.set_epoch(epoch) before each epoch" if fixed else "check its seed"
        text = f"{name} gave the same order in every epoch on {words.ranks(same)}: {advice}"
        found.append(Flag("warning", text))
    return found


def _overlap(name: str, by_rank: Mapping[int, LoaderPartition], seen: Division) -> list[Flag]:
    indexed = all(loader.indexed for loader in by_rank.values())
    if not indexed:
        if not seen.overlap:
            return []
        what = "the same samples" if seen.identical else f"{seen.overlap} equal samples"
        text = (
            f"{name}: ranks got {what} at the start of the epoch, by their content: divide the "
            "data in the data set's __iter__ by rank and world size"
        )
        return [Flag("warning", text)]
    if seen.overlap <= seen.padding:
        return []
    if seen.same_content is False:
        text = (
            f"{name}: ranks got samples of the same index with different content: each rank has "
            "data of its own, or changes it at random"
        )
        return [Flag("hint", text)]
    if seen.identical:
        text = (
            f"{words.ranks(seen.ranks)} each got the same {words.count(seen.covered, 'sample')} of "
            f"{name}: {_SAMPLER}, unless this is an evaluation that every rank repeats"
        )
        return [Flag("warning", text)]
    text = (
        f"{words.count(seen.overlap, 'sample')} of {name} went to more than one rank "
        f"(index {_indices(seen.first_overlap)})"
    )
    if _divides(by_rank) and _shared_evenly(by_rank):
        replicas = next(iter(by_rank.values())).replicas
        parts = f"the sampler makes {replicas} parts for {words.count(len(by_rank), 'rank')}"
        return [Flag("hint", f"{text}: {parts}, as with tensor parallelism")]
    return [Flag("warning", f"{text}: {_SAMPLER}" if not _divides(by_rank) else text)]


def _divides(by_rank: Mapping[int, LoaderPartition]) -> bool:
    return all(loader.replicas is not None for loader in by_rank.values())


def _shared_evenly(by_rank: Mapping[int, LoaderPartition]) -> bool:
    """Whether several ranks get the same part on purpose, as in tensor parallel groups."""
    parts = Counter(loader.replica for loader in by_rank.values())
    replicas = {loader.replicas for loader in by_rank.values()}
    return replicas == {len(parts)} and len(set(parts.values())) == 1


def _of_sampler(name: str, by_rank: Mapping[int, LoaderPartition]) -> list[Flag]:
    """Ranks whose samplers all take them for the same one."""
    if not _divides(by_rank) or _shared_evenly(by_rank):
        return []
    alike = group(by_rank, lambda rank: (by_rank[rank].replica, by_rank[rank].replicas))
    return [
        Flag(
            "warning",
            f"the samplers of {name} on {words.ranks(ranks)} all take their rank for {replica} of "
            f"{replicas}: leave num_replicas and rank out, or pass dist.get_rank()",
        )
        for (replica, replicas), ranks in alike
        if len(ranks) > 1
    ]


def _indices(first: tuple[int, ...]) -> str:
    return ", ".join(map(str, first)) + (", …" if len(first) == 8 else "")
