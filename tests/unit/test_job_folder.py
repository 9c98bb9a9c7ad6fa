"""The folder of a recorded job, as several hosts share it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.jobs import recorded_job, recorder_folder, shared_answers, watch
from ddt_notebook.jobs.launches import is_recorded
from ddt_notebook.jobs.process_ends import ProcessEnds
from ddt_notebook.jobs.recorded_job import RecordedJob, snapshot_of_folder
from ddt_notebook.jobs.watch import JobWatch
from ddt_notebook.model import Snapshot
from ddt_notebook.model.user_code import is_user_code
from ddt_notebook.wire import job_files
from ddt_notebook.wire.job_files import RankStarted
from ddt_notebook.wire.messages import CellEnded
from ddt_notebook.wire.records import CallRecord, Group
from ddt_notebook.wire.ring import DONE, RingWriter


def rank(folder: Path, number: int, host: str, **changed: Any) -> Path:
    """The file of a rank that is this process, or a process of another host."""
    pid = changed.pop("pid", os.getpid())
    started = RankStarted(
        rank=number,
        world_size=2,
        host=host,
        pid=pid,
        born_s=psutil.Process().create_time(),
        started_s=time.monotonic(),
        wall_s=time.time(),
    )
    RingWriter(folder / f"{host}-{pid}.calls")
    file = folder / f"{host}-{pid}.rank"
    job_files.write(file, replace(started, **changed))
    return file


def end(file: Path, ended_s: float) -> None:
    """Note that a rank has ended well, at this time on its clock."""
    job_files.write(file.with_suffix(".end"), CellEnded(error=None, ended_s=ended_s))


def test_what_brings_the_recorder_in_is_not_the_users_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = recorder_folder.environment(tmp_path, {"TF_CONFIG": "{}"}, branches=False)
    site, recorder = map(Path, changed["PYTHONPATH"].split(os.pathsep)[:2])
    monkeypatch.setattr(sys, "path", [str(site), str(recorder), *sys.path])
    for file in (site / "sitecustomize.py", recorder / "ddt_notebook_recorder.py"):
        assert file.is_file()
        assert not is_user_code(str(file))


def test_a_folder_is_recorded_on_a_host_of_exactly_that_name(tmp_path: Path) -> None:
    (tmp_path / "gpu-1-4711.rank").touch()
    assert is_recorded(tmp_path)
    assert is_recorded(tmp_path, "gpu-1")
    assert not is_recorded(tmp_path, "gpu")
    assert not is_recorded(tmp_path / "none", "gpu")


def test_each_host_has_its_own_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for name in ("one", "two", "two"):
        monkeypatch.setattr(socket, "gethostname", lambda name=name: name)
        changed = recorder_folder.environment(tmp_path, {}, branches=False)
        paths.append(Path(changed["PYTHONPATH"]))
    assert paths[0] != paths[1] == paths[2]
    assert all((path / "ddt_notebook" / "__init__.py").is_file() for path in paths)


def test_processes_of_a_job_before_do_not_count(tmp_path: Path) -> None:
    changed = recorder_folder.environment(tmp_path, {}, branches=False)
    Path(changed["PYTHONPATH"], "processes").write_bytes(b"xx")
    assert recorder_folder.processes(tmp_path) == 2
    recorder_folder.environment(tmp_path, {}, branches=False)
    assert recorder_folder.processes(tmp_path) == 0


@pytest.mark.parametrize("other", ["elsewhere", ""])
def test_a_snapshot_names_hosts_if_there_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """The ranks are observed with their hosts, since two hosts may have one process id."""
    monkeypatch.setattr(recorded_job, "_OTHERS_ANSWER_S", 0.1)
    here = socket.gethostname()
    rank(tmp_path, 0, here)
    rank(tmp_path, 1, other or here, pid=1)
    job = RecordedJob.load(tmp_path)
    assert [report.host for report in job.state().reports] == [here, other or here]
    assert job.snapshot().hosts == ({0: here, 1: other} if other else {})
    job.close()


def test_a_rank_of_another_host_counts_as_running_while_one_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_job, "_OTHERS_ANSWER_S", 0.1)
    rank(tmp_path, 0, socket.gethostname())
    rank(tmp_path, 1, "elsewhere")
    assert snapshot_of_folder(tmp_path).outcome == "interrupted"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait(10)


def test_the_end_of_a_process_is_noticed_before_its_parent_asks_for_it(
    sleeper: subprocess.Popen[bytes],
) -> None:
    ends = ProcessEnds()
    ends.add("one", psutil.Process(sleeper.pid))
    ends.add("itself", psutil.Process())
    if not ends.watches("one"):
        pytest.skip("this system cannot watch processes")
    assert ends.ended() == set()
    os.kill(sleeper.pid, signal.SIGKILL)
    ends.wait(20)
    assert ends.ended() == {"one"}
    ends.close()


def test_a_rank_that_noted_its_end_has_ended_although_it_is_slow_to_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket has to be short
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.bind("s")
        monitor.listen()
        file = rank(tmp_path, 0, socket.gethostname(), socket="s", world_size=1)
        job = RecordedJob(tmp_path, watched=True)
        job.look()
        job.ask()
        job.look()
        assert not job.ended  # it does not answer, which is no end
        end(file, time.monotonic())
        job.look()
        assert job.ended
        job.close()


def test_a_rank_that_ended_before_its_watcher_connected_has_ended(tmp_path: Path) -> None:
    listens = tmp_path / "s"
    listens.touch()
    file = rank(tmp_path, 0, socket.gethostname(), socket=str(listens), world_size=1)
    job = RecordedJob(tmp_path, watched=True)
    end(file, time.monotonic())
    job.look()
    assert not job.ended  # it may still add to its notes
    listens.unlink()  # its last act
    job.look()
    assert job.ended
    job.close()


def test_a_process_that_has_ended_before_is_not_watched(sleeper: subprocess.Popen[bytes]) -> None:
    process = psutil.Process(sleeper.pid)
    sleeper.kill()
    sleeper.wait(10)
    ends = ProcessEnds()
    ends.add("one", process)
    assert not ends.watches("one")


def test_a_watcher_finds_ranks_that_begin_at_the_same_moment(tmp_path: Path) -> None:
    """A file system notes changes to some milliseconds: a second one may have the same time."""
    job = RecordedJob(tmp_path, watched=True)
    rank(tmp_path, 0, socket.gethostname())
    changed = tmp_path.stat()
    job.look()
    assert len(job.ranks) == 1
    rank(tmp_path, 1, "elsewhere")
    os.utime(tmp_path, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    job.look()
    assert len(job.ranks) == 2


def test_a_reader_elsewhere_does_not_know_whether_silent_ranks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_job, "_OTHERS_ANSWER_S", 0.1)
    rank(tmp_path, 0, "a")
    rank(tmp_path, 1, "b")
    snapshot = snapshot_of_folder(tmp_path)
    assert [one.state for one in snapshot.ranks] == ["running", "running"]
    (note,) = (note for note in snapshot.notes if "ranks 0 and 1" in note)
    assert "a, b" in note
    assert not any("ended" in note for note in snapshot.notes)
    assert not diagnose(snapshot).findings
    assert not (tmp_path / "question").exists()


def test_a_reader_elsewhere_sees_ranks_whose_watchers_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank(tmp_path, 0, "a")
    with monkeypatch.context() as there:
        there.setattr(socket, "gethostname", lambda: "a")
        watcher = RecordedJob(tmp_path, watched=True)
        watcher.look()
    monkeypatch.setattr(shared_answers, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(time, "sleep", lambda _: watcher.share())
    job = RecordedJob.load(tmp_path)
    assert not job.ended
    assert not any("nothing shows" in note for note in job.snapshot().notes)
    job.close()


def test_ranks_that_began_long_after_others_had_ended_are_another_launch(tmp_path: Path) -> None:
    now_s, wall_s = time.monotonic(), time.time()
    for number in range(2):
        early = {"started_s": now_s - 900, "wall_s": wall_s - 900}
        end(rank(tmp_path, number, f"old{number}", **early), now_s - 700)
    watcher = RecordedJob(tmp_path, watched=True)
    rank(tmp_path, 5, "new1")  # the others of its launch begin a moment later
    rank(tmp_path, 0, "new0", wall_s=wall_s + 1)
    reader = RecordedJob(tmp_path)
    for job in (watcher, reader):
        job.look()
        assert [one.started.host for one in job.ranks] == ["new0", "new1"]
    assert not watcher.relaunched
    assert not watcher.beside


def test_allocations_are_told_apart_where_they_are_known(tmp_path: Path) -> None:
    rank(tmp_path, 1, "old", allocation="SLURM_JOB_ID=17")
    rank(tmp_path, 0, "new0", allocation="SLURM_JOB_ID=18")
    rank(tmp_path, 2, "new2")  # started through a shell of another host
    job = RecordedJob(tmp_path)
    job.look()
    assert [one.started.host for one in job.ranks] == ["new0", "new2"]


def test_ranks_are_judged_although_their_launcher_lingers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LINGERS_S", 0.0)
    watched = JobWatch(tmp_path, hang_after_s=3.0)
    end(rank(tmp_path, 0, "a"), time.monotonic())
    assert watched.step(0.0) is None  # rank 1 has not begun
    end(rank(tmp_path, 1, "b"), time.monotonic())
    snapshot = watched.step(0.0)
    assert snapshot is not None
    assert snapshot.outcome == "ok"
    assert (watched.step(0.0), watched.last()) == (None, None)


def test_the_watcher_looks_less_often_while_all_ranks_are_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    waits: list[tuple[str, float]] = []
    monkeypatch.setattr(RecordedJob, "wait", lambda _, limit_s: waits.append(("end", limit_s)))
    monkeypatch.setattr(RecordedJob, "receive", lambda _, limit_s: waits.append(("any", limit_s)))
    host = socket.gethostname()
    calls = RingWriter(rank(tmp_path, 0, host).with_suffix(".calls"))
    born_s = psutil.Process(sleeper.pid).create_time()
    rank(tmp_path, 1, host, pid=sleeper.pid, born_s=born_s)
    watched = JobWatch(tmp_path, hang_after_s=3.0)

    def step(*, idle: bool = False) -> tuple[str, float]:
        waits.clear()
        for run in watched.job.runs:
            run.idle = idle
        watched.step(0.05, at_work_s=0.25)
        return waits[0]

    assert step() == ("any", 0.05)  # no rank was found yet
    assert step() == ("end", 0.25)
    step(idle=True)
    assert step() == ("any", 0.05)
    assert step() == ("end", 0.25)
    call = CallRecord(op="barrier", group=Group("0", (0, 1)), file="train.py", line=3)
    begun = calls.begin(call, time.monotonic() - 9, blocking=True)
    assert step() == ("end", 0.25)  # it is this look that reads the call
    assert step() == ("any", 0.05)
    calls.end(begun, DONE, time.monotonic(), 1)
    step()
    assert step() == ("end", 0.25)
    watched.job.close()


def test_a_rank_that_leaves_its_wait_while_it_is_judged_is_judged_later(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a peer has failed, its end may free a rank at any moment."""
    host = socket.gethostname()
    files = [rank(tmp_path, 0, host), rank(tmp_path, 1, host, pid=sleeper.pid)]
    calls = RingWriter(files[0].with_suffix(".calls"))
    call = CallRecord(op="barrier", group=Group("0", (0, 1)), file="train.py", line=3)
    since_s = time.monotonic() - 9
    begun = calls.begin(call, since_s, blocking=True)
    watched = JobWatch(tmp_path, hang_after_s=0.0)
    look_whole = RecordedJob.snapshot

    def freed(job: RecordedJob, *args: Any, **changed: Any) -> Snapshot:
        if frees:
            frees.pop()
            calls.block(None, time.monotonic())
        return look_whole(job, *args, **changed)

    frees = [True]
    monkeypatch.setattr(RecordedJob, "snapshot", freed)
    end(files[1], time.monotonic())
    sleeper.kill()
    sleeper.wait(10)
    assert watched.step(0.0) is None
    assert (frees, watched.judged) == ([], False)
    calls.block(begun, since_s)
    snapshot = watched.step(0.0)
    assert snapshot is not None
    assert snapshot.rank(0).state == "blocked"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ""),
        ({"SLURM_JOB_ID": "7"}, "SLURM_JOB_ID=7"),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}, "SLURM_JOB_ID=7 restart 1"),
        ({"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"}, ""),
        ({"PBS_JOBID": "7.head"}, "PBS_JOBID=7.head"),
    ],
)
def test_the_job_of_a_batch_system(variables: dict[str, str], expected: str) -> None:
    assert job_files.allocation(variables) == expected


