"""A session on many hosts, whose agents are real and whose ranks only answer."""

from __future__ import annotations

import subprocess
import threading

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.joining import Joining
from ddt_notebook.host.several_hosts import SeveralHosts
from ddt_notebook.wire.messages import RankSpec

from .simulated_hosts import start_all

HOSTS, RANKS = 8, 16
LIMIT_S = 200


def test_eight_hosts_start_their_ranks_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    together = threading.Barrier(HOSTS)
    start = SeveralHosts.start_rank

    def start_with_others(self: SeveralHosts, spec: RankSpec, *, fork: bool) -> object:
        if spec.rank < HOSTS:
            together.wait(LIMIT_S)  # returns only if as many ranks are started at the same time
        return start(self, spec, fork=fork)

    def say(text: str) -> None:
        if not started:
            started.extend(start_all(text, HOSTS, 1))

    monkeypatch.setattr(SeveralHosts, "start_rank", start_with_others)
    try:
        place = Joining(RANKS, HOSTS, "127.0.0.1", limit_s=LIMIT_S, say=say).place()
        with ddt.Session(RANKS, hosts=place) as session:
            run = session.run("pass")
            assert run.ok, run.errors
            assert run.snapshot.hosts == {rank: f"node{rank // 2}" for rank in range(RANKS)}
            assert not ddt.diagnose(run).findings
            assert [rank.state for rank in session.status().ranks] == ["ready"] * RANKS
            session.restart()
            assert session.run("pass").ok
        started[0].wait(60)  # they end with the session
    finally:
        for process in started:
            process.kill()
            process.wait(60)
