"""What a worker of Ray Train records where it waits for the others, with a stand-in for Ray."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ddt_notebook.model.frameworks.ray import (
    BARRIER,
    BATCHES,
    BROADCAST,
    GROUP,
    PREEMPTION,
    REPORT,
    group_of,
)
from ddt_notebook.rank.frameworks.ray import RayTrain
from ddt_notebook.rank.probes.calls import CallLog
from ddt_notebook.rank.training_thread import CURRENT
from ddt_notebook.wire.records import CallRecord
from ddt_notebook.wire.ring import RingReader, RingWriter

_EXECUTION = "ray.train.v2._internal.execution"


class TrainContext:
    """The part of Ray's class of this name that is used here."""

    def get_world_size(self) -> int:
        return 2

    def _sync_checkpoint_dir_name_across_ranks(self, name: str | None = None) -> str:
        return name or "checkpoint_0"

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        module = sys.modules["ray.data._internal.iterator.stream_split_iterator"]
        return module.StreamSplitDataIterator()


class Shard:
    """The part of Ray's iterator over a shard that is used here."""

    def _iter_batches(self, *, batch_size: int) -> list[int]:
        return list(range(batch_size))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    def broadcast(data: Any, *, caller_method_name: str = BROADCAST) -> Any:
        return data

    worker = type("TrainContext", (TrainContext,), dict(vars(TrainContext)))
    parts = {
        "collective_impl": {"barrier": lambda: None, "broadcast_from_rank_zero": broadcast},
        "context": {"TrainContext": worker, "get_train_context": worker},
        "worker_group.thread_runner": {},
    }
    for name, contents in parts.items():
        module = ModuleType(f"{_EXECUTION}.{name}")
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    shards = ModuleType("ray.data._internal.iterator.stream_split_iterator")
    vars(shards)["StreamSplitDataIterator"] = type("Shard", (Shard,), {})
    monkeypatch.setitem(sys.modules, shards.__name__, shards)
    modules = {name: sys.modules[f"{_EXECUTION}.{name}"] for name in ("collective_impl", "context")}
    return SimpleNamespace(**modules)


def _recorded(file: Path) -> list[CallRecord]:
    reader = RingReader(file)
    records = [reader.read(index) for index in range(reader.count)]
    return [one.call for one in records if one is not None]


def test_the_worker_meets_the_others_where_it_reports(ray: Any, tmp_path: Path) -> None:
    log = CallLog(None)
    RayTrain().watch(log)
    log.attach(RingWriter(tmp_path / "calls"))
    CURRENT.follow()
    ray.context.TrainContext()._sync_checkpoint_dir_name_across_ranks()
    ray.collective_impl.barrier()
    assert ray.collective_impl.broadcast_from_rank_zero({"seed": 3}) == {"seed": 3}
    ray.collective_impl.broadcast_from_rank_zero(None, caller_method_name=PREEMPTION)
    beside = threading.Thread(target=ray.collective_impl.barrier)  # it is not recorded
    beside.start()
    beside.join()
    calls = _recorded(tmp_path / "calls")
    assert [call.op for call in calls] == [REPORT, BARRIER, BROADCAST, PREEMPTION]
    assert {(call.group.name, call.group.members, call.kind) for call in calls} == {
        (GROUP, (0, 1), "collective")
    }
    assert {call.file for call in calls} == {__file__}


def test_the_workers_meet_before_the_first_batch_of_a_shard(ray: Any, tmp_path: Path) -> None:
    log = CallLog(None)
    RayTrain().watch(log)
    log.attach(RingWriter(tmp_path / "calls"))
    CURRENT.follow()
    info = SimpleNamespace(dataset_name="train")
    shard = ray.context.TrainContext().get_dataset_shard(info)
    for _ in range(2):
        assert list(shard._iter_batches(batch_size=3)) == [0, 1, 2]
    assert not list(shard._iter_batches(batch_size=0))
    calls = _recorded(tmp_path / "calls")
    assert [(call.op, call.group.name) for call in calls] == [(BATCHES, group_of("train"))] * 3
    assert {call.file for call in calls} == {__file__}
    own = type(shard)()  # of a data set that this worker has for itself
    assert list(own._iter_batches(batch_size=2)) == [0, 1]
    assert len(_recorded(tmp_path / "calls")) == 3


def test_another_version_of_ray_is_left_alone(ray: Any, tmp_path: Path) -> None:
    del ray.context.get_train_context
    del ray.collective_impl.broadcast_from_rank_zero
    log = CallLog(None)
    RayTrain().watch(log)
    log.attach(RingWriter(tmp_path / "calls"))
    CURRENT.follow()
    ray.collective_impl.barrier()
    assert not _recorded(tmp_path / "calls")
