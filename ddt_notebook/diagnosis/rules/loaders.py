"""The input of the rules about data: the loaders of a run, on the ranks that share a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Place
from ddt_notebook.model.partition import Division, LoaderPartition, division, unpack_indices

from .parallel_groups import Team, teams

Loaders = Mapping[int, LoaderPartition]


@dataclass(frozen=True)
class Shared:
    """One loader on the ranks that train a model together."""

    context: Context
    name: str
    team: Team
    loaders: Loaders

    @property
    def division(self) -> Division:
        """The division of its last epoch."""
        return division(self.loaders)

    @property
    def complete(self) -> bool:
        """Whether every rank iterated over the whole loader."""
        return all(loader.epochs[-1].complete for loader in self.loaders.values())

    @property
    def took_all(self) -> bool:
        """Whether every rank took all batches, and perhaps asked for no further one."""
        return all(
            last.complete or 0 < (loader.expected_batches or 0) <= last.batches
            for loader in self.loaders.values()
            for last in loader.epochs[-1:]
        )

    @property
    def trains(self) -> bool:
        """Whether every rank trained on all that it got, and not only on a part of its own."""
        last = [loader.epochs[-1] for loader in self.loaders.values()]
        chosen = {epoch.trained_first for epoch in last if epoch.trained}
        if all(epoch.trained for epoch in last) and len(chosen) == 1 and any(chosen):
            return True
        return all(epoch.trained * len(self.loaders) > epoch.batches for epoch in last)

    def first(self) -> LoaderPartition:
        """Return the loader of the lowest rank."""
        return self.loaders[min(self.loaders)]

    @property
    def handed_out(self) -> int:
        """The indices that any rank got in the last epoch, as bits; see `pack_indices`."""
        return reduce(or_, (unpack_indices(x.handed_out) for x in self.loaders.values()))

    def places(self) -> dict[int, Place]:
        """Return the line of the loop, by rank."""
        return loops(self.context, self.loaders)

    @property
    def random(self) -> bool:
        """Whether samples may repeat by design, so that an overlap shows nothing."""
        return any(x.with_replacement or x.repeated or x.uncounted for x in self.loaders.values())


def shared_loaders(context: Context) -> Iterator[Shared]:
    """Yield the loaders of this run over which ranks that share a model iterated."""
    used = used_loaders(context)
    found = teams(context) if used else []
    for name, loaders in used.items():
        for team in found:
            mine = {rank: loaders[rank] for rank in team.ranks if rank in loaders}
            if len(mine) > 1:
                yield Shared(context, name, team, mine)


def used_loaders(context: Context) -> dict[str, dict[int, LoaderPartition]]:
    """Return the loaders over which ranks iterated in this run, by name and rank."""
    by_name: dict[str, dict[int, LoaderPartition]] = {}
    if context.snapshot.outcome != "ok":
        return by_name
    for partition in context.snapshot.partition:
        for loader in partition.loaders:
            if loader.last is not None and loader.last.run == partition.run and not loader.problem:
                by_name.setdefault(loader.name, {})[partition.rank] = loader
    return by_name


def loops(context: Context, loaders: Loaders) -> dict[int, Place]:
    """Return the line of the last loop over each loader."""
    return {
        rank: place
        for rank, loader in loaders.items()
        if (place := context.place(loader.epochs[-1].where, "loops")) is not None
    }


def samples(loaders: Loaders) -> Fact:
    """Return how many samples each rank got in the last epoch."""
    handed_out = tuple(loader.epochs[-1].samples for loader in loaders.values())
    return Fact(kind="samples-handed-out", ranks=tuple(loaders), values={"samples": handed_out})
