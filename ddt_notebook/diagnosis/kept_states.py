"""Compares what DDP does not keep equal, on all ranks and at the same moments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Position, Snapshot
from ddt_notebook.model.training import KeptSample, KeptState, PlainState

#: What was observed, its number, the steps that had ended, and its line.
Moment = tuple[str, int, int, Position | None]
BEGIN: Moment = ("begin", 0, 0, None)
#: A value that differs at one moment only may be made equal now and then.
_MOMENTS = 2


def moments_of(
    samples: Mapping[int, Sequence[KeptSample]], size: int
) -> dict[Moment, dict[int, tuple[int, ...]]]:
    """The fingerprints on each rank at the moments that all ranks have, in their order."""
    taken = [
        {(s.moment, s.number, s.step, s.where): s.values for s in of_rank}
        for of_rank in samples.values()
    ]
    return {
        moment: dict(zip(samples, rows, strict=True))
        for moment in taken[0]
        if len(rows := [one[moment] for one in taken if moment in one]) == len(taken)
        and all(len(row) == size for row in rows)
    }


def parts(moments: Mapping[Moment, Mapping[int, tuple[int, ...]]], at: int) -> bool:
    """Whether a value was equal on all ranks at first, and was no longer so from some step on."""
    begin = {values[at] for values in moments.get(BEGIN, {}).values()}
    return len(begin) == 1 and stay_apart(moments, at)


def stay_apart(moments: Mapping[Moment, Mapping[int, tuple[int, ...]]], at: int) -> bool:
    """Whether a value differs between ranks at the end, and at some step before."""
    later = [rows for moment, rows in moments.items() if moment[0] != "begin"]
    differ = [len({values[at] for values in rows.values()}) > 1 for rows in later]
    return sum(differ) >= _MOMENTS and differ[-1]


@dataclass(frozen=True)
class Kept:
    """One module on all ranks."""

    ranks: dict[int, KeptState]

    @property
    def first(self) -> KeptState:
        """The record of the lowest rank."""
        return self.ranks[min(self.ranks)]

    @cached_property
    def moments(self) -> dict[Moment, dict[int, tuple[int, ...]]]:
        """The fingerprints on each rank at the moments that all ranks have, in their order."""
        first = self.first
        size = len(first.parameters) + len(first.buffers) + len(first.statistics)
        return moments_of({rank: x.samples for rank, x in self.ranks.items()}, size)

    def apart(self, moment: Moment) -> list[int]:
        """The positions of fingerprints that differ between ranks at a moment."""
        rows = self.moments[moment].values()
        return [at for at, one in enumerate(zip(*rows, strict=True)) if len(set(one)) > 1]

    @property
    def begin(self) -> dict[int, tuple[int, ...]]:
        """The fingerprints before the first forward pass; empty if not known."""
        return self.moments.get(BEGIN, {})

    def moments_of(self, kind: str) -> list[Moment]:
        """The moments of one kind, in their order."""
        return [moment for moment in self.moments if moment[0] == kind]


def kept(snapshot: Snapshot) -> Iterator[Kept]:
    """The modules that every rank had."""
    together: dict[tuple[object, ...], dict[int, KeptState]] = defaultdict(dict)
    for training in snapshot.training:
        counted: Counter[tuple[object, ...]] = Counter()
        for one in training.kept:
            watched = (one.parameters, one.buffers, one.statistics)
            key = (one.name, one.wrapped, watched, one.shapes_digest)
            counted[key] += 1
            together[*key, counted[key]][training.rank] = one
    for ranks in together.values():
        if len(ranks) == len(snapshot.ranks) > 1:
            yield Kept(ranks)


def plain(snapshot: Snapshot) -> Iterator[dict[int, PlainState]]:
    """The objects of the user that every rank had."""
    together: dict[tuple[str, str], dict[int, PlainState]] = defaultdict(dict)
    for training in snapshot.training:
        for one in training.plain:
            together[one.name, one.kind].setdefault(training.rank, one)
    for ranks in together.values():
        alike = len({(one.values, one.shapes) for one in ranks.values()}) == 1
        if alike and len(ranks) == len(snapshot.ranks) > 1:
            yield ranks
