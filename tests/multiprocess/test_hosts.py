"""A job on two hosts with a network of their own, which may share a folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt

from .test_jobs import (
    _MAIN,
    HANG,
    LIMIT_S,
    Job,
    _no_process_is_left,
    assert_gone,
    needs_hosts,
    report,
    script,
)

__all__ = ["_no_process_is_left"]

#: Addresses that belong to nobody (RFC 5737).
ADDRESSES = ("192.0.2.1", "192.0.2.2")
CLOCKS_APART_S = 5000


def _ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise OSError(done.stderr)


@pytest.fixture
def network() -> Iterator[list[str]]:
    """The names of two network namespaces that a cable connects."""
    names = [f"ddt{os.getpid()}-{number}" for number in range(2)]
    try:
        for name in names:
            _ip("netns", "add", name)
        one, other = names
        _ip("link", "add", "cable", "netns", one, "type", "veth", "peer", "cable", "netns", other)
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "cable", "up")
    except OSError as error:
        _remove(names)
        pytest.skip(f"the system permits no further networks: {error}")
    yield names
    _remove(names)


def _remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(
            ["ip", "netns", "del", name], capture_output=True, timeout=LIMIT_S, check=False
        )


@needs_hosts
@pytest.mark.parametrize("collected", [False, True], ids=["shared folder", "collected"])
def test_a_hang_across_a_network_is_reported_once(
    tmp_path: Path, network: list[str], collected: bool
) -> None:
    """Each host has its own name, network and clock, and starts a rank.

    If records are collected, the first rank is on the host that does not collect them.
    """
    folders = [tmp_path / f"job{number * collected}" for number in range(2)]
    folder = folders[0]
    to_one = ["--collect", f"{ADDRESSES[0]}:29499", "--record-inputs", "0"] if collected else []
    ranks = (1, 0) if collected else (0, 1)
    body = "for _ in range(5):\n    dist.all_reduce(torch.ones(1))\n"
    file = script(tmp_path, f"{body}{textwrap.dedent(HANG)}dist.barrier()")
    hosts = []
    for number, name in enumerate(network):
        ours = [sys.executable, "-c", _MAIN, "run", "--to", str(folders[number]), *to_one]
        ours += ["--on-hang", "stop", "--", sys.executable, str(file)]
        named = f"hostname node{ranks[number]}; exec {shlex.join(ours)}"
        clock = ["unshare", "--uts", "--time", "--monotonic", str(number * CLOCKS_APART_S)]
        command = ["ip", "netns", "exec", name, *clock, "--fork", "sh", "-c", named]
        launch = {"RANK": str(ranks[number]), "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
        launch |= {"MASTER_ADDR": ADDRESSES[ranks[0]], "GLOO_SOCKET_IFNAME": "cable"}
        hosts.append(Job.of(folders[number], command, **launch, DDT_JOB_KEY="k" * 40))
    (_, _, first), (_, _, second) = [host.end() for host in hosts]
    assert len(list(folder.glob("report-*.ddt.json"))) == 1
    assert ("hang D.2.1" in first, "hang D.2.1" in second) == (True, False)
    assert "rank 1 · node1 entered" in first
    kept_elsewhere = "the inputs of rank 0 are kept on node0; %ddt_replay runs it again there"
    assert (kept_elsewhere in first, f"%ddt_replay {folders[1]}" in second) == (collected,) * 2
    (finding,) = report(folder).findings
    assert {rank: place.code for rank, place in finding.places.items()} == {
        0: "dist.barrier()",
        1: "dist.all_reduce(loss)",
    }
    snapshot = ddt.Snapshot.load(folder / "report-1.ddt.json")
    assert "rank 0 · node0" in str(ddt.collectives(snapshot))
    assert re.search(r"rank (\d) · node\1 \+", ddt.collectives(snapshot).to_html())
    assert "rank 0 ran on node0, rank 1 on node1" in snapshot.notes
    (aligned,) = (note for note in snapshot.notes if "aligned by collectives" in note)
    assert "with an error of at most" in aligned
    # a collective ends on a host only after the ranks of the other have entered it
    for meeting in zip(*(rank.calls[1:7] for rank in snapshot.ranks), strict=True):
        last_s = max(call.entered_s or 0.0 for call in meeting)
        assert all((call.left_s or 0.0) > last_s - 1.0 for call in meeting)
    assert all((rank.blocked_s or 0.0) > 1 for rank in snapshot.ranks)
    assert_gone(hosts[0].pids)
