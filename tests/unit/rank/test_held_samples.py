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


class _Table:
    """A table as Hugging Face's ``datasets`` keep it."""

    def __init__(self, rows: list[dict[str, int]], nbytes: int) -> None:
        self.rows, self.nbytes = rows, nbytes

    def to_pylist(self) -> list[dict[str, int]]:
        return self.rows

    def column(self, at: int) -> _Table:
        return _Table([next(iter(row.values())) for row in self.rows], 0)  # type: ignore[misc]


class _OfRows:
    def __init__(self, order: list[int], selected: list[int] | None, nbytes: int = 100) -> None:
        self._data = _Table([{"x": 10 * at} for at in order], nbytes)
        self._indices = None if selected is None else _Table([{"at": at} for at in selected], 0)
        self.size = len(order if selected is None else selected)


def test_rows_of_a_table_in_another_order_and_a_selection_of_them() -> None:
    one, other = _OfRows([0, 1, 2, 3, 4], [0, 2, 4]), _OfRows([4, 3, 2, 1, 0], [0, 1, 2])
    found = [held(each, each.size) for each in (one, other)]  # 0, 2, 4 and 4, 3, 2
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].order != found[1].order
    assert len({*found[0].contents} & {*found[1].contents}) == 2
    same = held(_OfRows([0, 2, 4], None), 3)
    assert same is not None
    assert same.order == found[0].order


def test_rows_of_a_large_table_are_known_by_their_places() -> None:
    large = [held(_OfRows([0, 1, 2, 3], at, 1 << 30), 3) for at in ([0, 1, 2], [2, 1, 0])]
    assert large[0] is not None
    assert large[1] is not None
    assert large[0].order != large[1].order
    assert large[0].contents == large[1].contents
    assert held(_OfRows([0, 1, 2, 3], None, 1 << 30), 4) is None


def parts(rows: Any) -> dict[str, tuple[int, int]]:
    found = held(rows, 40)
    assert found is not None
    return dict(found.parts)


def test_labels_that_each_rank_numbers_by_itself_are_equal_at_the_same_places() -> None:
    one, other = parts(ROWS), parts([{**row, "labels": 1 - row["labels"]} for row in ROWS])
    assert one["labels"][0] != other["labels"][0]
    assert one["labels"][1] == other["labels"][1]
    third = parts([{**row, "labels": int(at < 20)} for at, row in enumerate(ROWS)])
    assert third["labels"][1] != one["labels"][1]
    tags = [{"tags": [at % 2, at % 3]} for at in range(40)]
    assert set(parts(tags)) == {"tags"}


@pytest.mark.parametrize(
    "rows",
    [
        TensorDataset(torch.arange(80.0).view(40, 2)),  # numbers, such as noise
        Files(NAMES, list(range(40))),  # each value once
        [[at, at + 1] for at in range(0, 80, 2)],
        [{"labels": 1} for _ in range(40)],
    ],
)
def test_parts_that_are_no_classes_are_left_out(rows: Any) -> None:
    assert parts(rows) == {}
