"""Jobs that a launcher starts, recorded by ``ddt-notebook run``."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.host.limits import GPUS_SIMULATED
from ddt_notebook.jobs import recorder_folder
from ddt_notebook.jobs.recorded_job import RecordedJob, snapshot_of_folder
from ddt_notebook.model.codec import FormatError
from ddt_notebook.wire import job_files

LIMIT_S = 90
_MAIN = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
#: With a port of its own: another job of this machine may use the usual one.
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--nproc-per-node", "2"),
)
#: Starts two processes, which find each other by variables. The first argument names the variables
#: of a rank and of the world size.
START_TWO = """
import os, socket, subprocess, sys
kept = socket.socket()  # bound until the ranks have ended: nothing else is given this port
kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
kept.bind(("127.0.0.1", 0))
meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(kept.getsockname()[1])}
rank, size = sys.argv[1].split()
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[2:]], env=os.environ | meet | {rank: str(number), size: "2"}
    )
    for number in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
#: A launcher that does nothing else: it starts in half of the time that torchrun needs.
TWO = (sys.executable, "-c", START_TWO, "RANK WORLD_SIZE")
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

    started: ClassVar[list[Job]] = []

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        command = [sys.executable, "-c", _MAIN, "run", "--to", folder, *arguments]
        self._start(folder, command, environment)

    @classmethod
    def of(cls, folder: Path, command: Sequence[object], **environment: str) -> Job:
        """A whole command that records to a folder."""
        job = cls.__new__(cls)
        job._start(folder, command, environment)
        return job

    def _start(
        self, folder: Path, command: Sequence[object], environment: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            start_new_session=True,
        )
        self.started.append(self)

    def end(self) -> tuple[int, str, str]:
        """Exit status, output and errors, when it has ended."""
        output, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output, errors

    def reported(self, limit_s: float) -> ddt.Snapshot:
        """What it saved last, when it has ended; no rank may have failed to record itself."""
        _, errors = self.process.communicate(timeout=limit_s)
        assert not [*self.folder.glob("*.failed")], errors
        saved = sorted(self.folder.glob("report-*.ddt.json"))
        assert saved, errors
        return ddt.Snapshot.load(saved[-1])

    def kill(self) -> None:
        """End what is left of the command and of its ranks, as if all at once.

        All are suspended first: a rank must not see how another one ends.
        """
        left: set[psutil.Process] = set()
        for pid in (self.process.pid, *self.pids):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                left |= {process, *process.children(recursive=True)}
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    act(process)
        self.process.wait(LIMIT_S)

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


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """End the processes of a test that failed."""
    yield
    for job in Job.started:
        job.kill()
    Job.started.clear()


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
    import os
    os.write(1, f"rank {rank} of {dist.get_world_size()}\\n".encode())  # in one piece
    dist.destroy_process_group()
    """
    command = (*TORCHRUN, script(tmp_path, body))
    job = Job(tmp_path / "job", "--", *command)
    status, output, errors = job.end()
    assert status == 0, errors
    assert sorted(output.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    assert "2 ranks" in errors
    assert "no finding" in errors
    assert len(job.pids) == 2  # workers and the launcher record nothing
    snapshot = snapshot_of_folder(job.folder)
    assert [len(rank.calls) for rank in snapshot.ranks] == [7, 7]
    assert_gone(job.pids)


def test_a_job_for_gpus_runs_on_simulated_ones(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        HEAD.replace("gloo", "nccl").replace("torch.ones(3)", "torch.ones(3).cuda()")
        + "    torch.ones(2).cuda() + torch.ones(2)"
        + TAIL
    )
    job = Job(tmp_path / "job", "--simulate", "cuda:2", "--", *TWO, file)
    _, _, errors = job.end()
    (finding,) = report(job.folder).findings
    assert finding.symptom == "D.1.3", errors
    assert GPUS_SIMULATED in errors
    assert [len(rank.calls) for rank in snapshot_of_folder(job.folder).ranks] == [2, 2]
    assert_gone(job.pids)


def test_a_rank_that_starts_late_is_not_missing(tmp_path: Path) -> None:
    file = script(tmp_path, "dist.destroy_process_group()")
    late = 'import os, time\nif os.environ["RANK"] == "0":\n    time.sleep(4)\n'
    file.write_text(late + file.read_text())
    job = Job(tmp_path / "job", "--on-hang", "stop", "--hang-after", "1", "--", *TWO, file)
    status, _, errors = job.end()
    assert status == 0, errors
    assert "no finding" in errors
    assert_gone(job.pids)


def test_a_hang_is_named_and_the_job_stopped(tmp_path: Path) -> None:
    file = script(tmp_path, HANG + "    dist.barrier()")
    options = ("--on-hang", "stop", "--hang-after", "1", "--branches")
    job = Job(tmp_path / "job", *options, "--", *TWO, file)
    status, _, errors = job.end()
    assert status == 128 + signal.SIGTERM, errors
    assert len(job.pids) == 2  # none is left behind its launcher, which does not end them
    (finding,) = report(job.folder).findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "collective-under-rank-condition")
    assert {place.line for place in finding.places.values()} == {14, 15}
    assert all(place.file == str(file) for place in finding.places.values())
    assert ddt.diagnose(snapshot_of_folder(job.folder)).findings == [finding]
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


def test_an_exception_before_the_group_is_formed(tmp_path: Path) -> None:
    file = script(tmp_path, "dist.barrier()")
    helper = """
