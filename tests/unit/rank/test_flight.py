"""The Flight Recorder is read once and in order, whenever its entries complete."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from ddt_notebook.model import Position
from ddt_notebook.model.torch_features import LIBRARY_COLLECTIVES
from ddt_notebook.rank import torch_private
from ddt_notebook.rank.probes.flight import FlightReader


class Recorder:
    """Torch's recorder with entries of our own."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def issue(self, name: str = "gloo:all_reduce", *, retired: bool = True) -> dict[str, Any]:
        entry = {
            "record_id": len(self.entries),
            "op_id": len(self.entries) + 1,
            "process_group": ["0", "default_pg"],
            "profiling_name": name,
            "input_sizes": [[4]],
            "output_sizes": [[4]],
            "input_dtypes": ["Float"],
            "retired": retired,
            "time_created_ns": 1,
        }
        self.entries.append(entry)
        return entry

    def dump_json(self, collectives: bool, _only_active: bool) -> str:
        completed = sum(entry["retired"] for entry in self.entries)
        given = {"last_enqueued_collective": len(self.entries)}
        status = {"0": given | {"last_completed_collective": completed}}
        return json.dumps({"pg_status": status, "entries": self.entries if collectives else []})

    def dump(self, *_: bool) -> bytes:
        torch = "/venv/lib/python3.11/site-packages/torch"
        frames = [
            {"filename": f"{torch}/nn/parallel/distributed.py", "line": 1661, "name": "_forward"},
            {"filename": f"{torch}/nn/modules/module.py", "line": 1779, "name": "_call_impl"},
            {"filename": "cell[1]", "line": 2, "name": "<module>"},
            {"filename": "cell[4]", "line": 1, "name": "<module>"},
        ]
        return pickle.dumps({"entries": [entry | {"frames": frames} for entry in self.entries]})


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    fake = Recorder()
    monkeypatch.setattr(torch_private, "dump_flight_recorder_json", fake.dump_json)
    monkeypatch.setattr(torch_private, "dump_flight_recorder", fake.dump)
    return fake


def read(reader: FlightReader, **options: bool) -> list[tuple[int, bool]]:
    return [(entry.number, entry.done) for entry in reader.drain(**options)]


def test_what_was_pending_is_read_again_when_it_has_completed(recorder: Recorder) -> None:
    reader = FlightReader()
    recorder.issue()
    slow = recorder.issue(retired=False)
    recorder.issue()
    assert read(reader) == [(1, True), (2, False), (3, True)]
    assert read(reader) == []
    slow["retired"] = True
    assert read(reader) == [(2, True), (3, True)]
    assert read(reader) == []
    assert reader.counts() == {"0": (3, 3)}


def test_the_recorder_of_nccl_is_read_beside_the_general_one(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have entries of group 0; the calls of that group are counted by NCCL's."""
    nccl = Recorder()
    monkeypatch.setattr(
        torch_private,
        "device_recorder",
        {"_dump_nccl_trace_json": nccl.dump_json, "_dump_nccl_trace": nccl.dump}.get,
    )
    recorder.issue()
    recorder.issue()["process_group"] = ["1", "of gloo"]
    for number, state in enumerate(("completed", "completed", "started"), start=1):
        entry = nccl.issue("nccl:all_reduce", retired=number == 1)
        entry |= {"state": state, "is_p2p": False, "collective_seq_id": number + 10}
    message = nccl.issue("nccl:send 0->1", retired=False)
    message |= {"is_p2p": True, "state": "scheduled", "collective_seq_id": 13}
    reader = FlightReader()
    entries = [(e.group, e.number, e.done, e.on_device) for e in reader.drain()]
    assert entries == [
        ("1", 2, True, False),
        ("0", 11, True, True),
        ("0", 12, True, True),
        ("0", 13, False, True),
    ]
    assert reader.counts() == {"0": (2, 2)}
    assert reader.counts_on_device() == {"0": (4, 1)}
    # the last event query decides, before the watchdog retires the entry
    nccl.entries[2]["state"] = "completed"
    nccl.entries[3]["retired"] = True
    assert read(reader) == [(13, True)]
    assert all(entry.where is not None for entry in reader.drain(stacks=True))


def test_operations_have_the_names_of_torch_distributed(recorder: Recorder) -> None:
    recorder.issue("gloo:_all_gather_base")
    recorder.issue("gloo:alltoall")
    recorder.issue("gloo:broadcast")
    entries = FlightReader().drain()
    assert [e.op for e in entries] == ["all_gather", "all_to_all_single", "broadcast"]
    assert entries[0].dtypes == ("float32",)
    assert entries[0].where is None


def test_stacks_of_the_whole_cell_on_request(recorder: Recorder) -> None:
    reader = FlightReader()
    recorder.issue()
    reader.drain()
    reader.begin_run()
    recorder.issue()
    reader.drain()
    (entry,) = reader.drain(stacks=True)
    assert entry.number == 2
    assert entry.where == Position(file="cell[1]", line=2)
    assert entry.library == "DistributedDataParallel"


@pytest.mark.parametrize("stacks", [False, True])
def test_a_late_completion_does_not_belong_to_the_next_cell(
    recorder: Recorder, stacks: bool
) -> None:
    reader = FlightReader()
    late = recorder.issue(retired=False)
    recorder.issue()
    reader.drain()
    reader.begin_run()
    late["retired"] = True
    recorder.issue()
    assert read(reader, stacks=stacks) == [(3, True)]


def test_a_dump_that_names_a_class_is_not_read(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.issue()
    monkeypatch.setattr(torch_private, "dump_flight_recorder", lambda *_: pickle.dumps(Recorder))
    with pytest.raises(pickle.UnpicklingError, match=r"names .*Recorder"):
        FlightReader().drain(stacks=True)


@pytest.mark.parametrize("changed", ["gone", "other arguments", "other fields"])
def test_a_version_of_torch_without_the_flight_recorder(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setattr(torch_private, "_missing", {})
    reader = FlightReader()
    recorder.issue()
    if changed == "gone":
        torch_private.give_up(LIBRARY_COLLECTIVES, "torch:gone")
    elif changed == "other arguments":
        monkeypatch.setattr(torch_private, "dump_flight_recorder_json", lambda: "{}")
    else:
        recorder.entries[0].pop("op_id")
    assert reader.drain() == ()
    assert not torch_private.available(LIBRARY_COLLECTIVES)
    assert reader.counts() == {}
    assert reader.drain(stacks=True) == ()
