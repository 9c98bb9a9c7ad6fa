"""Without any one of the private names of torch, ranks start, and a hang is named."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.host import launcher
from ddt_notebook.model.torch_features import FEATURES
from ddt_notebook.rank.torch_private import _LAZILY_IMPORTED, NAMES
from ddt_notebook.views.session_status import StatusView

HANG = "if rank == 0:\n    dist.all_reduce(torch.ones(1))"
TRAINING = """
loader = torch.utils.data.DataLoader(torch.arange(32.0).reshape(8, 4), batch_size=2, sampler=(
    torch.utils.data.DistributedSampler(range(8), shuffle=False)))
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in loader:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


class _Server:
    """Stands in for the ``subprocess.Popen`` of a fork server."""

    mother: socket.socket
    without: str

    def __init__(self, *_: object, stdin: int, stdout: Any, stderr: Any, **__: object) -> None:
        descriptors = [stdin, stdout.fileno(), stderr.fileno()]
        socket.send_fds(self.mother, [json.dumps(self.without).encode()], descriptors)
        self.pid = json.loads(self.mother.recv(64))

    def poll(self) -> int | None:
        return None if psutil.pid_exists(self.pid) else 0

    def wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork server", timeout)
            time.sleep(0.01)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def mother() -> Iterator[socket.socket]:
    """The process from which fork servers are forked."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.multiprocess.torch_without", str(theirs.fileno())]
    process = subprocess.Popen(
        command,
        pass_fds=[theirs.fileno()],
        env=launcher._environment(),
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),  # noqa: PTH120
    )
    theirs.close()
    ours.settimeout(60)
    yield ours
    ours.close()
    process.wait(10)


@pytest.fixture
def fresh_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fork server for this test alone."""
    handles: dict[tuple[bool, str, bool], launcher.ForkServerHandle] = {}
    monkeypatch.setattr(launcher, "_handles", handles)
    yield
    for handle in handles.values():
        handle.close()


@pytest.mark.usefixtures("fresh_server")
@pytest.mark.parametrize("name", [*NAMES, *_LAZILY_IMPORTED])
def test_without_a_private_name_ranks_start_and_a_hang_is_named(
    mother: socket.socket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server = type("Server", (_Server,), {"mother": mother, "without": name})
    like = SimpleNamespace(Popen=server, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(launcher, "subprocess", like)
    with ddt.Session(2, hang_after=0.2) as session:
        run = session.run(HANG)
        shown = str(StatusView(session.status()))
    (finding,) = ddt.diagnose(run).findings
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0])
    feature = NAMES.get(name)
    missing = run.snapshot.missing_features
    assert [m.feature for m in missing] == ([feature.id] if feature is not None else [])
    for off in missing:
        assert off.lost in shown.replace("\n       ", " ")
        said = [fact.values["feature"] for fact in finding.facts if fact.kind == "not-seen"]
        assert said == ([off.feature] if off.concerns("D.2.1") else [])


@pytest.mark.usefixtures("fresh_server")
def test_without_any_private_name_ranks_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDT_TORCH_WITHOUT", ",".join(NAMES))
    with ddt.Session(2, hang_after=0.2) as session:
        run = session.run(TRAINING, trace=True)
        assert run.ok, run.errors
        report = ddt.diagnose(run)
        assert not report.findings, str(report)
        assert {m.feature for m in run.snapshot.missing_features} == set(FEATURES)
        for view in (ddt.memory, ddt.placement, ddt.timeline, ddt.collectives, ddt.partition):
            assert "Error" not in str(view(run))
        hung = ddt.diagnose(session.run(HANG))
        assert [f.ranks for f in hung.findings] == [[1]]
        again = session.run(TRAINING)  # the group was formed anew
        assert again.ok, again.errors
        assert not ddt.diagnose(again).findings


@pytest.mark.usefixtures("fresh_server")
def test_without_simulated_gpus_ranks_use_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDT_TORCH_WITHOUT", "torch._C._nn:_parse_to")
    with ddt.Session(2, simulate="cuda:2") as session:
        run = session.run("print(device, dist.get_world_size())")
        assert run.outputs == {0: "cpu 2\n", 1: "cpu 2\n"}
        assert [m.feature for m in run.snapshot.missing_features] == ["simulated-gpus"]
