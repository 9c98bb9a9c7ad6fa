"""What is read of processes and servers of a running job; real jobs are in multiprocess."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.jobs import attach, processes, sources
from ddt_notebook.jobs.processes import RankProcess

ENTRY = {
    "record_id": 0,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
    "collective_seq_id": 1,
    "profiling_name": "gloo:all_reduce",
    "input_sizes": [[4]],
    "input_dtypes": ["Float"],
    "retired": True,
}
SPY = [
    {
        "thread_name": "MainThread",
        "frames": [
            {
                "name": "all_reduce",
                "filename": "/x/site-packages/torch/distributed/distributed_c10d.py",
                "line": 3,
                "locals": None,
            },
            {"name": "main", "filename": "/job/train.py", "line": 9, "locals": [{"repr": "5"}]},
        ],
    }
]
LOADS = [{"thread_name": "MainThread", "frames": [SPY[0]["frames"][1] | {"line": 7}]}]


def test_ranks_are_read_from_what_launchers_set() -> None:
    of_torchrun = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "29"}
    found = processes._rank(7, of_torchrun | {"TORCHELASTIC_RESTART_COUNT": "1"})
    assert found == RankProcess(2, 4, 7, ("here", 29), 1)
    of_slurm = processes._rank(7, {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"})
    assert of_slurm is not None
    assert of_slurm.address is None
    for strange in ({}, {"RANK": "4", "WORLD_SIZE": "4"}, {"RANK": "-1", "WORLD_SIZE": "4"}):
        assert processes._rank(7, strange) is None


LAUNCHER = """
import os, subprocess, sys
asleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
for rank in "01":
    numbers = {"RANK": rank, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
    subprocess.Popen(asleep, env=os.environ | numbers)
print("started", flush=True)
sys.stdin.read()
"""


def test_a_launcher_below_srun_is_no_rank() -> None:
    task = os.environ | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    command = [sys.executable, "-c", LAUNCHER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=task, stdin=pipe, stdout=pipe, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "started\n"
        found = processes.ranks_of([launcher.pid])
        from_rank = processes.ranks_of([found[0].pid])
        launcher.communicate()  # its input ends, which ends all three
    assert [(one.rank, one.world_size) for one in found] == [(0, 2), (1, 2)]
    assert launcher.pid not in [one.pid for one in found]
    assert from_rank == found


@pytest.mark.parametrize("target", ["train.py", "host:", ":29500", "-1"])
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(ddt.CannotAttach, match=r"no folder .* process id or HOST:PORT"):
        ddt.attach(target)


def test_a_process_that_is_not_a_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_environment", lambda _: {})
    with pytest.raises(ddt.CannotAttach, match="no RANK"):
        ddt.attach(os.getpid())
    with pytest.raises(ddt.CannotAttach, match="does not exist"):
        ddt.attach(2**22 + 1)


@pytest.fixture
def servers() -> Iterator[dict[str, Any]]:
    """Debug servers at ``/handler/NAME``: answers by address, of which each is given once."""
    answers: dict[str, list[bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            name = self.path.rpartition("/")[2]
            left = answers.get(f"{self.server.server_port}/{name}", [b""])
            data = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(302 if data == b"elsewhere" else 200)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    opened = [HTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    threads = [threading.Thread(target=one.serve_forever, args=(0.02,)) for one in opened]
    for thread in threads:
        thread.start()
    yield {"ports": [one.server_port for one in opened], "answers": answers}
    for one, thread in zip(opened, threads, strict=True):
        one.shutdown()
        thread.join(5)
        one.server_close()


def recorder(count: int, *, done: int) -> bytes:
    status = {"0": {"last_enqueued_collective": count, "last_completed_collective": done}}
    entries = [
        ENTRY | {"collective_seq_id": n, "record_id": n - 1, "retired": n <= done}
        for n in range(1, count + 1)
    ]
    return json.dumps({"pg_status": status, "entries": entries}).encode()


def looked(
    servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *looks: tuple[bytes, bytes]
) -> ddt.Report:
    """Attach to two ranks whose recorders answer as given, once for each look."""
    addresses = {rank: f"http://127.0.0.1:{port}" for rank, port in enumerate(servers["ports"])}
    for rank, port in enumerate(servers["ports"]):
        servers["answers"][f"{port}/fr_trace_json"] = [look[rank] for look in looks]
    store = sources.Store((0, 1), addresses)
    monkeypatch.setattr(sources, "read_store", lambda *_: store)
    monkeypatch.setattr(attach, "BETWEEN_S", 0.0)
    report = attach.look_at(["localhost:29500"], between_s=0.0).snapshot()
    return ddt.diagnose(report)


def test_recorders_of_debug_servers_name_the_rank(
    servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = recorder(6, done=5), recorder(5, done=5)
    (finding,) = looked(servers, monkeypatch, look, look).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0])


def test_a_job_that_makes_progress_between_two_observations(
    servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = recorder(6, done=5), recorder(5, done=5)
    second = recorder(7, done=6), recorder(6, done=6)
    report = looked(servers, monkeypatch, first, second)
    assert report.ok
    assert any("goes on" in note for note in report.notes)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\x80\x04.", b"elsewhere", b'{"entries": 3}'])
def test_invalid_answers_of_servers_are_refused(
    servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    with pytest.raises(ddt.CannotAttach, match="nothing of this job"):
        looked(servers, monkeypatch, (data, data), (data, data))


@pytest.mark.parametrize("address", ["file:///etc/passwd", "http://x:1/a", "x:1", "http://a b:1"])
def test_no_other_address_is_opened(address: str) -> None:
    assert sources.ask_server(address, "fr_trace_json") == b""


def test_py_spy_shows_the_rank_that_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [RankProcess(rank, 2, 100 + rank, None, 0) for rank in range(2)]
    printed = {100: json.dumps(SPY), 101: json.dumps(LOADS)}
    monkeypatch.setattr(attach, "ranks_of", lambda _: ranks)
    monkeypatch.setattr(sources, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(sources, "stack_of", lambda _, pid: (printed[pid], ""))
    (finding,) = ddt.diagnose(attach.look_at([1], between_s=0.0).snapshot()).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("stands-elsewhere", [1], [0])


@pytest.mark.parametrize("ops", [["allreduce", "synchronize"], ["synchronize"]])
def test_a_rank_that_waits_in_horovod_is_seen(
    monkeypatch: pytest.MonkeyPatch, ops: list[str]
) -> None:
    """By the function that the user called; a step of its optimizer waits as well."""
    monkeypatch.setattr(sources, "py_spy", lambda: "py-spy")
    waits = [
        {"name": op, "filename": "/x/site-packages/horovod/torch/mpi_ops.py", "line": 3}
        for op in reversed(ops)
    ]
    spied = [{"thread_name": "MainThread", "frames": [*waits, SPY[0]["frames"][1]]}]
    stacks = {1: spied, 2: LOADS}
    monkeypatch.setattr(sources, "stack_of", lambda tool, pid: (json.dumps(stacks[pid]), ""))
    ranks = [RankProcess(rank, 2, 1 + rank, None, 0) for rank in range(2)]
    monkeypatch.setattr(attach, "ranks_of", lambda pids: ranks)
    snapshot = attach.look_at([1], between_s=0.0).snapshot()
    (finding,) = ddt.diagnose(snapshot).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("stands-elsewhere", [1], [0])
    assert finding.values["ops"] == (ops[0],)
    assert not any("init_process_group" in note for note in snapshot.notes)


def test_a_loop_whose_variables_change_is_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [RankProcess(rank, 2, 100 + rank, None, 0) for rank in range(2)]
    looks = iter(range(100))

    def stack_of(_: str, pid: int) -> tuple[str, str]:
        text = json.dumps(SPY if pid == 100 else LOADS)
        return text.replace('"5"', f'"{next(looks)}"'), ""

    monkeypatch.setattr(attach, "ranks_of", lambda _: ranks)
    monkeypatch.setattr(sources, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(sources, "stack_of", stack_of)
    assert ddt.diagnose(attach.look_at([1], between_s=0.0).snapshot()).ok


def test_without_py_spy_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "ranks_of", lambda _: [RankProcess(0, 2, 100, None, 0)])
    monkeypatch.setattr(sources, "py_spy", lambda: None)
    with pytest.raises(ddt.CannotAttach, match="pip install"):
        attach.look_at([1], between_s=0.0)