import os, subprocess
if os.environ["RANK"] == "0":
    subprocess.run([sys.executable, "-c", "import torch; raise KeyError('of a helper')"])
else:
    import no_such_package
"""
    file.write_text(file.read_text().replace("\n\ndef main", f"{helper}\n\ndef main", 1))
    job = Job(tmp_path / "job", "--", *TORCHRUN, file)
    status, _, errors = job.end()
    assert status == 1, errors
    (finding,) = report(job.folder).findings
    assert (finding.kind, finding.ranks) == ("raised", [1])
    assert finding.places[1].line == 10
    assert_gone(job.pids)


@pytest.mark.parametrize(
    ("leaves", "status", "kinds"),
    [
        ("sys.exit(3 * rank)", 3, ["raised"]),
        ("import os; os._exit(0)", 0, []),
        ("import os; os._exit(4 * rank)", 4, ["died"]),
    ],
)
def test_ways_in_which_a_rank_ends_itself(
    tmp_path: Path, leaves: str, status: int, kinds: list[str]
) -> None:
    job = Job(tmp_path / "job", "--", *TWO, script(tmp_path, f"dist.barrier()\n{leaves}"))
    returned, _, errors = job.end()
    assert returned == status, errors
    findings = report(job.folder).findings
    assert [finding.kind for finding in findings] == kinds
    assert all(finding.ranks == [1] for finding in findings)
    assert_gone(job.pids)


TRAINS = """
    import os
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    if rank == 1:
        model.module.weight.data.add_(1)
    stops = torch.zeros(1)
    while not stops:
        optimizer.zero_grad()
        model(torch.ones(2, 200)).sum().backward()
        optimizer.step()
        stops.fill_(os.path.exists("FILE"))
        dist.all_reduce(stops)
    if rank == 0:
        dist.barrier()
    else:
        model(torch.ones(2, 200)).sum().backward()  # DDP waits with a lock of its own
