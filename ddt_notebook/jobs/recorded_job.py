"""A recorded job: the ranks whose files are in its folder, and the snapshot of them.

The processes may run, or all of them may be gone. A rank that was waiting when its process was
ended from outside is reported as waiting, since the end of the process says nothing about it.
"""

from __future__ import annotations

import datetime
import os
import signal
import socket
import time
import tokenize
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import psutil

from ..host.branches import rank_branches
from ..host.call_log_reader import RankRecorder, thin
from ..host.details import fetch_branch_values, fetch_stacks, named_files
from ..host.observed_rank import ObservedRank
from ..host.rank_run import RankRun, RunState, groups_seen, state_of
from ..host.source_files import SourceFiles
from ..model import Cell, DdtError, FormatError, Snapshot
from ..model.observation import add_observations
from ..model.snapshot import Outcome
from ..wire import job_files
from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Channel, Closed
from ..wire.job_files import RankStarted
from ..wire.messages import CellEnded
from ..wire.ring import RingReader

#: Signals by which a launcher or a person ends a process. The process did nothing wrong.
_FROM_OUTSIDE = (-signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT, -signal.SIGHUP)
_FATAL = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating": signal.SIGFPE,
    "Illegal": signal.SIGILL,
}
#: Two readings of a process's start, from its clock ticks, differ by less than this, in seconds.
_SAME_START_S = 1.0


#: A running job is looked at this often, for this long, which shows the idle ranks.
_LOOKS, _LOOK_S = 5, 0.15


class NotRecorded(DdtError):
    """A folder holds no record of a rank."""


class RecordedRank(ObservedRank):
    """A process of a recorded job.

    Parameters
    ----------
    file
        Its `RankStarted`.
    """

    def __init__(self, file: Path) -> None:
        started = job_files.read(file)
        if not isinstance(started, RankStarted):
            raise FormatError(f"{file} does not describe a rank")
        super().__init__(started.rank or 0, file.with_suffix(""))
        self.started = started
        self.pid = started.pid
        self.torch_version = started.torch_version
        self.missing_features = started.missing_features
        self.is_here = started.host == socket.gethostname()
        self.gone_s: float | None = None  #: when its process was seen to have ended
        self.recorder = RankRecorder(RingReader(self._file("calls")), lambda cell, line: "")
        with suppress(OSError, FormatError):
            self.branch_ring = BranchRingReader(self._file("branches"))
        if self.is_here:
            with suppress(psutil.Error):
                process = psutil.Process(self.pid)
                if abs(process.create_time() - started.born_s) < _SAME_START_S:
                    self._process = process

    @property
    def generation(self) -> tuple[str, int]:
        """Its job, and how often torchrun had restarted the ranks of it."""
        return self.started.job, self.started.generation

    @property
    def now_s(self) -> float:
        """The time at which the rank is looked at: now, or the end of its process."""
        return time.monotonic() if self.gone_s is None else self.gone_s

    @property
    def end(self) -> CellEnded | None:
        """What it wrote when it ended by itself; None if it has not."""
        try:
            ended = job_files.read(self._file("end"))
        except (OSError, FormatError):
            return None
        return ended if isinstance(ended, CellEnded) else None

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        if self._process is None:
            return not self.is_here and not self._file("end").exists()
        try:
            return bool(
                self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            return False

    def exit_status_of_dead(self) -> int:
        """Exit code, or negative signal, of its process, which has not written its end."""
        if self.is_here and (code := _zombies_status(self.pid)) is not None:
            return code
        with suppress(OSError, ValueError):
            return int(self._file("exit").read_text())
        text = self.crash_text()
        if "Fatal Python error" in text:
            return -next((number for word, number in _FATAL.items() if word in text), 9)
        # faulthandler writes the stacks when SIGTERM arrives, and nothing when SIGKILL does
        return -signal.SIGTERM if "most recent call first" in text else -signal.SIGKILL

    def connect(self) -> bool:
        """Connect to its monitor, unless it is connected; returns whether it is."""
        if self.questions is not None:
            return True
        if not self.started.socket or not self.is_here or self.gone_s is not None:
            return False
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self.started.socket)
        except OSError:
            connection.close()
            return False
        self.questions = Channel(connection)
        return True

    def disconnect(self) -> None:
        """Close the connection to its monitor, which has closed its end."""
        if self.questions is not None:
            self.questions.close()
            self.questions = None