@pytest.mark.parametrize(
    ("written", "crashed"),
    [
        ("Stack (most recent call first):\n", None),
        ("Fatal Python error: Segmentation fault\n\n", signal.SIGSEGV),
        (  # it was ended while it wrote
            "Stack (most recent call first):\nFatal Python error: Segmentation fault\n\n",
            None,
        ),
    ],
)
def test_a_rank_that_a_launcher_ended_has_not_crashed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], written: str, crashed: int | None
) -> None:
    file = rank(tmp_path, 0, socket.gethostname(), pid=sleeper.pid, world_size=1)
    file.with_suffix(".crash").write_text(f'{written}  File "/job/train.py", line 3 in main\n')
    sleeper.kill()
    sleeper.wait(10)
    (report,) = snapshot_of_folder(tmp_path).ranks
    assert report.exit_signal == crashed


def test_ranks_that_are_not_recorded_here_are_not_said_to_be_at_work(tmp_path: Path) -> None:
    host = socket.gethostname()
    rank(tmp_path, 1, host)
    calls = RingWriter(tmp_path / f"{host}-{os.getpid()}.calls")
    call = CallRecord(op="barrier", group=Group("0", (0, 1)))
    job = RecordedJob(tmp_path, watched=True)
    for number in range(2):
        index = calls.begin(call, time.monotonic(), blocking=True)
        job.look()
        states = [one.state for one in job.state(whole=True).reports]
        assert states == (["blocked"] if number else ["blocked", "running"])
        assert [one.state for one in job.state().reports] == ["blocked", "running"], "no hang yet"
        if not number:
            calls.end(index, DONE, time.monotonic(), 1)
    (finding,) = diagnose(job.snapshot("hung")).findings
    assert (finding.kind, finding.cause, finding.ranks) == ("no-record", "rank-not-recorded", [0])
    job.close()


def test_a_process_that_dies_after_its_script_has_ended(tmp_path: Path) -> None:
    files = [rank(tmp_path, number, "node", pid=number + 1) for number in range(3)]
    stack = "Thread 0x1 (most recent call first):\n  <no Python frame>\n"
    for file, text in zip(
        files, ("", f"Fatal Python error: Aborted\n\n{stack}", stack), strict=True
    ):
        end(file, time.monotonic())
        file.with_suffix(".crash").write_text(text)
    job = RecordedJob.load(tmp_path)
    assert job.ended
    (note,) = job.died_at_exit
    assert note.startswith("after the script had ended, SIGABRT ended the process of rank 1;")
    assert note in job.snapshot().notes
    job.close()