"""


def test_ranks_are_asked_while_they_train_and_while_they_hang(tmp_path: Path) -> None:
    file = script(tmp_path, TRAINS.replace("FILE", str(tmp_path / "stop")))
    job = Job(tmp_path / "job", "--on-hang", "wait", "--hang-after", "60", "--", *TWO, file)
    job.wait_for("*.rank")
    deadline = time.monotonic() + LIMIT_S
    trains = snapshot_of_folder(job.folder)
    while not (trains.running and trains.running.step and all(p.objects for p in trains.placement)):
        assert time.monotonic() < deadline, trains.running
        trains = snapshot_of_folder(job.folder)
    (tmp_path / "stop").touch()
    hangs = snapshot_of_folder(job.folder)
    while [rank.state for rank in hangs.ranks] != ["blocked", "blocked"]:
        assert time.monotonic() < deadline
        hangs = snapshot_of_folder(job.folder)
    assert hangs.running is not None
    assert hangs.running.stood
    assert hangs.running.step >= trains.running.step
    for snapshot in (trains, hangs):
        assert not snapshot.running.unanswered
        (flag,) = ddt.parity(snapshot).flags
        assert flag.kind == "error"
        different = ddt.parity(snapshot).to_frame().query("not equal")
        assert set(different["name"]) == {"model.weight"}
        assert [m.parts["parameters"] for m in snapshot.memory] == [4 * 200 * 201] * 2
        assert {one.name for p in snapshot.placement for one in p.objects} >= {"model", "optimizer"}
    job.kill()


def test_a_hang_is_read_from_the_files_of_killed_ranks_soon_later_and_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = script(tmp_path, HANG + "    dist.barrier()")
    job = Job(tmp_path / "job", "--on-hang", "wait", "--hang-after", "60", "--", *TWO, file)
    job.wait_for("*.rank")
    deadline = time.monotonic() + LIMIT_S
    while not _all_wait(job.folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # as if the watcher had been killed, too: it notes how ranks ended
    unwatched = shutil.copytree(
        job.folder, tmp_path / "unwatched", symlinks=True, ignore=shutil.ignore_patterns("*.sock")
    )
    waited_s = time.monotonic()
    for pid in job.pids:
        os.kill(pid, signal.SIGKILL)
    status, _, errors = job.end()
    assert status == 256 - signal.SIGKILL, errors
    assert_gone(job.pids)
    snapshot = snapshot_of_folder(job.folder)
    assert [rank.state for rank in snapshot.ranks] == ["blocked", "blocked"]
    (finding,) = ddt.diagnose(snapshot).findings
    assert finding.symptom == "D.2.1"
    assert {place.line for place in finding.places.values()} == {14, 15}
    waited_s = time.monotonic() - waited_s + LIMIT_S
    now = time.monotonic
    for later_s, host in ((7200.0, socket.gethostname()), (-7200.0, "another-machine")):
        with monkeypatch.context() as changed:
            changed.setattr(time, "monotonic", lambda later_s=later_s: now() + later_s)
            changed.setattr(socket, "gethostname", lambda host=host: host)
            snapshot = snapshot_of_folder(unwatched)
        assert [rank.state for rank in snapshot.ranks] == ["blocked", "blocked"]
        assert all(0 <= (rank.blocked_s or 0.0) < waited_s for rank in snapshot.ranks)
        assert ddt.diagnose(snapshot).findings[0].symptom == "D.2.1"


def _all_wait(folder: Path) -> bool:
    job = RecordedJob.load(folder)
    try:
        latest = [rank.calls[-1:] for rank in job.state().reports]
        ops = [(call.op, call.status) for calls in latest for call in calls]
        return sorted(ops) == [("all_reduce", "pending"), ("barrier", "pending")]
    finally:
        job.close()


def test_a_rank_that_was_killed_is_named(tmp_path: Path) -> None:
    body = """
    if rank == 1:
        time.sleep(0.3)
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    """
    job = Job(tmp_path / "job", "--", *TWO, script(tmp_path, body))
    status, _, errors = job.end()
    assert status == 1, errors
    (finding,) = report(job.folder).findings
    assert (finding.kind, finding.ranks) == ("died", [1])
    assert_gone(job.pids)


@pytest.mark.parametrize("autoload", ["1", "0"])
def test_a_recorder_that_cannot_be_imported_does_no_harm(tmp_path: Path, autoload: str) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    environment = recorder_folder.environment(
        folder, os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}, branches=False
    )
    package = folder / "recorder" / socket.gethostname() / "ddt_notebook"
    package.unlink()
    package.mkdir()
    (package / "__init__.py").write_text("def newer syntax than this Python knows")
    run = subprocess.run(
        [sys.executable, "-c", "import torch; print('alone')"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "alone\n"), run.stderr
    (noted,) = folder.glob("*.failed")
    assert "SyntaxError" in noted.read_text()


def test_a_hidden_sitecustomize_runs_and_its_error_is_shown(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('mine')\nraise ValueError('mine')\n")
    own = f"{tmp_path / 'own'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"PYTHONPATH": own, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    folder = tmp_path / "job"
    run = subprocess.run(
        [sys.executable, "-c", "print('alone')"],
        env=recorder_folder.environment(folder, environment, branches=False),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "mine\nalone\n")
    assert "ValueError: mine" in run.stderr


def test_a_folder_holds_one_job(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / f"{socket.gethostname()}-7.rank").write_text("")
    job = Job(tmp_path / "job", "--", sys.executable, "-c", "print('alone')")
    status, output, errors = job.end()
    assert (status, output) == (2, "")
    assert "another job" in errors
    elsewhere = job_files.RankStarted(
        rank=0, world_size=2, host="old", pid=7, born_s=0.0, allocation="SLURM_JOB_ID=17"
    )
    (tmp_path / "other").mkdir()
    job_files.write(tmp_path / "other" / "old-7.rank", elsewhere)
    for own, refused in (("18", True), ("17", False)):
        job = Job(tmp_path / "other", "--", "true", SLURM_JOB_ID=own)
        status, _, errors = job.end()
        assert ("another job" in errors, status == 2) == (refused, refused), errors


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the space cannot be reserved")
def test_a_job_continues_if_there_is_no_disk_space_for_its_record(tmp_path: Path) -> None:
    body = "import os\ndist.barrier()\nos.write(1, b'ended\\n')\ndist.destroy_process_group()"
    file = script(tmp_path, body)
    limited = ("bash", "-c", 'ulimit -f 1024; exec "$@"', "bash", *TWO, file)
    job = Job(tmp_path / "job", "--", *limited, PYTHONUNBUFFERED="")
    status, output, errors = job.end()
    assert (status, output) == (0, "ended\n" * 2), errors
    assert "no rank was seen" in errors
    assert not list(job.folder.glob("*.calls"))  # what was begun takes no room
    assert not list(job.folder.glob("*.branches"))


def _may_mount() -> bool:
    """Whether this user may mount a small file system, which only the processes of a test see."""
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
    try:
        return not subprocess.run(
            tried, capture_output=True, timeout=LIMIT_S, check=False
        ).returncode
    except OSError:
        return False


@pytest.mark.skipif(not _may_mount(), reason="the system permits no mount")
def test_a_full_disk_leaves_the_job_alone_and_a_record_that_can_be_read(tmp_path: Path) -> None:
    """There is space for one rank. The file system ends with the command, so it is read there."""
    file = script(tmp_path, "dist.barrier()\nprint('ended', flush=True)")
    disk, folder = tmp_path / "disk", tmp_path / "disk" / "job"
    disk.mkdir()
    ours = [sys.executable, "-c", _MAIN]
    run = shlex.join(map(str, [*ours, "run", "--to", folder, "--", *TWO, file]))
    read = shlex.join(map(str, [*ours, "analyze", folder]))
    text = f"mount -t tmpfs -o size=5m none {disk}; {run}; status=$?; {read}; exit $status"
    job = Job.of(folder, ["unshare", "--mount", "sh", "-c", text], PYTHONUNBUFFERED="")
    status, output, errors = job.end()
    assert output.count("ended\n") == 2, errors
    assert status == 0, errors
    assert "no space" in (output + errors).lower()
    assert "1 rank" in errors
    assert "ok · 1 rank" in output, "what was written can be read"


@pytest.mark.parametrize("killed", ["watcher", "launcher"])
def test_ranks_go_on_without_their_watcher_or_launcher(tmp_path: Path, killed: str) -> None:
    go = tmp_path / "go"
    body = f"""
    from pathlib import Path
    while not Path({str(go)!r}).exists():
        time.sleep(0.05)
    dist.barrier()
    print("ended", flush=True)
    """
    job = Job(tmp_path / "job", "--", *TWO, script(tmp_path, body), PYTHONUNBUFFERED="")
    job.wait_for("*.rank")
    watcher = psutil.Process(job.process.pid)
    victim = watcher if killed == "watcher" else watcher.children()[0]
    victim.kill()
    job.process.wait(LIMIT_S)
    go.touch()
    status, output, errors = job.end()
    assert status == {"watcher": -signal.SIGKILL, "launcher": 128 + signal.SIGKILL}[killed]
    assert output == "ended\n" * 2, errors
    assert ("these ranks still run" in errors) == (killed == "launcher"), errors
    assert_gone(job.pids)
    snapshot = snapshot_of_folder(job.folder)
    assert (snapshot.outcome, len(snapshot.ranks)) == ("ok", 2)
    assert ddt.diagnose(snapshot).ok


RESTARTED = """
import os
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if generation == 0 and rank == 1:
    raise ValueError("a bad sample")
