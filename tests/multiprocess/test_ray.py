"""A session on the nodes of a real Ray cluster, which are processes of this machine."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.engines.ray_cluster import RayCluster, _Agent, node_names, share_of_node
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.joining import start_with

from .processes import gone
from .ray_clusters import own_cluster

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="make test-hosts installs Ray"
)
#: A notebook's process, which is killed.
OWNER = """
import time
import ddt_notebook as ddt
from ddt_notebook.host.engines.ray_cluster import RayCluster
from ddt_notebook.host.joining import start_with
engine = RayCluster()
hosts = start_with(engine, engine.hosts, say=lambda text: None)
session = ddt.Session(2, hosts=hosts)
run = session.run("import os\\nprint(os.getpid(), os.getppid())")
print(" ".join(run.outputs.values()).replace("\\n", " "), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[int]:
    """The process that owns a cluster of two nodes with one CPU each."""
    with own_cluster(nodes=2, cpus=1) as owner:
        yield owner


@needs_ray
def test_one_agent_runs_on_each_node(cluster: int) -> None:
    import ray

    engine = RayCluster(4)
    assert [host.ranks for host in engine.hosts] == [2, 2]
    place = start_with(engine, engine.hosts, limit_s=200, say=lambda text: None)
    agents = [agent.hello.pid for agent in place.hub.agents]
    with ddt.Session(4, hosts=place, hang_after=0.5) as session:
        run = session.run("total = torch.ones(1)\ndist.all_reduce(total)\nprint(total.item())")
        assert set(run.outputs.values()) == {"4.0\n"}
        names = [host.name for host in engine.hosts]
        assert list(run.snapshot.hosts.values()) == [names[0], names[0], names[1], names[1]]
        hung = session.run("if rank == 3:\n    dist.barrier()")
        finding = ddt.diagnose(hung).findings[0]
        assert (finding.symptom, finding.ranks) == ("D.2.1", [0, 1, 2])
    assert gone(agents, within_s=30)
    assert not ray.is_initialized()
    again = RayCluster()  # the nodes were given back
    assert [host.ranks for host in again.hosts] == [1, 1]
    again.stop()


@needs_ray
def test_what_ray_does_not_give_is_said_in_time(cluster: int) -> None:
    with pytest.raises(SessionError, match="the Ray cluster has 2 nodes, not 3"):
        RayCluster(3, 3)
    first = RayCluster(2)
    try:
        taken = "Ray did not reserve 1 CPU on each of 2 nodes within 1 s"
        with pytest.raises(SessionError, match=taken):
            RayCluster(2, limit_s=1.0)
    finally:
        first.stop()


@needs_ray
def test_nothing_is_left_when_the_notebook_is_killed(cluster: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as notebook:
        assert notebook.stdout is not None
        started = [int(pid) for pid in re.findall(r"\d+", notebook.stdout.readline())]
        notebook.send_signal(signal.SIGKILL)
    assert len(started) == 4
    assert gone(started, within_s=30)


@needs_ray
def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(
        SessionError, match=r"no Ray cluster runs at RAY_ADDRESS=127.0.0.1:1: .*ray start"
    ):
        RayCluster()


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SessionError, match=re.escape("pip install 'ddt-notebook[ray]'")):
        RayCluster()


@pytest.mark.parametrize(
    ("resources", "nodes", "ranks", "expected"),
    [
        ([{"CPU": 8.0}, {"CPU": 6.0}], 2, None, (6, {"CPU": 6})),
        ([{"CPU": 8.0}, {"CPU": 6.0}], 1, None, (8, {"CPU": 8})),
        ([{"CPU": 1.0}, {"CPU": 1.0}], 2, 4, (2, {"CPU": 1})),
        (
            [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0, "GPU": 4.0}, {"CPU": 8.0}],
            2,
            None,
            (4, {"GPU": 4}),
        ),
        ([{"CPU": 64.0, "GPU": 8.0}], 1, 2, (2, {"GPU": 2})),
    ],
)
def test_the_share_of_each_node(
    resources: list[dict[str, float]], nodes: int, ranks: int | None, expected: object
) -> None:
    assert share_of_node(resources, nodes, ranks) == expected


def test_ranks_that_do_not_divide_among_the_nodes() -> None:
    with pytest.raises(SessionError, match="3 ranks do not divide among 2 nodes"):
        share_of_node([{"CPU": 2.0}] * 2, 2, 3)


def test_nodes_of_one_host_have_names_of_their_own() -> None:
    nodes = [{"NodeID": name, "NodeManagerHostname": host} for name, host in ("ax", "by", "cx")]
    assert node_names(nodes) == {"a": "x", "b": "y", "c": "x-2"}


def test_no_call_waits_for_an_agent() -> None:
    held = _Agent()
    said = held.start("echo torch is missing; exit 3", "key")
    deadline = time.monotonic() + 30
    while not said and time.monotonic() < deadline:
        said = held.end()
    assert said == "torch is missing"
    running = _Agent()
    assert not running.start("exec sleep 600", "key")
    assert not running.end()
    running.stop()
    assert "exit code -15" in running.end()
