"""A session on two hosts that are network namespaces with names of their own."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import zmq

import ddt_notebook as ddt
from ddt_notebook.host import host_comparison
from ddt_notebook.host.agent_link import AgentLink
from ddt_notebook.host.engines.ssh import Ssh
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.join_key import JoinKey
from ddt_notebook.host.joining import Joining, parse_hosts, start_with
from ddt_notebook.host.listeners import SilentListener, Stream
from ddt_notebook.views.preflight import PreflightView

from .network import Network, Shown, as_host, ip
from .processes import gone

LIMIT_S = 200
LONG = pytest.mark.skipif(
    not os.environ.get("DDT_TEST_HOSTS"), reason="takes long: make test-hosts runs it"
)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.make()
        subprocess.run(as_host(1, ["true"]), check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        made.remove()
        pytest.skip(f"the system permits no further networks: {error}")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def shown(network: Network) -> Shown:
    return Shown(network)


@pytest.fixture(scope="module")
def session(network: Network, shown: Shown) -> Iterator[ddt.Session]:
    place = Joining(4, 2, network.address, limit_s=LIMIT_S, say=shown).place()
    with ddt.Session(4, hosts=place) as session:
        yield session


SURROUNDINGS = """
import json, os
total = torch.tensor(float(rank))
dist.all_reduce(total)
names = "GLOO_SOCKET_IFNAME", "MASTER_ADDR", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"
known = [os.environ[name] for name in names]
print(json.dumps([total.item(), local_rank, os.uname().nodename, os.getcwd(), *known]))
"""


def test_each_rank_has_what_belongs_to_its_host(session: ddt.Session, network: Network) -> None:
    run = session.run(SURROUNDINGS)
    assert run.ok, run.errors
    there = [[f"node{node + 1}", "/", "eth0", f"{network.prefix}.1"] for node in (0, 1)]
    assert {rank: json.loads(text) for rank, text in run.outputs.items()} == {
        2 * node + local: [6.0, local, *there[node], str(local), "2", str(node)]
        for node in (0, 1)
        for local in (0, 1)
    }
    assert not ddt.diagnose(run).findings
    assert run.snapshot.hosts == {0: "node1", 1: "node1", 2: "node2", 3: "node2"}
    assert [rank.state for rank in session.status().ranks] == ["ready"] * 4
    deadline = time.monotonic() + LIMIT_S  # a busy host may answer too late
    while not all(rank.memory_bytes for rank in session.status().ranks):
        assert time.monotonic() < deadline


SAVES = """
def save():
    torch.save({{"epoch": 1}}, {path!r})

if rank == 0:
    save()
dist.barrier()
torch.load({path!r})
for turn in range(world_size):
    dist.barrier()
    if rank == turn:
        save()