def _zombies_status(pid: int) -> int | None:
    """The status of a process whose parent has not asked for it yet; None if it is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] != "Z":
        return None
    status = int(fields[-1])
    return os.waitstatus_to_exitcode(status)


class RecordedJob:
    """The ranks of the latest generation of a job.

    Parameters
    ----------
    folder
        The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[RankRun] = []
        self.began_s = time.monotonic()
        self._known: dict[str, RecordedRank] = {}
        self._unreadable: set[str] = set()
        self._generation: tuple[str, int] | None = None

    @classmethod
    def load(cls, folder: Path) -> RecordedJob:
        """Read the folder of a job that may have ended.

        Raises
        ------
        NotRecorded
            If no rank has written there.
        """
        job = cls(folder)
        job.look()
        if not job.runs:
            raise NotRecorded(f"{folder} holds no record of a rank{job.why_not_recorded()}")
        return job

    # -- looking ---------------------------------------------------------------------------------

    @property
    def generation(self) -> tuple[str, int] | None:
        """Which job, and how often torchrun had restarted its ranks; None without ranks."""
        return self._generation

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        started = [self._started(run) for run in self.runs]
        sizes = [one.world_size or 0 for one in started]
        return max([*sizes, *(run.handle.rank + 1 for run in self.runs)], default=0)

    @staticmethod
    def _started(run: RankRun) -> RankStarted:
        assert isinstance(run.handle, RecordedRank)
        return run.handle.started

    def why_not_recorded(self) -> str:
        """What processes noted about why they are not recorded, after a colon, or nothing."""
        noted = []
        for file in sorted(self.folder.glob(f"*{job_files.FAILED}"))[:3]:
            with suppress(OSError):
                noted.append(file.read_text(errors="replace").strip()[:300])
        return f": {'; '.join(dict.fromkeys(noted))}" if noted else ""

    def look(self) -> None:
        """Find new ranks, read what all have recorded, and notice ended processes."""
        self._find()
        for run in self.runs:
            handle = run.handle
            assert isinstance(handle, RecordedRank)
            if handle.gone_s is None and not handle.runs:
                self._note_end(run, handle)
        self._judge_deaths()
        recorders = {
            run.handle.rank: run.handle.recorder
            for run in self.runs
            if run.handle.recorder is not None
        }
        for recorder in recorders.values():
            recorder.drain()
        thin(recorders)

    def _find(self) -> None:
        for file in self.folder.glob(f"*{job_files.STARTED}"):
            if file.name in self._known or file.name in self._unreadable:
                continue
            try:
                self._known[file.name] = RecordedRank(file)
            except (OSError, FormatError):
                self._unreadable.add(file.name)
        if not self._known:
            return
        newest = max(self._known.values(), key=lambda one: one.started.wall_s)
        self._generation = newest.generation
        ranks: dict[int, RecordedRank] = {}
        for one in sorted(self._known.values(), key=lambda one: one.started.wall_s):
            if one.generation == self._generation:
                ranks[one.rank] = one
        known = {id(run.handle): run for run in self.runs}
        self.runs = [
            known.get(id(ranks[rank])) or RankRun(ranks[rank], asked=True) for rank in sorted(ranks)
        ]

    def _note_end(self, run: RankRun, handle: RecordedRank) -> None:
        end = handle.end
        handle.gone_s = end.ended_s if end is not None else time.monotonic()
        handle.disconnect()
        if end is not None:
            run.end(end, freed=False)
        else:
            handle.exit_status = handle.exit_status_of_dead()

    def _judge_deaths(self) -> None:
        """Decide which deaths count: what was ended from outside after a failure does not."""
        dead = [run for run in self.runs if run.handle.exit_status is not None]
        by_itself = [r for r in dead if r.handle.exit_status not in _FROM_OUTSIDE]
        killed = [r for r in dead if r.handle.exit_status == -signal.SIGKILL]
        all_from_outside = len(dead) == len(self.runs) and not by_itself
        failed = bool(by_itself) or any(run.error is not None for run in self.runs)
        for run in dead:
            outside = run not in by_itself
            terminated = outside and run not in killed
            counts = not (all_from_outside or (failed and outside) or (killed and terminated))
            run.exit_status = run.handle.exit_status if counts else None

    @property
    def ended(self) -> bool:
        """Whether every known process has ended."""
        return all(getattr(run.handle, "gone_s", None) is not None for run in self.runs)

    @property
    def ended_from_outside(self) -> bool:
        """Whether processes were ended, by no fault of theirs, before their ranks had finished."""
        return any(run.unfinished and run.handle.exit_status is not None for run in self.runs)

    @property
    def failed(self) -> bool:
        """Whether a rank raised or died."""
        return any(run.error is not None or run.exit_status is not None for run in self.runs)

    # -- questions -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the monitors for the status of their ranks."""
        waiting = any(run.may_be_blocked for run in self.runs)
        for run in self.runs:
            if isinstance(run.handle, RecordedRank) and run.handle.connect():
                run.ask_status(busy_too=waiting)

    def receive(self, limit_s: float = 0.02) -> None:
        """Wait for answers for at most ``limit_s`` seconds, and process them."""
        connected: dict[Any, RankRun] = {
            r.handle.questions: r for r in self.runs if r.handle.questions is not None
        }
        if not connected:
            time.sleep(limit_s)
            return
        for channel in wait_for(list(connected), timeout=limit_s):
            run = connected[channel]
            assert isinstance(run.handle, RecordedRank)
            assert isinstance(channel, Channel)
            try:
                run.take_answer(channel.receive())
            except (Closed, FormatError):
                run.handle.disconnect()

    def fetch_flight(self) -> None:
        """Ask for the operations of libraries, before a launcher ends the ranks that still run."""
        fetch_stacks([run for run in self.runs if run.unfinished], self.receive)

    # -- results ---------------------------------------------------------------------------------

    def state(self, *, whole: bool = False) -> RunState:
        """The state of all ranks now."""
        members = groups_seen(self.runs, self.world_size)
        # a process that still imports torch is a rank that is at work
        expected = () if self.ended else self._missing
        return state_of(self.runs, members, whole=whole, expected=expected)

    @property
    def _missing(self) -> list[int]:
        """Ranks that have recorded nothing."""
        return sorted(set(range(self.world_size)) - {run.handle.rank for run in self.runs})

    def snapshot(self, outcome: Outcome | None = None, *, hang_after_s: float = 0.0) -> Snapshot:
        """Everything that is known.

        Parameters
        ----------
        outcome
            How the job stands; by default what the ranks' ends show.
        hang_after_s
            How long a wait that could not end had lasted when the job was judged.
        """
        if not self.ended:
            fetch_stacks(self.runs, self.receive)
            fetch_branch_values(self.runs, self.receive, always=False)
        state = self.state(whole=True)
        branches = rank_branches(run.handle for run in self.runs)
        started = [self._started(run) for run in self.runs]
        first = min(started, key=lambda one: one.wall_s)
        known = SourceFiles()
        for run in self.runs:
            if run.ended is not None:
                known.note(run.ended.imported)
        notes = list(dict.fromkeys(note for run in self.runs for note in run.notes))
        missing = self._missing
        if missing:
            numbers = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            notes.append(f"no record of these ranks: {numbers}{self.why_not_recorded()}")
        if self.ended_from_outside:
            notes.append("the ranks were ended from outside; they are shown as they were before")
        at = max(getattr(run.handle, "now_s", 0.0) for run in self.runs)
        snapshot = Snapshot(
            cell=_main_program(first),
            outcome=outcome or self._outcome(state),
            ranks=state.reports,
            files=known.of(named_files(state.reports, branches)),
            groups=groups_seen(self.runs, self.world_size),
            world_size=self.world_size,
            backend=first.backend,
            has_group=False,
            hang_after_s=hang_after_s,
            duration_s=round(max(0.0, at - first.started_s), 6),
            created=_iso(first.wall_s),
            torch_version=first.torch_version,
            missing_features=_joined(run.handle.missing_features for run in self.runs),
            notes=tuple(notes),
            branches=branches,
        )
        observed = {
            run.handle.rank: run.ended.observed
            for run in self.runs
            if run.ended is not None and run.ended.observed is not None
        }
        return add_observations(snapshot, observed) if observed else snapshot

    def _outcome(self, state: RunState) -> Outcome:
        if self.failed:
            return "failed"
        if state.stuck:
            return "hung"
        return "interrupted" if any(run.unfinished for run in self.runs) else "ok"

    def close(self) -> None:
        """Close all files and connections."""
        for handle in self._known.values():
            handle.close()


def is_recorded(folder: Path) -> bool:
    """Whether a folder is that of a recorded job in which a rank was seen."""
    return folder.is_dir() and any(folder.glob(f"*{job_files.STARTED}"))


def snapshot_of_folder(folder: Path) -> Snapshot:
    """What a recorded job did; of a job that runs, what its ranks do now.

    Raises
    ------
    NotRecorded
        If no rank has written there.
    """
    job = RecordedJob.load(folder)
    try:
        if not job.ended:
            for _ in range(_LOOKS):
                job.ask()
                job.receive(_LOOK_S)
                job.look()
        return job.snapshot()
    finally:
        job.close()


def _joined(features: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(one for some in features for one in some))


def _iso(wall_s: float) -> str:
    at = datetime.datetime.fromtimestamp(wall_s).astimezone()
    return at.isoformat(timespec="seconds")


def _main_program(started: RankStarted) -> Cell:
    """The script that the ranks run; an empty one if its source cannot be read."""
    source = ""
    with suppress(OSError, SyntaxError, UnicodeDecodeError), tokenize.open(started.script) as file:
        source = file.read()
    return Cell(number=1, source=source, file=started.script, arguments=started.arguments)
