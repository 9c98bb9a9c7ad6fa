"""A session in an allocation of Slurm; its stand-ins start real agents on this machine.

The last test uses a real Slurm of one node, where it is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.engines import slurm
from ddt_notebook.host.engines.slurm import Allocation, Slurm, ranks_of_nodes
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.joining import HostWanted, start_with

from .one_node_slurm import NO_SLURM
from .one_node_slurm import slurm as real_slurm
from .processes import descendants, gone

__all__ = ["real_slurm"]

SRUN = """#!/bin/sh
printf '%s\\n' "$@" > "$0.words"
env | grep -o '^SLURM[A-Z_]*' > "$0.variables"
echo $$ > "$0.pid"
while [ "$1" != sh ]; do shift; done
for node in node10 node9; do
  (SLURMD_NODENAME=$node "$@" || echo "srun: error: $node: task 0: Exited with exit code $?" >&2) &
done
wait
"""
SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames node[9-10]" ] && printf 'node9\\nnode10\\n'
"""
SALLOC = """#!/bin/sh
echo $$ > "$0.pid"
printf '%s\\n' "$@" > "$0.words"
echo "salloc: Pending job allocation 8" >&2
case "$*" in
  *--never*) exec sleep 600;;
  *--unknown*) printf "salloc: unrecognized option '--unknown'\nTry --help\n" >&2; exit 1;;
  *--odd*) echo "salloc: error: Unable to allocate resources: Invalid qos" >&2; exit 1;;
esac
while [ "$1" != sh ]; do shift; done
export SLURM_JOB_ID=8 SLURM_JOB_NODELIST='node[9-10]' SLURM_NTASKS_PER_NODE=2
"$@"
"""


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allocation of two nodes, and where its srun notes how it was called."""
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "salloc": SALLOC}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[9-10]")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "1")
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "1")
    return tmp_path / "srun"


def test_srun_starts_one_agent_on_each_node(srun: Path) -> None:
    engine = Slurm(address="127.0.0.1")
    assert engine.hosts == [HostWanted("node9", 1), HostWanted("node10", 1)]
    place = start_with(engine, engine.hosts, limit_s=200, say=lambda text: None)
    processes = [int(Path(f"{srun}.pid").read_text()), *(a.hello.pid for a in place.hub.agents)]
    with ddt.Session(2, hosts=place) as session:
        run = session.run(
            "import os\ntotal = torch.ones(1)\ndist.all_reduce(total)\n"
            "print(total.item(), os.environ['SLURMD_NODENAME'], os.environ.get('DDT_JOIN'))"
        )
        assert run.outputs == {0: "2.0 node9 None\n", 1: "2.0 node10 None\n"}
        assert run.snapshot.hosts == {0: "node9", 1: "node10"}
        words = Path(f"{srun}.words").read_text()
        assert place.hub.key.to_text() not in words
        assert {"--overlap", "--ntasks-per-node=1", "--mem=0"} <= set(words.splitlines())
    assert "SLURM_GPUS_PER_TASK" not in Path(f"{srun}.variables").read_text().split()
    assert gone(processes, within_s=30)


def test_salloc_gives_an_allocation_until_the_session_stops(
    srun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    salloc = srun.with_name("salloc")
    allocation = Allocation(["--nodes=2", "--comment=two words"], limit_s=60)
    words = Path(f"{salloc}.words").read_text().splitlines()
    assert words[:2] == ["--nodes=2", "--comment=two words"]
    engine = Slurm(2, "127.0.0.1", allocation)
    assert engine.hosts == [HostWanted("node9", 1), HostWanted("node10", 1)]
    place = start_with(engine, engine.hosts, limit_s=200, say=lambda text: None)
    with ddt.Session(2, hosts=place) as session:
        run = session.run("import os\nprint(os.environ['SLURM_JOB_ID'])")
        assert run.outputs == {0: "8\n", 1: "8\n"}
        processes = [int(Path(f"{one}.pid").read_text()) for one in (srun, salloc)]
        processes += descendants(processes)
    assert gone(processes, within_s=30)


def test_an_allocation_is_given_back_if_the_notebook_cannot_listen(srun: Path) -> None:
    engine = Slurm(2, "192.0.2.7", Allocation(["--nodes=2"], limit_s=60))
    with pytest.raises(SessionError, match=r"cannot listen at 192\.0\.2\.7"):
        start_with(engine, engine.hosts, limit_s=60, say=lambda text: None)
    assert gone([int(srun.with_name("salloc.pid").read_text())], within_s=30)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("--odd", "salloc gave no allocation: salloc: error: Unable to allocate resources: Inv"),
        ("--unknown", "salloc gave no allocation: salloc: unrecognized option '--unknown'"),
        ("--never", "no allocation came within 1 s: salloc: Pending job allocation 8"),
    ],
)
def test_no_allocation(srun: Path, option: str, why: str) -> None:
    said: list[str] = []
    with pytest.raises(SessionError, match=re.escape(why)):
        Allocation([option], limit_s=1.0, say=said.append)
    assert said == ["waiting for Slurm: salloc: Pending job allocation 8"] * len(said)
    assert gone([int(srun.with_name("salloc.pid").read_text())], within_s=30)


def test_a_node_without_an_agent_is_named(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = '[ "$SLURMD_NODENAME" = node9 ] && exit 0; echo no torch here; exit 3'
    monkeypatch.setattr(slurm, "agent_command", lambda notebook, label: command)
    engine = Slurm(2, "127.0.0.1")
    why = "no agent could be started on node10: no torch here (Exited with exit code 3)"
    with pytest.raises(SessionError, match=re.escape(why)):
        start_with(engine, engine.hosts, limit_s=60, say=lambda text: None)
    assert gone([int(Path(f"{srun}.pid").read_text())], within_s=30)


def test_scontrol_that_fails(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-")
    with pytest.raises(SessionError, match="scontrol does not tell the nodes"):
        Slurm()


@pytest.mark.parametrize(
    ("environment", "ranks", "expected"),
    [
        ({"SLURM_NTASKS_PER_NODE": "4"}, 6, [3, 3]),
        ({"SLURM_NTASKS_PER_NODE": "4", "SLURM_GPUS_PER_NODE": "8"}, None, [4, 4]),
        ({"SLURM_NTASKS": "5", "SLURM_TASKS_PER_NODE": "3,2"}, None, [3, 2]),
        ({"SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_GPUS_PER_NODE": "a100:4"}, None, [4, 4]),
        ({"SLURM_JOB_CPUS_PER_NODE": "8(x2)"}, None, [8, 8]),
        ({"SLURM_JOB_CPUS_PER_NODE": "8,6", "SLURM_CPUS_PER_TASK": "4"}, None, [2, 1]),
    ],
)
def test_the_ranks_of_each_node(
    environment: dict[str, str], ranks: int | None, expected: list[int]
) -> None:
    assert ranks_of_nodes(environment, 2, ranks) == expected


def test_ranks_that_nothing_tells_or_that_do_not_divide() -> None:
    with pytest.raises(SessionError, match="3 ranks do not divide among the 2 nodes"):
        ranks_of_nodes({}, 2, 3)
    for odd in ({}, {"SLURM_JOB_CPUS_PER_NODE": "8(x"}, {"SLURM_JOB_CPUS_PER_NODE": "8"}):
        with pytest.raises(SessionError, match="give -n"):
            ranks_of_nodes(odd, 2)


@pytest.mark.skipif(bool(NO_SLURM), reason=NO_SLURM)
def test_a_real_allocation(real_slurm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", real_slurm)
    allocation = Allocation(["--nodes=1", "--ntasks=2", "--overcommit"], limit_s=60)
    engine = Slurm(allocation=allocation)
    assert [host.ranks for host in engine.hosts] == [2]
    place = start_with(engine, engine.hosts, limit_s=200, say=lambda text: None)
    with ddt.Session(2, hosts=place) as session:
        run = session.run("total = torch.ones(1)\ndist.all_reduce(total)\nprint(total.item())")
        assert set(run.outputs.values()) == {"2.0\n"}
    deadline = time.monotonic() + 60
    while left := subprocess.check_output(["squeue", "--noheader"], timeout=60):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
