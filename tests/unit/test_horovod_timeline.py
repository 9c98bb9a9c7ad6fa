"""A timeline of Horovod as views and as a report; the events are those that Horovod 0.28 writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.dumps.horovod_timeline import is_timeline

_HEAD = {
    "name": "process_name",
    "ph": "M",
    "pid": 0,
    "args": {"start_time_since_epoch_in_micros": 9},
}


def _tensor(number: int, name: str) -> dict[str, object]:
    return {"name": "process_name", "ph": "M", "pid": number, "args": {"name": name}}


def _collective(
    number: int, op: str, at: int, ready: dict[int, int], *, complete: bool = True
) -> list[dict[str, object]]:
    """Negotiated from ``at`` until the last rank is ready; it then takes 500 µs."""
    begins = {"ph": "B", "name": f"NEGOTIATE_{op}", "ts": at, "pid": number}
    came = [{"ph": "X", "name": str(r), "ts": t, "pid": number, "dur": 0} for r, t in ready.items()]
    if not complete:
        return [begins, *came]
    last = max(ready.values(), default=at)
    shape = {"dtype": "float32", "shape": "[10, 36]"}
    return [
        begins,
        *came,
        {"ph": "E", "ts": last, "pid": number},
        {"ph": "B", "name": op, "ts": last, "pid": number},
        {"ph": "B", "name": f"GLOO_{op}", "ts": last + 10, "pid": number},
        {"ph": "E", "ts": last + 490, "pid": number},
        {"ph": "E", "ts": last + 500, "pid": number, "args": shape},
    ]


@pytest.fixture
def events() -> list[dict[str, object]]:
    return [
        _HEAD,
        _tensor(1, "broadcast.weight"),
        *_collective(1, "BROADCAST", 1000, {0: 1000, 1: 9000, 2: 1200}),
        _tensor(2, "allreduce.weight"),
        *_collective(2, "ALLREDUCE", 20000, {1: 20100, 0: 20200, 2: 20300}),
        *_collective(2, "ALLREDUCE", 30000, {}),
    ]


def _written(folder: Path, events: list[dict[str, object]], end: str = "]") -> Path:
    file = folder / "timeline.json"
    file.write_text("[\n" + ",\n".join(map(json.dumps, events)) + end)
    return file


def test_the_timeline_opens_as_views(tmp_path: Path, events: list[dict[str, object]]) -> None:
    report = ddt.diagnose_dumps(_written(tmp_path, events))
    assert not report.findings
    assert "3 ranks, 3 collectives of 2 tensors agree" in str(report)
    assert report.snapshot is not None
    rows = ddt.collectives(report.snapshot).to_frame()
    assert list(rows["op"]) == ["broadcast", "allreduce", "allreduce"]
    assert list(rows["straggler"])[:2] == [1, 2]
    assert rows["shape"][1] == ((10, 36),)
    (drawn,) = report.snapshot.timeline
    assert [span.name for span in drawn.spans()] == ["gloo:broadcast", *["gloo:allreduce"] * 2]
    assert "rank 1" in ddt.timeline(report.snapshot).to_text()


def test_a_file_without_an_end_says_who_was_not_ready(
    tmp_path: Path, events: list[dict[str, object]]
) -> None:
    events += [
        _tensor(3, "allreduce.loss"),
        *_collective(3, "ALLREDUCE", 40000, {1: 40000}, complete=False),
    ]
    report = ddt.diagnose_dumps(_written(tmp_path, events, end=',\n{"ph": "X", "na'))
    assert not report.findings, "the job may have been at work"
    assert "rank 1 was ready for allreduce of loss and ranks 0 and 2 were not" in report.notes[-1]


def test_other_files_are_no_timeline(tmp_path: Path) -> None:
    other = _written(tmp_path, [_tensor(1, "python")])
    assert not is_timeline(other)
    empty = _written(tmp_path, [_HEAD])
    with pytest.raises(ddt.DdtError, match="no collective"):
        ddt.diagnose_dumps(empty)
