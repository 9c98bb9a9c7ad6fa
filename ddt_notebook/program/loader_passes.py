"""Compares how many batches the loaders of two ranks gave in the same pass."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.model import Position
from ddt_notebook.model.partition import RankPartition


def uneven_passes(one: RankPartition, other: RankPartition) -> Iterator[tuple[Position, int, int]]:
    """The line that made a loader, and its batches on each rank in its first uneven pass.

    A line may make a new loader for each pass, with other data on each rank. A pass of training
    counts if it came to its end on the rank that got fewer batches.
    """
    theirs = {loader.name: loader for loader in other.loaders}
    for loader in one.loaders:
        same = theirs.get(loader.name)
        if same is None or loader.made_at is None or loader.made_at != same.made_at:
            continue
        passes = {epoch.number: epoch for epoch in same.epochs if epoch.run == other.run}
        for epoch in loader.epochs:
            match = passes.get(epoch.number)
            if match is None or epoch.run != one.run or not (epoch.trained and match.trained):
                continue
            fewer = min(epoch, match, key=lambda one: one.batches)
            if epoch.batches != match.batches and fewer.complete:
                yield loader.made_at, epoch.batches, match.batches
                break