"""


def test_what_each_host_times_is_put_on_one_clock(session: ddt.Session, tmp_path: Path) -> None:
    run = session.run(SAVES.format(path=str(tmp_path / "last.pt")), trace=True)
    assert run.ok, run.errors
    report = ddt.diagnose(run)
    assert not report.findings, str(report)
    snapshot = run.snapshot
    traced = {one.rank: one for one in snapshot.timeline}
    sampled = {one.rank: one for one in snapshot.memory}
    for saved in snapshot.checkpoints:
        calls = snapshot.rank(saved.rank).calls
        times = [traced[saved.rank].started_s, calls[0].entered_s]
        times += [saved.uses[-1].began_s, traced[saved.rank].ended_s]
        assert times == sorted(times)
        for other in (*traced.values(), *sampled.values()):  # the clocks are further apart
            assert abs(other.started_s - times[0]) < LIMIT_S


def test_long_output_arrives_before_the_cell_ends(session: ddt.Session) -> None:
    run = session.run("for line in range(20_000):\n    print(rank, line)")
    for rank, text in run.outputs.items():
        assert text.endswith(f"{rank} 19999\n")


def test_objects_travel_in_both_directions(session: ddt.Session) -> None:
    session.push(data=bytes(9_000_000))  # more than may be on its way at once
    assert session.pull("data", rank=3) == bytes(9_000_000)


def test_a_hang_is_named_with_its_host_and_variables_stay(session: ddt.Session) -> None:
    session.run("kept = 10 + rank")
    run = session.run("if rank != 2:\n    dist.barrier()")
    (finding,) = ddt.diagnose(run).findings
    assert (finding.ranks, finding.waiting) == ([2], [0, 1, 3])
    assert finding.cause == "collective-under-rank-condition"
    assert finding.places[0].code == "dist.barrier()"
    assert "rank 2 · node2" in finding.title
    freed = [run.snapshot.rank(number).error for number in (0, 1, 3)]
    times = [error.at_s for error in freed if error is not None and error.at_s is not None]
    assert len(times) == 3
    assert max(times) - min(times) < LIMIT_S  # the clocks of the hosts are further apart
    assert [session.pull("kept", rank) for rank in range(4)] == [10, 11, 12, 13]


def test_a_killed_rank_is_named_and_replaced(session: ddt.Session) -> None:
    run = session.run(
        "import os, signal\nif rank == 3:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()"
    )
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.ranks) == ("died", [3])
    assert list(run.lost) == [3]
    again = session.run("total = torch.ones(1)\ndist.all_reduce(total)\ntotal.item()")
    assert again.outputs[3] == "4.0\n"


def test_a_segmentation_fault_is_named_with_its_line(session: ddt.Session) -> None:
    run = session.run("import ctypes\nif rank == 1:\n    ctypes.string_at(0)\ndist.barrier()")
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.ranks) == ("died", [1])
    assert finding.places[1].line == 3


def test_nobody_else_can_join(session: ddt.Session, network: Network, shown: Shown) -> None:
    hub = session.pool.place.hub
    for number in range(200):  # connections that say something else
        with socket.create_connection((network.address, hub.port), 10) as foreign:
            foreign.sendall(os.urandom(number) if number % 2 else b"GET / HTTP/1.1\r\n\r\n")
    other_public, other_secret = zmq.curve_keypair()
    keys = [
        shown.key,  # it was good for one joining
        JoinKey(shown.key.notebook, other_secret),
        JoinKey(other_public, shown.key.agents_secret),
    ]
    for key in keys:
        with pytest.raises(SessionError):
            AgentLink(network.address, hub.port, key)
    assert session.run("dist.barrier()").ok
    assert len(hub.agents) == 2


def _troubles(view: PreflightView) -> dict[str, str]:
    return {check.name: check.seen for check in view.checks if check.verdict != "ok"}


def test_the_doctor_compares_the_hosts(session: ddt.Session, network: Network) -> None:
    said: list[str] = []
    view = ddt.doctor(bandwidth=True, progress=said.append)
    # the machine of the tests may have variables and a shared memory that are worth a warning
    own = {name for name in _troubles(view) if name in os.environ or "shared memory" in name}
    assert not set(_troubles(view)) - own
    assert view.preflight.machine == "node1, node2"
    assert len(said) == 2
    (tried,) = (check for check in view.checks if check.topic == "connections")
    assert tried.seen.startswith("each host reached each other one")
    links = view.preflight.links
    pairs = [(link.source, link.target) for link in links]
    assert pairs == [("node1", "node2"), ("node2", "node1")]
    assert all(link.trial.bytes_per_s and link.trial.round_trip_s for link in links)


def test_the_doctor_names_a_slow_connection(session: ddt.Session, network: Network) -> None:
    limit = ["rate", "20mbit", "burst", "32k", "latency", "400ms"]
    network.tc(2, "replace", "dev", "eth0", "root", "tbf", *limit)
    try:
        view = ddt.doctor(bandwidth=True)
    finally:
        network.tc(2, "del", "dev", "eth0", "root")
    seen = _troubles(view)["bandwidth of 1 connection"]
    assert " node2 → node1; these hosts reach " in seen
    assert {link.source: "bandwidth" in link.slow for link in view.preflight.links} == {
        "node1": False,
        "node2": True,
    }


def test_the_doctor_names_a_loopback_name_and_a_cut_connection(
    session: ddt.Session, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_comparison, "STEP_LIMIT_S", 1.0)
    network.name(node2="127.0.1.1")
    route = f"{network.prefix}.1/32"
    ip("-n", network.hosts[1], "route", "add", "unreachable", route)
    try:
        found = _troubles(ddt.doctor())
    finally:
        ip("-n", network.hosts[1], "route", "del", "unreachable", route)
        network.name()
    assert found["name of node2"] == "on node2, node2 is 127.0.1.1"
    assert "name of node1" not in found
    assert found["node1 → node2"] == f"no answer at {network.prefix}.2"
    assert found["node2 → node1"] == f"unreachable at {network.prefix}.1 (No route to host)"
    assert session.run("dist.barrier()").ok


def test_the_doctor_names_a_way_that_loses_packets_of_full_size(
    session: ddt.Session, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_comparison, "STEP_LIMIT_S", 1.0)
    # only what the hosts send to each other is lost: the session's own packets are small
    network.limit_packets_of_session("1400")
    for host in network.hosts:  # else a packet is not cut on a network without a cable
        ip("-n", host, "link", "set", "eth0", "gso_max_segs", "1")
    ip("link", "set", network.cables[1], "mtu", "1480")
    try:
        found = _troubles(ddt.doctor())
    finally:
        ip("link", "set", network.cables[1], "mtu", "1500")
    assert found["node1 → node2"] == f"stalled at {network.prefix}.2"
    assert found["node2 → node1"] == f"stalled at {network.prefix}.1"
    assert session.run("dist.barrier()").ok


SLEEPS = """
import time
if rank == 1:
    print("sleeps")
    time.sleep(100)
