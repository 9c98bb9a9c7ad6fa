"""What a data set holds is compared without asking it for samples."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from ddt_notebook.rank.probes.held_samples import held


class Files(Dataset[Any]):
    """A data set that must not be asked for samples."""

    def __init__(self, names: list[str], labels: Any) -> None:
        self.names, self.labels, self.cache = names, labels, {"length": len(names)}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("reads a file")


ROWS = [{"input_ids": torch.arange(n, n + 3), "labels": n % 2} for n in range(40)]
NAMES = [f"images/{n}.jpg" for n in range(40)]


def made(order: list[int]) -> list[Any]:
    x = torch.arange(80.0).view(40, 2)
    return [
        [ROWS[at] for at in order],
        tuple(ROWS[at] for at in order),
        TensorDataset(x[order], torch.arange(40)[order]),
        Files([NAMES[at] for at in order], [at % 3 for at in order]),
        Files([NAMES[at] for at in order], np.arange(40)[order]),
        Files([NAMES[at] for at in order], torch.arange(40)[order]),
    ]


@pytest.mark.parametrize("kind", range(6))
def test_another_order_of_the_same_samples(kind: int) -> None:
    order = random.Random(3).sample(range(40), 40)
    one, same, other = (held(made(o)[kind], 40) for o in (list(range(40)), list(range(40)), order))
    assert one is not None
    assert other is not None
    assert one == same
    assert one.order != other.order
    assert (one.contents, one.repeated) == (other.contents, 0)


def test_other_samples_have_nothing_in_common() -> None:
    one, other = (held(TensorDataset(torch.randn(2000, 4)), 2000) for _ in range(2))
    assert one is not None
    assert other is not None
    assert not set(one.contents) & set(other.contents)


def test_a_part_in_common_is_seen_among_many() -> None:
    one, other = (
        held(random.Random(seed).sample([f"{n}.png" for n in range(9000)], 8000), 8000)
        for seed in (1, 2)
    )
    assert one is not None
    assert other is not None
    assert len(set(one.contents) & set(other.contents)) > 2


def test_repeated_samples_are_counted() -> None:
    found = held([1, 2, 1, 2, 1], 5)
    assert found is not None
    assert found.repeated == 3


@pytest.mark.parametrize(
    ("dataset", "size"),
    [
        ([object(), object()], 2),
        (Files([], []), 0),
        (Files(NAMES, [object()] * 40), 40),
        (range(9), 9),
        (TensorDataset(torch.ones(4, 1, device="meta")), 4),
    ],
)
def test_what_is_not_understood_is_not_compared(dataset: Any, size: int) -> None:
    assert held(dataset, size) is None
