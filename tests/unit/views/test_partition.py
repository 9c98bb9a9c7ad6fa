"""What the partition view points out about loaders that give all ranks the same samples."""

from __future__ import annotations

import ddt_notebook as ddt
from ddt_notebook.model import Cell, Position, RankReport, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition, pack_indices

from ..diagnosis.builders import all_reduce, rank


def _loader(name: str, line: int, trained: int) -> LoaderPartition:
    where = Position(file="cell[1]", line=line)
    seen = tuple(range(8))
    epoch = Epoch(number=1, run=1, batches=2, samples=8, first=seen, trained=trained, where=where)
    return LoaderPartition(
        name=name,
        dataset="TensorDataset",
        dataset_size=8,
        universe=8,
        sampler="SequentialSampler",
        batch_size=4,
        epochs=(epoch,),
        handed_out=pack_indices(bytes([0xFF])),
    )


def _kinds(*ranks: RankReport) -> list[tuple[str, bool]]:
    loaders = (_loader("train", 2, trained=2), _loader("val", 4, trained=0))
    snapshot = Snapshot(
        cell=Cell(number=1, source="for x in train: step(x)\n\n\nfor x in val: model(x)"),
        ranks=ranks,
        world_size=2,
        partition=tuple(RankPartition(rank=r, run=1, loaders=loaders) for r in range(2)),
    )
    flags = [flag for flag in ddt.partition(snapshot).flags if "got the same" in flag.text]
    return [(flag.kind, "DistributedSampler" in flag.text) for flag in flags]


def test_ranks_that_train_alone_are_not_told_to_divide_their_evaluation() -> None:
    assert _kinds(rank(0), rank(1)) == [("hint", False)] * 2
    together = _kinds(rank(0, all_reduce()), rank(1, all_reduce()))
    assert ("warning", True) in together
