"""Compares what DDP does not keep equal, on all ranks and at the same moments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Position, Snapshot
from ddt_notebook.model.training import KeptState

#: What was observed, its number, the steps that had ended, and its line.
Moment = tuple[str, int, int, Position | None]
BEGIN: Moment = ("begin", 0, 0, None)


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
        taken = [
            {(s.moment, s.number, s.step, s.where): s.values for s in x.samples}
            for x in self.ranks.values()
        ]
        size = len(self.first.parameters) + len(self.first.buffers)
        return {
            moment: dict(zip(self.ranks, rows, strict=True))
            for moment in taken[0]
            if len(rows := [one[moment] for one in taken if moment in one]) == len(taken)
            and all(len(row) == size for row in rows)
        }

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
            key = (one.name, one.wrapped, one.parameters, one.buffers, one.shapes_digest)
            counted[key] += 1
            together[*key, counted[key]][training.rank] = one
    for ranks in together.values():
        if len(ranks) == len(snapshot.ranks) > 1:
            yield Kept(ranks)