dist.barrier()
os.write(1, f"generation {generation}\\n".encode())  # in one write: the ranks share the pipe
"""


def test_ranks_before_a_restart_are_judged_by_themselves(tmp_path: Path) -> None:
    command = (*TORCHRUN, "--max-restarts", "1", script(tmp_path, RESTARTED))
    # torchrun's own store serves one generation of gloo only
    once = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PYTHONUNBUFFERED": ""}
    job = Job(tmp_path / "job", "--on-hang", "stop", "--", *command, **once)
    status, output, errors = job.end()
    assert (status, output) == (0, "generation 1\n" * 2), errors
    (finding,) = report(job.folder).findings
    assert (finding.kind, finding.ranks) == ("raised", [1])
    later = ddt.diagnose(ddt.Snapshot.load(job.folder / "report-2.ddt.json"))
    assert later.ok
    assert "a bad sample" in errors
    assert_gone(job.pids)


def test_jobs_of_one_command_are_judged_by_themselves(tmp_path: Path) -> None:
    """They run at the same time: each waits until the ranks of both are there."""
    meet = f"""
    from pathlib import Path
    while len(list(Path({str(tmp_path / "job")!r}).glob("*.rank"))) < 4:
        time.sleep(0.1)
    """
    commands = []
    for name, body in (("raises", 'assert rank == 0, "a bad sample"'), ("well", "dist.barrier()")):
        (tmp_path / name).mkdir()
        file = script(tmp_path / name, f"{textwrap.dedent(meet)}{body}\ndist.barrier()")
        commands.append(shlex.join([*TWO, str(file)]))
    job = Job(tmp_path / "job", "--", "sh", "-c", f"{' & '.join(commands)} & wait")
    _, _, errors = job.end()
    reports = [ddt.Snapshot.load(file) for file in job.folder.glob("report-*.ddt.json")]
    found = {Path(one.cell.file).parent.name: ddt.diagnose(one).findings for one in reports}
    kinds = {name: [finding.kind for finding in findings] for name, findings in found.items()}
    assert kinds == {"raises": ["raised"], "well": []}, errors
    assert errors.count("2 ranks, ") == 2
    assert_gone(job.pids)


def test_a_job_that_hangs_is_stopped_and_one_beside_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    met = f"""
    from pathlib import Path
    while len(list(Path({str(folder)!r}).glob("*.rank"))) < 4:
        time.sleep(0.1)
    """
    gone = f"""
    while len(list(Path({str(folder)!r}).glob("*.gone"))) < 2:  # the ranks of the other job
        time.sleep(0.1)
    dist.barrier()
    print("went on", flush=True)
    """
    commands = []
    for name, body in (("hangs", f"{HANG}    dist.barrier()"), ("well", gone)):
        (tmp_path / name).mkdir()
        text = textwrap.dedent(met) + textwrap.dedent(body)
        commands.append(shlex.join([*TWO, str(script(tmp_path / name, text))]))
    both = f"{' & '.join(commands)} & wait"
    options = ("--on-hang", "stop", "--hang-after", "1")
    job = Job(folder, *options, "--", "sh", "-c", both, PYTHONUNBUFFERED="")
    status, output, errors = job.end()
    assert (status, output) == (0, "went on\n" * 2), errors
    assert errors.count("the job is stopped, since it hangs; the other jobs") == 1
    assert "no finding" in errors
    assert_gone(job.pids)


def stand_in(launcher: Path) -> Path:
    """A command of a launcher's name."""
    launcher.write_text(f"#!{sys.executable}\n{START_TWO}")
    launcher.chmod(0o700)
    return launcher


