"""Loaders of a trainer that have other numbers of batches on other ranks."""

from __future__ import annotations

import pytest

from ddt_notebook.model import Position
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.program.escape_paths import EscapePaths
from ddt_notebook.program.program import Document, Program

MADE = Position(file="cell[1]", line=1, function="<module>")


def partition(rank: int, *batches: int) -> RankPartition:
    return RankPartition(
        rank=rank,
        run=1,
        loaders=tuple(
            LoaderPartition(
                name=f"loader{number}",
                dataset="TensorDataset",
                dataset_size=8,
                made_at=MADE,
                expected_batches=count,
                epochs=(Epoch(number=1, batches=count, samples=8, trained=1),),
            )
            for number, count in enumerate(batches)
        ),
    )


@pytest.mark.parametrize(
    ("theirs", "mine", "differ"),
    [
        ((7,), (5,), (7, 5)),
        ((7, 3), (5, 3), (7, 5)),
        ((7, 3), (7, 3), None),
        ((7, 3), (7,), None),  # that rank has not come to the second one
        ((7,), (7, 3), None),
    ],
)
def test_loaders_of_one_line_are_not_mixed_up(
    theirs: tuple[int, ...], mine: tuple[int, ...], differ: tuple[int, int] | None
) -> None:
    program = Program([Document("cell[1]", "trainer.fit(model, train, test)\n")], 2)
    paths = EscapePaths(program, {0: partition(0, *theirs), 1: partition(1, *mine)})
    found = [(one.values["other"][1], one.values["batches"]) for one in paths._uneven_loaders(0, 1)]
    assert found == ([differ] if differ else [])
