"""Launchers that may be installed: each starts a job that hangs, and ends with its status.

``make test-trainers`` installs Accelerate, and ``make test-deepspeed`` DeepSpeed. Slurm is one node
of this machine, with a configuration of its own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddt_notebook.jobs.recorded_job import RecordedJob

from .test_jobs import LIMIT_S, Job, _no_process_is_left, assert_gone, report

__all__ = ["_no_process_is_left"]

#: Rank 1 leaves with status 3 when the hang was reported.
SCRIPT = """
import os, threading, time
import torch
import torch.distributed as dist

def number(*names):
    return next(int(os.environ[name]) for name in names if name in os.environ)

def leave():
    while not os.path.exists("REPORT"):
        time.sleep(0.1)
    os._exit(3)

rank = number("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
size = number("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
dist.init_process_group("gloo", init_method="file://STORE", rank=rank, world_size=size)
if rank == 1:
    threading.Thread(target=leave, daemon=True).start()
if rank == 0:
    dist.all_reduce(torch.ones(2))
dist.barrier()
"""
LINES = {0: 19, 1: 20}
_NO_SLURM = (
    "" if all(map(shutil.which, ("srun", "slurmctld", "slurmd"))) else "Slurm is not installed"
) or ("" if os.geteuid() == 0 else "only root may start Slurm")


def _port() -> int:
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
        f"SlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={_port()}\nSlurmdPort={_port()}\n"
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
        deadline = time.monotonic() + LIMIT_S
        state = ""
        while "idle" not in state:
            assert time.monotonic() < deadline, state
            time.sleep(0.2)
            asked = ["sinfo", "--noheader", "--format=%T"]
            state = subprocess.run(
                asked, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            ).stdout
        yield str(conf)
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(LIMIT_S)


def _check(folder: Path, launcher: tuple[str, ...], status: int, known_as: str) -> None:
    """The hang is named with its lines, and the launcher's status passes through."""
    file, record = folder / "train.py", folder / "job"
    text = SCRIPT.replace("STORE", str(folder / "store"))
    file.write_text(text.replace("REPORT", str(record / "report-1.json")).lstrip("\n"))
    # Open MPI refuses to run as root unless both are set
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = Job(record, "--hang-after", "1", "--", *launcher, file, **root)
    returned, _, errors = job.end()
    assert returned == status, errors
    (finding,) = report(record).findings
    assert {rank: place.line for rank, place in finding.places.items()} == LINES, errors
    recorded = RecordedJob.load(record)
    assert [one.started.launcher for one in recorded.ranks] == [known_as] * 2
    recorded.close()
    assert_gone(job.pids)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_mpirun(tmp_path: Path) -> None:
    _check(tmp_path, ("mpirun", "-n", "2", "--oversubscribe", sys.executable), 3, "mpirun")


@pytest.mark.skipif(bool(_NO_SLURM), reason=_NO_SLURM)
def test_srun(tmp_path: Path, slurm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm)
    _check(tmp_path, ("srun", "-n", "2", "--overcommit", sys.executable), 3, "srun")


@pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="make test-trainers installs Accelerate"
)
def test_accelerate_launch(tmp_path: Path) -> None:
    """Only with ``--multi_gpu`` it starts more than one process; the ranks use the CPU."""
    launch = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu")
    options = ("--num_processes=2", "--num_machines=1", "--mixed_precision=no")
    port = f"--main_process_port={_port()}"
    _check(tmp_path, (*launch, *options, "--dynamo_backend=no", port), 1, "torchrun")


@pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="make test-deepspeed installs DeepSpeed"
)
def test_deepspeed_launcher(tmp_path: Path) -> None:
    launch = (sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators=2")
    _check(tmp_path, (*launch, f"--master_port={_port()}"), 3, "")