def test_ranks_that_a_launcher_numbers_by_variables(tmp_path: Path) -> None:
    """Other launchers only have other variables (tests/unit/rank/test_numbers.py)."""
    launcher, rank, size = "srun", "SLURM_PROCID", "SLURM_NTASKS"
    file = tmp_path / "train.py"
    meet = f'"gloo", init_method="file://{tmp_path / "store"}"'
    numbers = f'rank=int(os.environ["{rank}"]), world_size=int(os.environ["{size}"])'
    body = (
        f"import os\nimport torch.distributed as dist\ndist.init_process_group({meet}, {numbers})\n"
    )
    file.write_text(f"{body}dist.barrier()\nprint('ended', flush=True)\n")
    command = stand_in(tmp_path / launcher)
    job = Job(tmp_path / "job", "--", command, f"{rank} {size}", file, PYTHONUNBUFFERED="")
    status, output, errors = job.end()
    assert (status, output) == (0, "ended\n" * 2), errors
    recorded = RecordedJob.load(job.folder)
    assert [one.rank for one in recorded.ranks] == [0, 1]
    assert [one.started.launcher for one in recorded.ranks] == [launcher] * 2
    recorded.close()
    assert_gone(job.pids)


def _can_be_hosts() -> bool:
    """Whether this user may give processes another host name and another clock."""
    unshare = ["unshare", "--uts", "--time", "--monotonic", "1", "--fork"]
    try:
        tried = subprocess.run(
            [*unshare, "hostname", "tried"], capture_output=True, timeout=LIMIT_S, check=False
        )
    except OSError:
        return False
    return tried.returncode == 0