dist.barrier()
"""


class _KillsAtOutput(SilentListener):
    """Kills processes when a rank prints."""

    def __init__(self, *processes: psutil.Process) -> None:
        self._processes = processes

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_the_loss_of_an_agent_is_named(session: ddt.Session) -> None:
    (lost,) = (agent for agent in session.pool.place.hub.agents if agent.name == "node2")
    agent = psutil.Process(lost.hello.pid)
    left = [child.pid for child in agent.children(recursive=True)]
    assert set(session.pids[2:]) <= set(left)
    run = session.run_cell(
        "import time\nif rank == 3:\n    print('sleeps')\n    time.sleep(100)\ndist.barrier()",
        listener=_KillsAtOutput(agent),
    )
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.ranks, finding.values["host"]) == ("host-lost", [2, 3], "node2")
    assert "node2" in finding.title
    assert gone(left, within_s=30)
    assert "node2" in _troubles(ddt.doctor())
    with pytest.raises(SessionError, match=r"node2 .*: stop this session") as refused:
        session.run("pass")
    assert "restart" not in str(refused.value)


NOTEBOOK = """
import sys, time
import ddt_notebook as ddt
from ddt_notebook.host.joining import Joining

def say(text):
    print(text.splitlines()[0], flush=True)

place = Joining(4, 2, sys.argv[1], limit_s=float(sys.argv[2]), say=say).place()
with ddt.Session(4, hosts=place) as session:
    folders = [session.pool.directory, *(agent.hello.directory for agent in place.hub.agents)]
    print("ready", *session.pids, *folders, flush=True)
    run = session.run("import time\\nif rank == 0:\\n    time.sleep(100)\\ndist.barrier()")
    for finding in ddt.diagnose(run).findings:
        print("found", finding.kind, finding.values.get("host"), flush=True)
    time.sleep(1000)
"""


def test_nothing_is_left_after_a_cut_cable_and_a_killed_notebook(network: Network) -> None:
    """The host whose cable is cut ends its ranks; the other one when the notebook is killed."""
    notebook = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK, network.address, str(LIMIT_S)],
        stdout=subprocess.PIPE,
        text=True,
    )
    network.processes.append(notebook)
    assert notebook.stdout is not None
    agents = network.start_agents(notebook.stdout.readline())
    line = "-"
    while line and not line.startswith("ready"):
        line = notebook.stdout.readline()
    ranks, folders = [int(pid) for pid in line.split()[1:5]], map(Path, line.split()[5:])
    trees = [
        [agent.pid, *(child.pid for child in psutil.Process(agent.pid).children(recursive=True))]
        for agent in agents
    ]
    assert set(ranks) <= {pid for tree in trees for pid in tree}
    ip("link", "set", network.cables[1], "down")
    agents[1].wait(60)
    assert gone(trees[1], within_s=30)
    assert notebook.stdout.readline().split() == ["found", "host-lost", "node2"]
    assert psutil.pid_exists(ranks[0])
    notebook.kill()
    for process in (notebook, agents[0]):
        process.wait(60)
    assert gone(trees[0], within_s=30)
    deadline = time.monotonic() + 30
    left = list(folders)
    while any(folder.exists() for folder in left) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [folder for folder in left if folder.exists()]


SSH = """
Host *
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
Host alpha
  HostName {prefix}.1
Host beta
  HostName {prefix}.2
"""
SSHD = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
"""


@pytest.fixture(scope="module")
def ssh(network: Network, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The user's ssh, which reaches a server on each host."""
    tmp_path = tmp_path_factory.mktemp("ssh")
    server = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("there is no ssh server to be tested with")
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]
    subprocess.run(key, check=True, timeout=60)
    names = {"folder": tmp_path, "prefix": network.prefix, "user": getpass.getuser()}
    (tmp_path / "ssh").write_text(SSH.format(**names))
    (tmp_path / "sshd").write_text(SSHD.format(**names))
    Path("/run/sshd").mkdir(exist_ok=True)
    for number, host in enumerate(network.hosts, 1):
        ip("link", "set", network.cables[number - 1], "up")
        serve = [server, "-D", "-e", "-f", str(tmp_path / "sshd")]
        command = ["ip", "netns", "exec", host, *as_host(number, serve)]
        network.processes.append(subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL))
    command = ["ssh", "-F", str(tmp_path / "ssh")]
    deadline = time.monotonic() + 60
    for host in ("alpha", "beta"):
        while subprocess.run([*command, host, "true"], check=False, timeout=60).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    return command


