"""Launchers that may be installed: each starts a job that hangs, and ends with its status.

``make test-trainers`` installs Accelerate, and ``make test-deepspeed`` DeepSpeed. Slurm is one node
of this machine, with a configuration of its own.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from ddt_notebook.jobs.recorded_job import RecordedJob

from .one_node_slurm import NO_SLURM, free_port, slurm
from .test_jobs import Job, _no_process_is_left, assert_gone, report

__all__ = ["_no_process_is_left", "slurm"]

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


@pytest.mark.skipif(bool(NO_SLURM), reason=NO_SLURM)
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
    port = f"--main_process_port={free_port()}"
    _check(tmp_path, (*launch, *options, "--dynamo_backend=no", port), 1, "torchrun")


@pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="make test-deepspeed installs DeepSpeed"
)
def test_deepspeed_launcher(tmp_path: Path) -> None:
    launch = (sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators=2")
    _check(tmp_path, (*launch, f"--master_port={free_port()}"), 3, "")
