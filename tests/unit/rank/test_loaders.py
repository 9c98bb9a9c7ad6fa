"""What is read from loaders about the division of data among ranks."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)

from ddt_notebook.model.partition import LoaderPartition
from ddt_notebook.rank.probes import loaders


class BatchSamplerShard(BatchSampler):
    """Has the attributes of accelerate's class of that name."""

    def __init__(self, size: int, *, split: bool = False, even: bool = True, drop: bool = False):
        self.batch_sampler = BatchSampler(SequentialSampler(range(size)), 4, drop)
        self.num_processes, self.process_index = 2, 1
        self.split_batches, self.even_batches = split, even
        self.batch_size, self.drop_last = 4, drop

    def __len__(self) -> int:
        return len(self.batch_sampler)


def described(**options: Any) -> LoaderPartition:
    loader: DataLoader[Any] = DataLoader(list(range(13)), **options)  # type: ignore[arg-type]
    return loaders.new_log(loader, None).about


@pytest.mark.parametrize(
    ("options", "padding"),
    [({}, 3), ({"split": True}, 3), ({"even": False}, 0), ({"drop": True}, 0)],
)
def test_a_sampler_that_divides_whole_batches(options: dict[str, bool], padding: int) -> None:
    about = described(batch_sampler=BatchSamplerShard(13, **options))
    assert (about.replicas, about.replica, about.universe) == (2, 1, 13)
    assert about.padding == padding


def test_split_batches_are_padded_to_one_batch() -> None:
    shard = BatchSamplerShard(13, split=True)
    shard.batch_size = 8
    assert described(batch_sampler=shard).padding == 3
    shard.split_batches = False
    assert described(batch_sampler=shard).padding == 3
    shard.batch_size = 7
    assert described(batch_sampler=shard).padding == 1
    shard.batch_size = None  # type: ignore[assignment]
    assert described(batch_sampler=shard).padding == 13


def test_a_division_of_batches_of_a_known_sampler() -> None:
    shard = BatchSamplerShard(13)
    shard.sampler = RandomSampler(range(13))
    about = described(batch_sampler=shard)
    assert (about.replicas, about.padding, about.sampler) == (2, 3, "RandomSampler")


class Wrapped(DistributedSampler[Any]):
    """Has the attributes of Lightning's sampler around another one."""

    def __init__(self, sampler: Any, replicas: int) -> None:
        super().__init__(range(len(sampler)), replicas, 0)  # type: ignore[arg-type]
        self.dataset = type("Indices", (), {"_sampler": sampler, "__len__": lambda _: 13})()


def test_the_selection_that_a_library_divides_is_known() -> None:
    """The order of the indices is drawn anew in each epoch, so it shows nothing."""
    chosen = SubsetRandomSampler([7, 3, 5])
    shard = BatchSamplerShard(13)
    shard.batch_sampler = BatchSampler(chosen, 4, False)
    divided = (
        DataLoader(range(13), sampler=Wrapped(chosen, 2)),  # type: ignore[arg-type]
        DataLoader(range(13), batch_sampler=shard),  # type: ignore[arg-type]
    )
    assert [loaders.new_log(one, None).selected for one in divided] == [[3, 5, 7]] * 2
    whole = DataLoader(range(13), sampler=chosen)  # type: ignore[arg-type]
    assert loaders.new_log(whole, None).selected is None


def test_padding_of_other_samplers_is_unknown() -> None:
    sampler = DistributedSampler(range(13), 2, 1)  # type: ignore[arg-type]
    about = described(sampler=sampler)
    assert (about.replicas, about.replica, about.padding) == (2, 1, None)
    about = described()
    assert (about.replicas, about.replica, about.padding) == (None, None, None)


def test_the_lines_that_made_a_loader_and_its_subset_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in (DataLoader, Subset):
        monkeypatch.setattr(kind, "__init__", loaders._noting_line(kind.__init__))
    half: Any = Subset(range(13), range(6))  # type: ignore[arg-type]
    about = loaders.new_log(DataLoader(half), None).about
    assert about.made_at is not None
    assert about.split_at is not None
    assert about.made_at.line == about.split_at.line + 1
    whole: Any = range(13)
    assert loaders.new_log(DataLoader(whole), None).about.split_at is None


def test_a_loader_continues_an_earlier_one_only_if_it_divides_the_data_alike() -> None:
    record = loaders.LoaderRecord()
    data = list(range(8))
    plain: DataLoader[Any] = DataLoader(data, 4)  # type: ignore[arg-type]
    record.begin_pass(plain, None)
    del plain
    again: DataLoader[Any] = DataLoader(data, 4)  # type: ignore[arg-type]
    record.begin_pass(again, None)
    assert [log.made for log in record.logs] == [2]
    del again
    sampler: Any = DistributedSampler(data, 2, 0)  # type: ignore[arg-type]
    divided: DataLoader[Any] = DataLoader(data, 4, sampler=sampler)  # type: ignore[arg-type]
    record.begin_pass(divided, None)
    assert [log.about.replicas for log in record.logs] == [None, 2]
