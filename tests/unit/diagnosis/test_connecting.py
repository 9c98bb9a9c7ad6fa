"""What is said of ranks of several hosts that do not reach each other, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import RankError

from .builders import at, call, only, raised, rank, snapshot

TWO_HOSTS = {0: "node1", 1: "node2"}
MESH = "Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] "
LOOPBACK = MESH + "timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:13219$0"
DROPPED = MESH.replace("cc:152", "h:311") + "Connect timeout [198.18.0.2]:43723"
NO_WAY = (
    "[enforce fail at gloo/transport/tcp/socket.cc:142] rv != -1. connect: Network is unreachable"
)
SOURCE = "import torch\ngroup = dist.new_group()\n"


def set_up() -> Any:
    return call("new_group")


def cause(message: str, *, hosts: dict[int, str], second: bool = True) -> str | None:
    error = RankError(type="RuntimeError", message=message, where=at(2), call=0)
    calls = (set_up(),) if second else ()
    first = raised(0, set_up(), error=error, host=hosts[0])
    other = rank(1, *calls, blocked=second, host=hosts[1])
    return only(diagnose(snapshot(first, other, source=SOURCE, outcome="failed"))).cause


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (LOOPBACK, "loopback-address"),
        (DROPPED, "hosts-not-connected"),
        (NO_WAY, "interface-of-another-network"),
    ],
    ids=["loopback", "dropped", "no-way"],
)
def test_what_keeps_hosts_apart_is_named(message: str, expected: str) -> None:
    assert cause(message, hosts=TWO_HOSTS) == expected


@pytest.mark.parametrize("message", [LOOPBACK, DROPPED, NO_WAY], ids=["loopback", "dropped", "no"])
def test_ranks_of_one_host_reach_each_other_by_loopback(message: str) -> None:
    known = cause(message, hosts={0: "node1", 1: "node1"})
    assert known not in {"loopback-address", "hosts-not-connected", "interface-of-another-network"}


@pytest.mark.parametrize("message", [LOOPBACK, DROPPED, NO_WAY], ids=["loopback", "dropped", "no"])
def test_a_rank_that_has_not_come_may_be_the_cause(message: str) -> None:
    known = cause(message, hosts=TWO_HOSTS, second=False)
    assert known not in {"loopback-address", "hosts-not-connected", "interface-of-another-network"}