needs_hosts = pytest.mark.skipif(
    not _can_be_hosts(), reason="the system permits no further host names or clocks"
)


def on_two_hosts(folder: Path, file: Path, *options: str) -> list[Job]:
    """Two names and two clocks on this machine; the network and the folder are the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    hosts = []
    for number, clock in enumerate(("0", "5000")):
        launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
        launch += ["--node-rank", str(number), "--nproc-per-node", "1"]
        launch += ["--master-addr", "127.0.0.1", "--master-port", str(port), str(file)]
        job = [sys.executable, "-c", _MAIN, "run", "--to", str(folder), *options, "--"]
        named = f"hostname node{number}; exec {shlex.join([*job, *launch])}"
        command = ["unshare", "--uts", "--time", "--monotonic", clock, "--fork", "sh", "-c", named]
        hosts.append(Job.of(folder, command, GLOO_SOCKET_IFNAME="lo"))
    return hosts


@needs_hosts
def test_the_calls_of_ddp_on_another_host_are_known(tmp_path: Path) -> None:
    body = """
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(2 + rank):
        model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    """
    folder = tmp_path / "job"
    hosts = on_two_hosts(folder, script(tmp_path, body))
    hosts[0].wait_for("report-1.json", ranks=1)
    # this machine has another name, so that it only sees what the two watchers share
    for snapshot in (ddt.Snapshot.load(folder / "report-1.ddt.json"), snapshot_of_folder(folder)):
        waits = [(call.op, call.source) for rank in snapshot.ranks if (call := rank.blocked_call)]
        assert waits == [("barrier", "call log"), ("all_reduce", "flight recorder")]
        issued = [sum(call.caller is not None for call in rank.calls) for rank in snapshot.ranks]
        assert issued[1] == issued[0] + 1 > 1, "each host shows what its rank's DDP has issued"
        (finding,) = ddt.diagnose(snapshot).findings
        assert finding.symptom == "D.2.1"
        assert {rank: place.line for rank, place in finding.places.items()} == {0: 14, 1: 13}
        assert not any("nothing shows" in note for note in snapshot.notes)
    for host in hosts:
        host.kill()
    assert_gone(hosts[0].pids)


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
    found = report(job.folder).findings
    assert [(finding.kind, finding.ranks) for finding in found] == [("raised", [1])], errors
    assert found[0].places[1].line == 11
    assert_gone(job.pids)


@pytest.mark.parametrize(("name", "what"), [("random", "Python's own"), ("torch", "the installed")])
def test_a_file_beside_the_script_that_hides_a_module_is_named(
    tmp_path: Path, name: str, what: str
) -> None:
    (tmp_path / f"{name}.py").write_text("x = 1\n")
    file = script(tmp_path, "")
    status, _, errors = Job(tmp_path / "job", "--", sys.executable, file).end()
    assert status == 1, errors
    assert f"`import {name}` takes this file, not {what}" in errors
    assert errors.rstrip().endswith(f"if that is not intended, rename {name}.py")


def test_a_command_without_ranks_and_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    say = "import torch; print('alone'); raise SystemExit(3)"
    status, output, errors = Job(tmp_path / "job", "--", sys.executable, "-c", say).end()
    assert (status, output) == (3, "alone\n")
    assert "no rank was seen: 1 process of this command imported torch, and none called" in errors
    with pytest.raises(FormatError, match="no rank was recorded: 1 process of this command"):
        ddt.diagnose_dumps(tmp_path / "job")
    ignored = (sys.executable, "-I", "-c", "print('alone')")
    _, _, errors = Job(tmp_path / "ignored", "--", *ignored).end()
    assert "no rank was seen: no process of this command imported torch" in errors
    (tmp_path / "file").write_text("")
    quiet = "print('alone'); raise SystemExit(3)"
    status, output, errors = Job(tmp_path / "file" / "job", "--", sys.executable, "-c", quiet).end()
    assert (status, output) == (3, "alone\n")
    assert "the job is not recorded" in errors
