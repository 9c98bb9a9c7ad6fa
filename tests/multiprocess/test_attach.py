"""Jobs that torchrun started without us, looked at while they hang."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.jobs import sources

HAS_SERVERS = all(map(importlib.util.find_spec, ("jinja2", "torch.distributed.debug")))

SCRIPT = """\
import sys
import time

import torch
import torch.distributed as dist


def load_batch(rank, step):
    while rank == 1 and step == 3:
        time.sleep(0.05)
    return torch.ones(4)


dist.init_process_group("gloo")
rank = dist.get_rank()
if len(sys.argv) > 1:
    from torch.distributed.debug import start_debug_server

    start_debug_server(port=int(sys.argv[1]))
for step in range(5):
    batch = load_batch(rank, step)
    if step == 3:
        open(f"arrived-{rank}", "w").close()
    dist.all_reduce(batch)
"""
WAITS, LOADS = 24, 10


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def job(folder: Path, *arguments: str) -> Iterator[int]:
    """A job on two ranks, of which rank 1 never leaves its loop; yields the launcher's pid."""
    (folder / "train.py").write_text(SCRIPT)
    port = free_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += [f"--master-port={port}", "train.py", *arguments]
    with (folder / "output").open("wb") as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        launcher = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 60
        while not (folder / "arrived-0").exists() and time.monotonic() < deadline:
            assert launcher.poll() is None, (folder / "output").read_text()[-2000:]
            time.sleep(0.05)
        time.sleep(0.5)
        yield launcher.pid
    finally:
        launcher.terminate()
        try:
            launcher.wait(20)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait(20)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The launcher of a job whose ranks have debug servers where these are installed."""
    servers = [str(free_port())] if HAS_SERVERS else []
    with job(tmp_path_factory.mktemp("job"), *servers) as pid:
        yield pid


@pytest.mark.skipif(sources.py_spy() is None, reason="py-spy is not installed")
def test_stacks_alone_name_the_rank(launcher: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = sources.read_store
    monkeypatch.setattr(sources, "read_store", lambda *at: replace(read(*at), servers={}))
    report = ddt.attach(launcher)
    (finding,) = report.findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("stands-elsewhere", [1], [0])
    assert Path(finding.places[0].file).name == "train.py"
    assert finding.places[0].line == WAITS
    assert finding.places[1].line in (LOADS - 1, LOADS)
    assert report.snapshot is not None
    assert [one.pid > 0 for one in report.snapshot.ranks] == [True, True]


@pytest.mark.skipif(not HAS_SERVERS, reason="torch or the machine has no debug servers")
def test_debug_servers_name_the_collective(launcher: int) -> None:
    report = ddt.attach(launcher)
    (finding,) = report.findings
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert finding.values["op"] == "all_reduce"
    assert finding.values["sequence"] == 4
    assert finding.places[0].line == WAITS
    assert finding.places[1].line in (LOADS - 1, LOADS)