def _list(output: str) -> str:
    """The line with a list of numbers and words."""
    return next(line for line in output.splitlines() if line.startswith("[3.0"))


def test_ssh_starts_the_agents(network: Network, ssh: list[str]) -> None:
    wanted = parse_hosts("beta:1,alpha:2")
    shown: list[str] = []
    place = start_with(Ssh(wanted, ssh), wanted, limit_s=LIMIT_S, say=shown.append)
    agents = [agent.hello.pid for agent in place.hub.agents]
    try:
        assert "missing: beta, alpha" in shown[0]
        with ddt.Session(3, hosts=place) as session:
            assert place.hub.address == "127.0.0.1"
            run = session.run(SURROUNDINGS)
            assert run.snapshot.hosts == {0: "beta", 1: "alpha", 2: "alpha"}
            # PyTorch may warn, before or after, that an address has no name
            told = [json.loads(_list(run.outputs[rank])) for rank in range(3)]
            assert [one[1:3] for one in told] == [[0, "node2"], [0, "node1"], [1, "node1"]]
            assert {one[5] for one in told} == {f"{network.prefix}.2"}
            assert {one[3] for one in told} == {os.getcwd()}
    finally:
        place.close()
    assert gone(agents, within_s=30)
    with pytest.raises(SessionError, match="no agent could be started on nowhere"):
        start_with(Ssh(parse_hosts("nowhere"), ssh), parse_hosts("nowhere"), say=shown.append)


@LONG
def test_a_killed_ssh_server_ends_its_host_only(network: Network, ssh: list[str]) -> None:
    wanted = parse_hosts("alpha:1,beta:1")
    place = start_with(Ssh(wanted, ssh), wanted, limit_s=LIMIT_S, say=lambda text: None)
    first, second = (
        place.hub.agents if place.hub.agents[0].name == "alpha" else place.hub.agents[::-1]
    )
    left = [second.hello.pid, *(c.pid for c in psutil.Process(second.hello.pid).children(True))]
    above = psutil.Process(second.hello.pid).parents()
    servers = [one for one in above if one.name() == "sshd"]
    try:
        assert servers
        with ddt.Session(2, hosts=place) as session:
            left += session.pids[1:]
            run = session.run_cell(
                SLEEPS,
                listener=_KillsAtOutput(*servers),
            )
            (finding,) = ddt.diagnose(run).findings
            assert (finding.kind, finding.ranks) == ("host-lost", [1])
            assert finding.values["host"] == "beta"
            assert gone(left, within_s=30)
            assert psutil.pid_exists(first.hello.pid)
    finally:
        place.close()
    assert gone([first.hello.pid], within_s=30)


@LONG
def test_three_hosts() -> None:
    network = Network(3)
    try:
        network.make()
        place = Joining(3, 3, network.address, limit_s=LIMIT_S, say=Shown(network)).place()
        with ddt.Session(3, hosts=place) as session:
            run = session.run("total = torch.ones(1)\ndist.all_reduce(total)\nprint(total.item())")
            assert run.outputs == dict.fromkeys(range(3), "3.0\n")
            run = session.run("if rank != 2:\n    dist.barrier()")
            (finding,) = ddt.diagnose(run).findings
            assert (finding.ranks, finding.waiting) == ([2], [0, 1])
            assert "rank 2 · node3" in finding.title
            limit = ["rate", "20mbit", "burst", "32k", "latency", "400ms"]
            network.tc(3, "replace", "dev", "eth0", "root", "tbf", *limit)
            slow = [name for name in _troubles(ddt.doctor(bandwidth=True)) if "bandwidth" in name]
            assert any("node3" in name for name in slow)
            agents = {agent.name: agent.hello.pid for agent in place.hub.agents}
            lost = psutil.Process(agents["node2"])
            run = session.run_cell(
                SLEEPS,
                listener=_KillsAtOutput(lost),
            )
            (finding,) = ddt.diagnose(run).findings
            assert (finding.kind, finding.values["host"]) == ("host-lost", "node2")
        assert gone(list(agents.values()), within_s=30)
    finally:
        network.remove()
