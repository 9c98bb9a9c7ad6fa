"""In which pass the loaders of two ranks gave other numbers of batches."""

from __future__ import annotations

import pytest

from ddt_notebook.model import Position
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.program.loader_passes import uneven_passes

MADE = Position(file="cell[1]", line=3)
LOOP = Position(file="cell[1]", line=9)


def of(rank: int, *batches: int, complete: bool = True, trained: bool = True) -> RankPartition:
    """A rank whose last pass may not have come to its end."""
    epochs = tuple(
        Epoch(
            number=number,
            run=1,
            batches=count,
            samples=count,
            complete=complete or number < len(batches),
            trained=count if trained else 0,
            where=LOOP,
        )
        for number, count in enumerate(batches, 1)
    )
    loader = LoaderPartition(name="loader", dataset="list", made_at=MADE, epochs=epochs)
    return RankPartition(rank=rank, run=1, loaders=(loader,))


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (of(0, 3, 2, 2), of(1, 3, 3, 1, complete=False), [(MADE, 2, 3)]),
        (of(0, 3, 2), of(1, 3, 3, complete=False), [(MADE, 2, 3)]),
        (of(0, 3, 2, complete=False), of(1, 3, 3), []),  # it may have come to a third batch
        (of(0, 3, 3), of(1, 3, 3), []),
        (of(0, 3, 2), of(1, 3), []),
        (of(0, 2, trained=False), of(1, 3, trained=False), []),
    ],
)
def test_the_first_uneven_pass(
    one: RankPartition, other: RankPartition, found: list[tuple[Position, int, int]]
) -> None:
    assert [*uneven_passes(one, other)] == found
