"""Jobs that a launcher starts, recorded by ``ddt-notebook run``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.jobs.recorded_job import RecordedJob, snapshot_of_folder

LIMIT_S = 90
_MAIN = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
HEAD = """
import sys, time
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(3))
"""
HANG = """
    threshold = 0.5 + rank
    loss = torch.tensor(1.0)
    if loss < threshold:
        dist.all_reduce(loss)
"""
TAIL = """

if __name__ == "__main__":
    main()
"""


class Job:
    """A command below ``ddt-notebook run``, and the folder to which it records."""

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        self.folder = folder
        command = [sys.executable, "-c", _MAIN, "run", "--to", folder, *arguments]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str, str]:
        """Exit status, output and errors, when it has ended."""
        output, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output, errors

    @property
    def pids(self) -> list[int]:
        """The ranks' processes so far."""
        return [int(file.stem.rpartition("-")[2]) for file in self.folder.glob("*.rank")]

    def wait_for(self, condition: str, ranks: int = 2) -> None:
        """Wait until the files that a condition names exist for all ranks."""
        deadline = time.monotonic() + LIMIT_S
        while len(list(self.folder.glob(condition))) < ranks:
            assert time.monotonic() < deadline, self.process.poll()
            time.sleep(0.05)


def script(folder: Path, body: str) -> Path:
    """A script of this body inside ``main()``, after one all_reduce."""
    file = folder / "train.py"
    file.write_text(HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + TAIL)
    return file


def assert_gone(pids: list[int]) -> None:
    """No process of the job may be left."""
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def report(folder: Path) -> ddt.Report:
    """The first saved report, diagnosed again from its snapshot."""
    return ddt.diagnose(ddt.Snapshot.load(folder / "report-1.ddt.json"))


def test_a_healthy_job_ends_as_it_would_alone(tmp_path: Path) -> None:
    body = """
    from torch.utils.data import DataLoader
    for _ in DataLoader(range(4), num_workers=1):
        dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {dist.get_world_size()}", flush=True)
    dist.destroy_process_group()
    """
    job = Job(tmp_path / "job", "--", *TORCHRUN, script(tmp_path, body))
    status, output, errors = job.end()
    assert status == 0, errors
    assert sorted(output.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    assert "2 ranks" in errors
    assert "no finding" in errors
    assert len(job.pids) == 2  # workers and the launcher record nothing
    snapshot = snapshot_of_folder(job.folder)
    assert [len(rank.calls) for rank in snapshot.ranks] == [7, 7]
    assert_gone(job.pids)


def test_a_rank_that_starts_late_is_not_missing(tmp_path: Path) -> None:
    file = script(tmp_path, "dist.destroy_process_group()")
    late = 'import os, time\nif os.environ["RANK"] == "0":\n    time.sleep(4)\n'
    file.write_text(late + file.read_text())
    job = Job(tmp_path / "job", "--on-hang", "stop", "--hang-after", "1", "--", *TORCHRUN, file)
    status, _, errors = job.end()
    assert status == 0, errors
    assert "no finding" in errors
    assert_gone(job.pids)


def test_a_hang_is_named_and_the_job_stopped(tmp_path: Path) -> None:
    file = script(tmp_path, HANG + "    dist.barrier()")
    job = Job(tmp_path / "job", "--on-hang", "stop", "--branches", "--", *TORCHRUN, file)
    status, _, errors = job.end()
    assert status == 1, errors
    (finding,) = report(job.folder).findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "collective-under-rank-condition")
    assert {place.line for place in finding.places.values()} == {14, 15}
    assert all(place.file == str(file) for place in finding.places.values())
    saved = json.loads((job.folder / "report-1.json").read_text())
    assert not saved["ok"]
    assert "hangs" in errors
    assert_gone(job.pids)


def test_an_exception_is_the_finding_and_the_launchers_signals_are_not(tmp_path: Path) -> None:
    body = """
    if rank == 1:
        raise ValueError("a bad sample")
    dist.all_reduce(torch.ones(3))
    """
    job = Job(tmp_path / "job", "--", *TORCHRUN, script(tmp_path, body))
    status, _, errors = job.end()
    assert status == 1, errors
    (finding,) = report(job.folder).findings
    assert (finding.kind, finding.ranks) == ("raised", [1])
    assert finding.places[1].line == 12
    assert_gone(job.pids)


@pytest.mark.parametrize(
    ("leaves", "status", "kinds"),
    [
        ("sys.exit(3 * rank)", 1, ["raised"]),
        ("import os; os._exit(0)", 0, []),
        ("import os; os._exit(4 * rank)", 1, ["died"]),
    ],
)
def test_ways_to_leave(tmp_path: Path, leaves: str, status: int, kinds: list[str]) -> None:
    job = Job(tmp_path / "job", "--", *TORCHRUN, script(tmp_path, f"dist.barrier()\n{leaves}"))
    returned, _, errors = job.end()
    assert returned == status, errors
    findings = report(job.folder).findings
    assert [finding.kind for finding in findings] == kinds
    assert all(finding.ranks == [1] for finding in findings)
    assert_gone(job.pids)


def test_a_hang_is_read_from_the_files_of_killed_ranks(tmp_path: Path) -> None:
    file = script(tmp_path, HANG + "    dist.barrier()")
    job = Job(tmp_path / "job", "--on-hang", "wait", "--hang-after", "60", "--", *TORCHRUN, file)
    job.wait_for("*.rank")
    deadline = time.monotonic() + LIMIT_S
    while not _all_wait(job.folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for pid in job.pids:
        os.kill(pid, signal.SIGKILL)
    status, _, errors = job.end()
    assert status == 1, errors
    snapshot = snapshot_of_folder(job.folder)
    assert [rank.state for rank in snapshot.ranks] == ["blocked", "blocked"]
    (finding,) = ddt.diagnose(snapshot).findings
    assert finding.symptom == "D.2.1"
    assert {place.line for place in finding.places.values()} == {14, 15}
    assert_gone(job.pids)


def _all_wait(folder: Path) -> bool:
    job = RecordedJob.load(folder)
    try:
        latest = [rank.calls[-1:] for rank in job.state().reports]
        ops = [(call.op, call.status) for calls in latest for call in calls]
        return sorted(ops) == [("all_reduce", "pending"), ("barrier", "pending")]
    finally:
        job.close()


SPAWN = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    if rank == 1:
        raise RuntimeError("no such file")
    dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(worker, args=(port,), nprocs=2)
"""


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_spawned_ranks_are_recorded_with_and_without_entry_points(
    tmp_path: Path, autoload: str
) -> None:
    file = tmp_path / "spawn.py"
    file.write_text(SPAWN)
    job = Job(tmp_path / "job", "--", sys.executable, file, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
    status, _, errors = job.end()
    assert status == 1, errors
    (finding,) = report(job.folder).findings
    assert (finding.kind, finding.ranks) == ("raised", [1])
    assert finding.places[1].line == 11
    assert_gone(job.pids)


def test_a_command_without_ranks_and_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    say = "import torch; print('alone'); raise SystemExit(3)"
    status, output, errors = Job(tmp_path / "job", "--", sys.executable, "-c", say).end()
    assert (status, output) == (3, "alone\n")
    assert "no rank was seen" in errors
    (tmp_path / "file").write_text("")
    status, output, errors = Job(tmp_path / "file" / "job", "--", sys.executable, "-c", say).end()
    assert (status, output) == (3, "alone\n")
    assert "the job is not recorded" in errors
