"""A real Slurm, whose only node is this machine, with a configuration of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_LIMIT_S = 90
#: Why there can be none; empty if there can be one.
NO_SLURM = (
    "" if all(map(shutil.which, ("srun", "slurmctld", "slurmd"))) else "Slurm is not installed"
) or ("" if os.geteuid() == 0 else "only root may start Slurm")


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[str]:
    """The configuration of a Slurm that runs; its node is this machine."""
    host = socket.gethostname().partition(".")[0]
    conf = tmp_path / "slurm.conf"
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    conf.write_text(
        "ClusterName=one\nSlurmUser=root\nAuthType=auth/none\nCredType=cred/none\n"
        "ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nMpiDefault=none\n"
        "JobAcctGatherType=jobacct_gather/none\nSelectType=select/linear\nReturnToService=2\n"
        f"SlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={free_port()}\nSlurmdPort={free_port()}\n"
        f"StateSaveLocation={tmp_path}/state\nSlurmdSpoolDir={tmp_path}/spool\n"
        f"SlurmctldPidFile={tmp_path}/controller\nSlurmdPidFile={tmp_path}/node\n"
        f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()}\n"
        f"PartitionName=all Nodes={host} Default=YES State=UP\n"
    )
    environment = os.environ | {"SLURM_CONF": str(conf)}
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", host]):
            with (tmp_path / command[0]).open("w") as log:
                daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        deadline = time.monotonic() + _LIMIT_S
        state = ""
        while "idle" not in state:
            assert time.monotonic() < deadline, state
            time.sleep(0.2)
            asked = ["sinfo", "--noheader", "--format=%T"]
            state = subprocess.run(
                asked,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            ).stdout
        yield str(conf)
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(_LIMIT_S)
