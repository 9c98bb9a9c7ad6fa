"""What the watchers of several hosts share in the folder of their job."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ddt_notebook.jobs import shared_answers
from ddt_notebook.jobs.recorded_job import RecordedJob
from ddt_notebook.jobs.recorded_process import RecordedRank
from ddt_notebook.wire.records import CallRecord, FlightEntry, Group
from ddt_notebook.wire.ring import DONE, RingWriter

from .test_job_folder import rank

BARRIER = CallRecord(op="barrier", group=Group("0", (0, 1)))
ENTRY = FlightEntry(group="0", number=7, op="all_reduce", done=False, created_ns=time.time_ns())


def on_two_hosts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[RecordedJob]:
    """A job on the hosts ``a`` and ``b`` as the watcher of each one sees it."""
    jobs = []
    for number, host in enumerate("ab"):
        rank(folder, number, host)
    for host in "ab":
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        job = RecordedJob(folder, watched=True)
        job.look()
        jobs.append(job)
    monkeypatch.setattr(shared_answers, "_LOOK_EVERY_S", 0.0)
    return jobs


def wait_in_library(job: RecordedJob, number: int) -> None:
    """Let a rank of this host wait in a collective of DDP."""
    run = job.runs[number]
    assert run.handle.recorder is not None
    run.handle.recorder.add_flight([ENTRY])
    run.library_wait = ("0", 7), time.monotonic()


def test_a_wait_in_a_library_is_shared_with_other_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = on_two_hosts(tmp_path, monkeypatch)
    there.share()
    assert not list(tmp_path.glob("*.answers"))  # no rank waits
    wait_in_library(there, 1)
    there.share()
    here.take_shared()
    blocked = here.state().reports[1].blocked_call
    assert blocked is not None
    assert (blocked.op, blocked.source, blocked.sequence) == ("all_reduce", "flight recorder", 7)
    there.runs[1].library_wait = None
    there.share()
    here.take_shared()
    assert [one.state for one in here.state().reports] == ["running", "running"]


def test_a_wait_counts_only_while_its_watcher_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = on_two_hosts(tmp_path, monkeypatch)
    wait_in_library(there, 1)
    there.share()
    here.take_shared()
    assert here.runs[1].library_wait is not None
    monkeypatch.setattr(shared_answers, "_BELIEVED_S", 0.0)
    here.take_shared()
    assert here.runs[1].library_wait is None


def test_a_rank_that_recorded_a_call_has_left_its_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = on_two_hosts(tmp_path, monkeypatch)
    wait_in_library(there, 1)
    there.share()
    RingWriter(next(tmp_path.glob("b-*.calls"))).begin(BARRIER, time.monotonic(), blocking=True)
    here.take_shared()
    assert here.runs[1].library_wait is None


def test_a_rank_that_works_elsewhere_is_not_shown_at_its_last_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = on_two_hosts(tmp_path, monkeypatch)
    writer = RingWriter(next(tmp_path.glob("b-*.calls")))
    call = replace(BARRIER, file="train.py", line=7)
    writer.end(writer.begin(call, time.monotonic(), blocking=True), DONE, time.monotonic(), 1)
    for job in (here, there):
        job.look()
    lines = [job.state().reports[1].position for job in (here, there)]
    assert [line.line if line is not None else None for line in lines] == [None, 7]


def test_a_question_is_answered_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = on_two_hosts(tmp_path, monkeypatch)
    assert there.runs[1].handle.recorder is not None
    there.runs[1].handle.recorder.add_flight([replace(ENTRY, done=True)])
    monkeypatch.setattr(time, "sleep", lambda _: there.share())  # while the reader waits
    assert here.ask_elsewhere() == {1}
    (call,) = here.state(whole=True).reports[1].calls
    assert (call.status, call.source) == ("done", "flight recorder")


@pytest.mark.parametrize("content", [b"", b"[1]", b'[99,"RankAnswers",0,false,{}]', b"x" * 99])
def test_answers_that_cannot_be_read_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    here, _ = on_two_hosts(tmp_path, monkeypatch)
    (tmp_path / f"b-{os.getpid()}.answers").write_bytes(content)
    here.take_shared()
    assert [one.state for one in here.state().reports] == ["running", "running"]


def test_a_long_wait_in_a_library_outlives_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "_LOOK_EVERY_S", 0.0)
    file = rank(tmp_path, 0, socket.gethostname(), world_size=1)
    init = CallRecord(op="init_process_group", kind="setup", group=Group("", ()))
    calls = RingWriter(file.with_suffix(".calls"))
    calls.end(calls.begin(init, time.monotonic(), blocking=True), DONE, time.monotonic(), 0)
    job = RecordedJob(tmp_path, watched=True)
    job.look()
    wait_in_library(job, 0)
    job.share()
    assert not list(tmp_path.glob("*.answers"))  # it may end at once
    assert job.runs[0].library_wait is not None
    job.runs[0].library_wait = ("0", 7), time.monotonic() - 3
    job.share()
    monkeypatch.setattr(RecordedRank, "runs", False)
    reader = RecordedJob.load(tmp_path)
    (report,) = reader.state(whole=True).reports
    assert report.blocked_call is not None
    assert (report.state, report.blocked_call.op) == ("blocked", "all_reduce")
    job.runs[0].library_wait = None
    job.share()
    (report,) = RecordedJob.load(tmp_path).state(whole=True).reports
    assert report.state == "running", "as it was before"
