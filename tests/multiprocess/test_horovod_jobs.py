"""Jobs of Horovod that a shell starts, with a stand-in for its library; see tests/horovod."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.jobs.recorded_job import snapshot_of_folder
from ddt_notebook.model import Snapshot

from .test_horovod_recorder import STAND_IN
from .test_jobs import Job, assert_gone

#: Starts two ranks as ``horovodrun`` does, and serves what they ask for when they meet.
HOROVODRUN = """
import os, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

known = {}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200 if self.path in known else 404, known.get(self.path, b""))

    def do_PUT(self):
        known[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
meet = {
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server.server_address[1]),
    "HOROVOD_SIZE": "2",
}
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[1:]], env=os.environ | meet | {"HOROVOD_RANK": str(number)}
    )
    for number in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
START = """
import torch
import horovod.torch as hvd

hvd.init()
torch.manual_seed(3 + hvd.rank())
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Job]]:
    monkeypatch.chdir(tmp_path)
    started: list[Job] = []

    def start(source: str) -> Job:
        Path("train.py").write_text(START + source)
        Path("launch.py").write_text(HOROVODRUN)
        command = ("--on-hang", "stop", "--", sys.executable, "launch.py", "train.py")
        started.append(Job(tmp_path / "record", *command, PYTHONPATH=str(STAND_IN)))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def reported(job: Job) -> Snapshot:
    """The last report of a job that has ended."""
    _, _, errors = job.end()
    assert not [*job.folder.glob("*.failed")], errors
    saved = sorted(job.folder.glob("report-*.ddt.json"))
    assert saved, errors
    assert_gone(job.pids)
    return Snapshot.load(saved[-1])


def test_a_job_is_recorded_by_the_names_of_tensors(job: Callable[[str], Job]) -> None:
    names = '(("w", "b") if hvd.rank() else ("b", "w"))'
    source = f"handles = [hvd.allreduce_async_(torch.ones(2), name=name) for name in {names}]\n"
    started = job(f"{source}for handle in handles:\n    hvd.synchronize(handle)\nhvd.barrier()\n")
    snapshot = reported(started)
    assert (snapshot.framework, snapshot.world_size) == ("horovod", 2)
    groups = [[call.group for call in one.calls] for one in snapshot.ranks]
    assert groups == [
        ["0", "allreduce.b", "allreduce.w", "barrier.noname"],
        ["0", "allreduce.w", "allreduce.b", "barrier.noname"],
    ]
    assert not diagnose(snapshot).findings
    assert [one.state for one in snapshot_of_folder(started.folder).ranks] == ["finished"] * 2


def test_a_job_that_hangs_is_named_by_the_tensor_and_stopped(job: Callable[[str], Job]) -> None:
    waits = "hvd.allreduce(torch.ones(3), name='loss')"
    source = f"if hvd.rank() == 0:\n    {waits}\nhvd.barrier()\n"
    snapshot = reported(job(source))
    assert snapshot.outcome == "hung"
    (finding,) = diagnose(snapshot).findings
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0])
    assert "allreduce #1 (3 × float32) of tensor loss" in finding.title
    assert finding.places[0].code == waits


def test_a_rank_that_ends_early_is_the_cause_and_not_the_error_of_the_other(
    job: Callable[[str], Job],
) -> None:
    source = "for step in range(3 - hvd.rank()):\n    hvd.allreduce(torch.ones(2), name='w')\n"
    snapshot = reported(job(source))
    (finding,) = diagnose(snapshot).findings
    assert (finding.symptom, finding.kind, finding.ranks) == ("D.2.1", "never-entered", [1])
    assert "allreduce #3 (2 × float32) of tensor w" in finding.title
