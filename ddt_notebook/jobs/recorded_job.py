"""A recorded job: the ranks whose files are in its folder, and the snapshot of them.

The processes may run, or all of them may be gone. A rank that was waiting when its process was
ended from outside is reported as waiting, since the end of the process says nothing about it.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import signal
import socket
import time
import tokenize
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any, TypeVar

import psutil

from ..host.branches import rank_branches
from ..host.call_log_reader import RankRecorder
from ..host.details import fetch_branch_values, fetch_stacks, named_files
from ..host.observed_rank import ObservedRank
from ..host.rank_run import RankRun, RunState, groups_seen, read_calls, state_of
from ..host.source_files import SourceFiles
from ..model import Cell, DdtError, FormatError, RankReport, Snapshot
from ..model.observation import add_observations
from ..model.snapshot import Outcome
from ..wire import job_files
from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Channel, Closed
from ..wire.job_files import RankAnswers, RankGone, RankStarted
from ..wire.messages import AskFlight, AskStatus, CellEnded, Message
from ..wire.ring import RingReader
from .clocks import Clock, clocks, on_one_clock
from .host_notes import about_clocks, about_hosts, about_unknown_ends
from .process_ends import ProcessEnds
from .questions import ask_running
from .shared_answers import AnswersReader, AnswersWriter

#: Signals by which a launcher or a person ends a process. The process did nothing wrong.
_FROM_OUTSIDE = (-signal.SIGTERM, -signal.SIGKILL, -signal.SIGINT, -signal.SIGHUP)
#: What faulthandler writes for the signals that it handles.
_FATAL = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating": signal.SIGFPE,
    "Illegal": signal.SIGILL,
}
#: Two readings of a process's start, from its clock ticks, differ by less than this, in seconds.
_SAME_START_S = 1.0
#: A rank that was killed within this time after the first failure or SIGTERM was not killed by a
#: launcher, which lets at least 5 s pass between SIGTERM and SIGKILL (torchrun and Slurm 30, Open
#: MPI 5).
_BEFORE_A_LAUNCHER_S = 3.0
#: Within this time an exception that left a call has left the user's code, too, in seconds.
_UNWINDS_S = 5.0
#: How often a running job is observed, and for how long each time, in seconds. Two answers of a
#: rank that are 0.2 s apart show that it is idle, a third one in which operation; a busy rank may
#: answer late.
_LOOKS, _LOOK_S = 8, 0.3
#: No job has so many ranks, and no clock shows such a time, in seconds.
_MOST_RANKS, _LATEST_S = 1 << 20, 1e11
#: faulthandler writes at most 100 threads with 100 lines each.
_LONGEST_CRASH = 2_000_000
#: The folder is searched for new ranks at least at this interval, in seconds. A change of the last
#: second may be followed by one that has the same time.
_FIND_EVERY_S, _FOLDER_SETTLES_S = 2.0, 1.0
#: The wall clocks of hosts may be this far apart, in seconds, when ends and starts are compared.
_CLOCKS_APART_S = 60.0
#: Watchers of other hosts answer a question within this time, in seconds: they look four times a
#: second, and asking a rank's monitor for everything takes at most 1.2 s.
_OTHERS_ANSWER_S = 3.0
#: Monitors give the entries that the Flight Recorder has added within this time, in seconds.
_DRAIN_LIMIT_S = 0.4
#: A rank's monitor accepts a connection within this time, in seconds.
_CONNECT_LIMIT_S = 1.0


_REPORT = re.compile(r"report-(\d{1,9})\.ddt\.json")
M = TypeVar("M", bound=Message)


class NotRecorded(DdtError):
    """A folder holds no record of a rank."""


class RecordedRank(ObservedRank):
    """A process of a recorded job.

    Parameters
    ----------
    file
        Its `RankStarted`.
    watched
        True for the watcher of a running job, which notes when processes end. Another reader
        takes a process of another machine as running only if that machine's watcher answers.
    """

    def __init__(self, file: Path, *, watched: bool) -> None:
        started = job_files.read(file)
        if not isinstance(started, RankStarted) or not _is_possible(started):
            raise FormatError(f"{file} does not describe a rank")
        super().__init__(started.rank or 0, file.with_suffix(""))
        self.started = started
        self.pid = started.pid
        self.torch_version = started.torch_version
        self.missing_features = started.missing_features
        self.is_here = started.host == socket.gethostname()
        self.gone_s: float | None = None  #: when its process ended; None while it runs
        self.end_is_known = False  #: whether anything shows that its process has ended
        self.shared: RankAnswers | None = None  #: what the watcher of another host has shared
        self.answers: bool | None = (
            None  #: whether that watcher answered this reader; None: unasked
        )
        self._blocked_seen = 0.0, 0.0  # since when it waits on its own clock, and here
        self._watched = watched
        self._calls = RingReader(self._file("calls"))
        self.recorder = RankRecorder(self._calls, lambda cell, line: "", wall_s=self.wall_s)
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
    def noted_end_s(self) -> float | None:
        """When it ended, in seconds since the epoch, if it or a watcher has noted that."""
        noted = self.end or self._message("gone", RankGone)
        return None if noted is None else noted.ended_s + self.wall_s

    @property
    def last_recorded_s(self) -> float:
        """When it last began or ended a call, or started."""
        return max(self.started.started_s, self._calls.changed_s)

    @property
    def wall_s(self) -> float:
        """The wall clock of its host minus the monotonic clock."""
        return self.started.wall_s - self.started.started_s

    @property
    def now_s(self) -> float:
        """The time at which the rank is looked at: now, or the end of its process."""
        if self.gone_s is not None:
            return self.gone_s
        if self.is_here:
            return time.monotonic()
        return max(self.last_recorded_s, self.shared.at_s if self.shared is not None else 0.0)

    def lasts_s(self, since_s: float) -> float:
        """For how long a wait has lasted so far; of another host's rank, since it was first seen.

        The clocks of the hosts are not aligned before a report is made.
        """
        if self.is_here:
            return super().lasts_s(since_s)
        if self._blocked_seen[0] != since_s:
            self._blocked_seen = since_s, time.monotonic()
        return time.monotonic() - self._blocked_seen[1]

    @property
    def silent_s(self) -> float:
        """For how long an answer of the monitor has been missing, in seconds."""
        return super().silent_s if self.shared is None else self.shared.silent_s

    @property
    def stopped(self) -> bool:
        """Whether the operating system has suspended it."""
        return super().stopped if self.shared is None else self.shared.stopped

    @property
    def end(self) -> CellEnded | None:
        """What it wrote when it ended by itself; None if it has not."""
        return self._message("end", CellEnded)

    @property
    def process(self) -> psutil.Process | None:
        """Its process, if it ran on this machine when it was found."""
        return self._process

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        if self._process is not None:
            try:
                running = self._process.is_running()
                return bool(running and self._process.status() != psutil.STATUS_ZOMBIE)
            except psutil.Error:
                return False
        return (self._watched or self.answers is True) and self.may_run_elsewhere

    @property
    def is_exiting(self) -> bool:
        """Whether it noted its end and no longer answers, although its process is still there.

        Python's finalization stops the monitor first; then it may wait in destructors for long.
        """
        return self.silent_s > 0 and self.end is not None

    @property
    def may_run_elsewhere(self) -> bool:
        """Whether it belongs to another host, and nobody noted that its process has ended."""
        return not self.is_here and not any(self._file(name).exists() for name in ("end", "gone"))

    def note_end(self, latest_s: float) -> CellEnded | None:
        """Find out how and when its process has ended; returns what it wrote about that.

        Parameters
        ----------
        latest_s
            The time of the last record of its machine. The process ended later, but when is known
            only if it or a watcher noted it.
        """
        self.disconnect()
        end = self.end
        if end is not None:
            self.gone_s, self.end_is_known = end.ended_s, True
            return end
        gone = self._message("gone", RankGone)
        marks = self._file("exit").exists() or bool(self.crash_text(1))
        self.end_is_known = gone is not None or self.is_here or self._watched or marks
        if gone is None:
            status = self._exit_status()
            gone = RankGone(
                exit_status=status, ended_s=time.monotonic() if self._watched else latest_s
            )
            if self._watched:
                with suppress(OSError):
                    job_files.write(self._file("gone"), gone)
        self.gone_s = gone.ended_s
        failed = self._failed_call()
        if failed is not None and gone.exit_status in _FROM_OUTSIDE:
            return failed
        self.exit_status = gone.exit_status
        return None

    def _failed_call(self) -> CellEnded | None:
        """What it noted when a call failed, if it did nothing more until its process ended."""
        failed = self._message("failure", CellEnded)
        if failed is None or self.gone_s is None or failed.ended_s < self._calls.changed_s:
            return None
        return failed if self.gone_s - failed.ended_s < _UNWINDS_S else None

    def _message(self, ending: str, kind: type[M]) -> M | None:
        try:
            message = job_files.read(self._file(ending))
        except (OSError, FormatError):
            return None
        return message if isinstance(message, kind) else None

    def _exit_status(self) -> int:
        """Exit code, or negative signal, of its process."""
        with suppress(OSError, ValueError):
            return int(self._file("exit").read_text())
        text = self.crash_text(_LONGEST_CRASH)
        before, fatal, _ = text.partition("Fatal Python error")
        if "most recent call first" in before:  # faulthandler writes the stack at SIGTERM
            return -signal.SIGTERM
        if fatal:
            found = (number for word, number in _FATAL.items() if word in text)
            return -next(found, signal.SIGABRT)
        code = _zombies_status(self.pid) if self.is_here else None
        return -signal.SIGKILL if code is None else code

    def kill(self) -> None:
        """End its process, if that runs on this machine."""
        if self._process is not None:
            with suppress(psutil.Error):
                self._process.kill()

    def connect(self) -> bool:
        """Connect to its monitor, unless it is connected; returns whether it is."""
        if self.questions is not None:
            return True
        if not self.started.socket or not self.is_here or self.gone_s is not None:
            return False
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_LIMIT_S)
        try:
            connection.connect(self.started.socket)
            connection.settimeout(None)
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


def _is_possible(started: RankStarted) -> bool:
    """Whether its numbers can be those of a rank."""
    numbers = (started.rank or 0, started.world_size or 0)
    times = (started.wall_s, started.started_s)
    return (
        all(0 <= number < _MOST_RANKS for number in numbers)
        and all(0.0 <= time_s < _LATEST_S for time_s in times)
        and 0 < started.pid < 1 << 31
    )


def _zombies_status(pid: int) -> int | None:
    """The status of a process whose parent has not asked for it yet; None if it is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] != "Z":
        return None
    status = int(fields[-1])
    return os.waitstatus_to_exitcode(status)


class RecordedJob:
    """The ranks that a job has started last.

    Parameters
    ----------
    folder
        The job's folder.
    watched
        See `RecordedRank`.
    only
        The job whose ranks are looked at, as in `RankStarted`, if one command runs several at the
        same time; empty for the first one.
    """

    def __init__(self, folder: Path, *, watched: bool = False, only: str = "") -> None:
        self.folder = folder
        #: The jobs that run at the same time as this one, which others have to look at.
        self.beside: set[str] = set()
        self._only = only
        self.runs: list[RankRun] = []
        self.ranks: list[RecordedRank] = []  #: in the order of ``runs``
        self._watched = watched
        self._known: dict[str, RecordedRank] = {}
        # a watcher leaves out the ranks of other hosts that had ended before its own job began
        self._left_out: set[str] = _ended_earlier(folder) if watched else set()
        self._next: dict[int, RecordedRank] | None = None  # a later launch, not looked at yet
        self._ends = ProcessEnds()
        self._found_s, self._changed_ns = -math.inf, 0  # when the folder was read, and its change
        self._answers_here, self._answers_elsewhere = AnswersWriter(folder), AnswersReader(folder)

    @classmethod
    def load(cls, folder: Path) -> RecordedJob:
        """Read the folder of a job that may have ended.

        Raises
        ------
        NotRecorded
            If no rank has written there.
        """
        job = cls(folder)
        job._find()
        job.ask_elsewhere()
        job.look()
        if not job.runs:
            raise NotRecorded(f"{folder} holds no record of a rank{job.why_not_recorded()}")
        return job

    # -- looking ---------------------------------------------------------------------------------

    @property
    def launched_s(self) -> float | None:
        """When the first of its ranks started, in seconds since the epoch; None without ranks."""
        return min((rank.started.wall_s for rank in self.ranks), default=None)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        sizes = [rank.started.world_size or 0 for rank in self.ranks]
        return max([*sizes, *(rank.rank + 1 for rank in self.ranks)], default=0)

    def why_not_recorded(self) -> str:
        """What processes noted about why they are not recorded, after a colon, or nothing."""
        noted = []
        for file in sorted(self.folder.glob(f"*{job_files.FAILED}"))[:3]:
            with suppress(OSError):
                noted.append(file.read_text("utf-8", "replace").strip()[:300])
        return f": {'; '.join(dict.fromkeys(noted))}" if noted else ""

    def look(self) -> None:
        """Find new ranks, read what all have recorded, and notice ended processes.

        A watcher goes on with the ranks of a later launch only in `begin_next_launch`.
        """
        self._find()
        # while ranks of the same launch run here, nothing shows that those elsewhere have ended
        ends = self._ends.ended()
        runs = {
            id(rank): (rank.files not in ends if self._ends.watches(rank.files) else rank.runs)
            and not rank.is_exiting
            for rank in self.ranks
            if rank.gone_s is None
        }
        some_run = any(rank.is_here and runs.get(id(rank), False) for rank in self.ranks)
        ended = [
            (run, rank)
            for run, rank in zip(self.runs, self.ranks, strict=True)
            if not runs.get(id(rank), True) and not (some_run and rank.may_run_elsewhere)
        ]
        if ended:
            self._note_ends(ended)
        read_calls(self.runs)

    def _find(self) -> None:
        if not self._folder_changed():
            return
        files = [
            file
            for file in self.folder.glob(f"*{job_files.STARTED}")
            if file.name not in self._known and file.name not in self._left_out
        ]
        found = []
        for file in files:
            try:
                found.append((file.name, RecordedRank(file, watched=self._watched)))
            except (OSError, FormatError):
                self._left_out.add(file.name)
        for name, rank in sorted(found, key=lambda one: one[1].started.wall_s):
            if not self._is_own(rank):
                self._left_out.add(name)
                rank.close()
                continue
            self._known[name] = rank
            if self._watched and rank.process is not None:
                self._ends.add(rank.files, rank.process)
        self._drop_others()
        if not files or not self._known:
            return
        ranks = _last_launch(self._known.values())
        kept = set(map(id, ranks.values()))
        if self._watched and not all(id(rank) in kept for rank in self.ranks):
            self._next = ranks
        else:
            self._take(ranks)

    def _drop_others(self) -> None:
        """Leave out ranks whose job was found to be another one only after they had been taken."""
        names = [name for name, one in self._known.items() if one.started.job in self.beside]
        if not names:
            return
        self._take({one.rank: one for one in self.ranks if one.started.job not in self.beside})
        for name in names:
            self._left_out.add(name)
            self._known.pop(name).close()

    def _is_own(self, rank: RecordedRank) -> bool:
        """Whether a rank that was found belongs to this job, or to one that follows it.

        Another job runs at the same time if it has a number that a running rank of this one has, or
        another number of ranks.
        """
        job = rank.started.job
        if self._only:
            return job == self._only
        if not self._watched:
            return True
        for one in self._known.values():
            clash = one.rank == rank.rank or one.started.world_size != rank.started.world_size
            if clash and one.started.job not in (job, *self.beside) and one.is_here and one.runs:
                self.beside.add(job)
        return job not in self.beside

    def _folder_changed(self) -> bool:
        """Whether to look for new files; reading the folder of 512 ranks takes milliseconds."""
        now_s = time.monotonic()
        try:
            changed_ns = self.folder.stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        # file systems note a change to some milliseconds, and those of the network later
        settled = time.time() - changed_ns / 1e9 > _FOLDER_SETTLES_S
        if changed_ns == self._changed_ns and settled and now_s - self._found_s < _FIND_EVERY_S:
            return False
        self._found_s, self._changed_ns = now_s, changed_ns
        return True

    @property
    def relaunched(self) -> bool:
        """Whether ranks were launched after those that are looked at, such as by a restart."""
        return self._next is not None

    def begin_next_launch(self) -> None:
        """Look at the ranks that were launched later from now on."""
        if self._next is not None:
            self._take(self._next)
            self._next = None
            self.look()

    def _take(self, ranks: dict[int, RecordedRank]) -> None:
        known = {id(rank): run for run, rank in zip(self.runs, self.ranks, strict=True)}
        self.ranks = [ranks[number] for number in sorted(ranks)]
        self.runs = [known.get(id(rank)) or RankRun(rank, asked=True) for rank in self.ranks]

    def _note_ends(self, ended: list[tuple[RankRun, RecordedRank]]) -> None:
        latest: dict[str, float] = {}
        for rank in self.ranks:
            host = rank.started.host
            latest[host] = max(latest.get(host, 0.0), rank.last_recorded_s)
        for run, rank in ended:
            answers = self._answers_elsewhere.new(rank.files)
            if answers is not None and not (self._watched and rank.is_here):
                _take_answers(run, rank, answers)
            end = rank.note_end(latest[rank.started.host])
            if end is not None:
                run.end(end, freed=False)
        self._judge_deaths()

    def _judge_deaths(self) -> None:
        """Decide which deaths count: what was ended from outside after a failure does not."""
        dead = [
            (run, rank)
            for run, rank in self._pairs()
            if rank.exit_status is not None and rank.end_is_known
        ]
        ended_s = {id(rank): (rank.gone_s or 0.0) + rank.wall_s for rank in self.ranks}
        by_itself = [rank for _, rank in dead if rank.exit_status not in _FROM_OUTSIDE]
        killed = [rank for _, rank in dead if rank.exit_status == -signal.SIGKILL]
        others = [
            *(ended_s[id(rank)] for _, rank in dead if rank not in killed),
            *(
                ended_s[id(rank)]
                for run, rank in zip(self.runs, self.ranks, strict=True)
                if run.error is not None
            ),
        ]
        first_s = min(others, default=math.inf)
        # such as by the system, which was out of memory
        killed_first = [
            rank for rank in killed if ended_s[id(rank)] < first_s + _BEFORE_A_LAUNCHER_S
        ]
        if len(killed) == len(self.runs):
            killed_first = []  # by a person or by the limit of a batch system
        for run, rank in dead:
            counts = rank in by_itself or rank in killed_first
            if rank.exit_status in _FROM_OUTSIDE and not (by_itself or killed_first):
                failed = any(one.error is not None for one in self.runs)
                counts = not failed and len(dead) < len(self.runs)
            run.exit_status = rank.exit_status if counts else None

    @property
    def ended(self) -> bool:
        """Whether every known process has ended."""
        return all(rank.gone_s is not None for rank in self.ranks)

    @property
    def all_ended(self) -> bool:
        """Whether as many ranks as the job has were seen, and have ended."""
        return bool(self.ranks) and self.ended and not self._missing

    @property
    def ended_from_outside(self) -> bool:
        """Whether processes were ended, by no fault of theirs, before their ranks had finished."""
        return any(
            run.unfinished and rank.exit_status is not None and rank.end_is_known
            for run, rank in zip(self.runs, self.ranks, strict=True)
        )

    @property
    def runs_elsewhere(self) -> bool:
        """Whether ranks of other hosts still run, as far as is known here."""
        return any(rank.gone_s is None and not rank.is_here for rank in self.ranks)

    @property
    def reports_here(self) -> bool:
        """Whether this host has the first rank, so that its watcher reports on all hosts."""
        return not self.ranks or self.ranks[0].is_here

    @property
    def failed(self) -> bool:
        """Whether a rank raised or died."""
        return any(run.error is not None or run.exit_status is not None for run in self.runs)

    # -- questions -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the monitors for the status of their ranks."""
        waiting = any(run.may_be_blocked for run in self.runs)
        for run, rank in zip(self.runs, self.ranks, strict=True):
            if rank.connect():
                run.ask_status(busy_too=waiting)

    def receive(self, limit_s: float = 0.02) -> None:
        """Wait for answers for at most ``limit_s`` seconds, and process them."""
        connected: dict[Any, tuple[RankRun, RecordedRank]] = {
            rank.questions: (run, rank)
            for run, rank in zip(self.runs, self.ranks, strict=True)
            if rank.questions is not None
        }
        if not connected:
            time.sleep(limit_s)
            return
        for channel in wait_for(list(connected), timeout=limit_s):
            assert isinstance(channel, Channel)
            run, rank = connected[channel]
            try:
                run.take_answer(channel.receive())
            except (Closed, FormatError):
                rank.disconnect()

    def observe(self) -> None:
        """Ask running ranks several times, which shows where those stand that wait in a library."""
        for _ in range(_LOOKS):
            self.ask()
            until_s = time.monotonic() + _LOOK_S
            while (left_s := until_s - time.monotonic()) > 0:
                self.receive(left_s)
            self.look()
            busy = (r for r in self.runs if r.unfinished and r.library_wait is None)
            if not any(
                r.handle.recorder is None or r.handle.recorder.blocked is None for r in busy
            ):
                return

    def last_report(self) -> Snapshot | None:
        """The snapshot of the watcher's last report on these ranks; None if there is none."""
        first_s = min(rank.started.wall_s for rank in self.ranks)
        found = map(_REPORT.fullmatch, os.listdir(self.folder))
        last = max((int(name[1]) for name in found if name is not None), default=0)
        with suppress(OSError, FormatError):
            snapshot = Snapshot.load(self.folder / f"report-{last}.ddt.json")
            if snapshot.created == _iso(first_s):
                return snapshot
        return None

    def share(self) -> None:
        """Write what readers on other hosts need, as the watcher of this one."""
        here = self._watched_here
        self._answers_here.write(here, self._fetch_all, changes=self._several_hosts)

    def take_shared(self) -> None:
        """Read what watchers of other hosts have written, once in a while."""
        if not self._answers_elsewhere.due():
            return
        for run, rank in self._pairs():
            if rank.is_here or rank.gone_s is not None:
                continue
            answers = self._answers_elsewhere.new(rank.files)
            if answers is not None:
                _take_answers(run, rank, answers)
            waits = run.library_wait is not None
            if waits and not self._answers_elsewhere.watched(rank.started.host):
                run.library_wait = None

    def ask_elsewhere(self) -> set[int]:
        """Ask the watchers of other hosts what their ranks do; returns the ranks that they ask."""
        asked = {
            rank.files: (run, rank)
            for run, rank in self._pairs()
            if rank.may_run_elsewhere and rank.answers is not False
        }

        def give(files: Path, answers: RankAnswers) -> None:
            _take_answers(*asked[files], answers)

        if not asked:
            return set()
        before = {
            files: rank.shared.question if rank.shared is not None else ""
            for files, (_, rank) in asked.items()
        }
        answered = self._answers_elsewhere.ask(before, give, _OTHERS_ANSWER_S)
        for files, (_, rank) in asked.items():
            if not self._watched:
                rank.answers = files in answered
        return {asked[files][1].rank for files in answered}

    @property
    def _several_hosts(self) -> bool:
        return any(not rank.is_here for rank in self.ranks)

    @property
    def _watched_here(self) -> list[RankRun]:
        return [run for run, rank in self._pairs() if rank.is_here and rank.gone_s is None]

    def _pairs(self) -> Iterable[tuple[RankRun, RecordedRank]]:
        return zip(self.runs, self.ranks, strict=True)

    def _fetch_all(self, runs: list[RankRun]) -> None:
        """Ask monitors for everything, of ranks that are watched further."""
        judged = [run.judged for run in runs]
        for run in runs:
            run.handle.ask(AskStatus())
        self._drain_flight(runs)
        fetch_stacks(runs, self.receive)
        fetch_branch_values(runs, self.receive, always=False)
        for run, before in zip(runs, judged, strict=True):
            run.judged = before

    def _drain_flight(self, runs: list[RankRun]) -> None:
        """Learn whether libraries issue collectives here, which may have shown elsewhere only."""
        for run in runs:
            if run.unfinished:
                run.handle.ask(AskFlight(stacks=False))
        until_s = time.monotonic() + _DRAIN_LIMIT_S
        while any(run.handle.owes_flight for run in runs) and time.monotonic() < until_s:
            self.receive()

    def fetch_flight(self) -> None:
        """Ask for the operations of libraries, before a launcher ends the ranks that still run."""
        fetch_stacks([run for run in self.runs if run.unfinished], self.receive)
        if self._several_hosts:
            self._answers_here.write_all(self._watched_here)

    # -- results ---------------------------------------------------------------------------------

    def state(self, *, whole: bool = False) -> RunState:
        """The state of all ranks now."""
        members = groups_seen(self.runs, self.world_size)
        # a process that still imports torch is a rank that is at work
        expected = () if self.ended else self._missing
        state = state_of(self.runs, members, whole=whole, expected=expected)
        if whole:
            return state
        # the last call of a rank that works on another host is not where it is now
        unseen = {rank.rank for rank in self.ranks if not rank.is_here and rank.status is None}
        reports = (
            replace(one, position=None) if one.state == "running" and one.rank in unseen else one
            for one in state.reports
        )
        return replace(state, reports=tuple(reports)) if unseen else state

    @property
    def _missing(self) -> list[int]:
        """Ranks that have recorded nothing."""
        return sorted(set(range(self.world_size)) - {rank.rank for rank in self.ranks})

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
            here = [run for run, rank in self._pairs() if rank.is_here]
            if self._several_hosts:
                self._drain_flight(self._watched_here)
            fetch_stacks(here, self.receive)
            fetch_branch_values(here, self.receive, always=False)
            if self.reports_here or not self._watched:
                self.ask_elsewhere()
        state = self.state(whole=True)
        clock_of = self._clocks(state.reports)
        at = max(rank.now_s + clock_of[rank.rank].ahead_s for rank in self.ranks)
        reports = tuple(self._at(one, at, clock_of) for one in state.reports)
        branches = rank_branches(self.ranks)
        first = min((rank.started for rank in self.ranks), key=lambda one: one.wall_s)
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
        hosts = {rank.rank: rank.started.host for rank in self.ranks}
        unknown = (one for one in self.ranks if one.gone_s is not None and not one.end_is_known)
        notes += about_hosts(hosts)
        notes += about_unknown_ends({rank.rank: hosts[rank.rank] for rank in unknown})
        notes += about_clocks(hosts, clock_of)
        began = {rank.started.wall_s: clock_of[rank.rank].ahead_s for rank in self.ranks}
        snapshot = Snapshot(
            cell=_main_program(first),
            origin="job",
            outcome=outcome or self._outcome(state),
            ranks=reports,
            files=known.of(named_files(reports, branches)),
            groups=groups_seen(self.runs, self.world_size),
            world_size=self.world_size,
            backend=first.backend,
            has_group=False,
            hang_after_s=hang_after_s,
            duration_s=round(max(0.0, at - first.started_s - began[first.wall_s]), 6),
            created=_iso(first.wall_s),
            torch_version=first.torch_version,
            missing_features=_joined(rank.missing_features for rank in self.ranks),
            notes=tuple(notes),
            branches=branches,
        )
        observed = {
            run.handle.rank: run.ended.observed
            for run in self.runs
            if run.ended is not None and run.ended.observed is not None
        }
        return add_observations(snapshot, observed) if observed else snapshot

    def with_answers(self, snapshot: Snapshot, *, stands: bool) -> Snapshot:
        """A snapshot with what the ranks that run answer about the user's objects.

        Parameters
        ----------
        snapshot
            The result of `snapshot`.
        stands
            Whether the job hangs.
        """
        seen, asked = ask_running(self.ranks, self.receive, stands=stands)
        return replace(add_observations(snapshot, seen), running=asked)

    def _clocks(self, reports: tuple[RankReport, ...]) -> dict[int, Clock]:
        """The clock of each rank's host."""
        hosts = {rank.rank: rank.started.host for rank in self.ranks}
        wall_s = {rank.started.host: rank.wall_s for rank in self.ranks}
        found = clocks(hosts, reports, wall_s)
        return {rank: found[host] for rank, host in hosts.items()}

    def _at(self, report: RankReport, at_s: float, clock_of: Mapping[int, Clock]) -> RankReport:
        """A report on the clock of the first rank's host, where it is ``at_s`` now.

        A rank of another host was looked at as of its last record, when its wait began.
        """
        clock = clock_of.get(report.rank, Clock())
        rank = next((one for one in self.ranks if one.rank == report.rank), None)
        waits = rank is not None and not rank.is_here and rank.gone_s is None
        if rank is not None and waits and report.blocked_s is not None:
            later_s = max(0.0, at_s - rank.now_s - clock.ahead_s)
            report = replace(report, blocked_s=report.blocked_s + later_s)
        return on_one_clock(report, clock)

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


def _take_answers(run: RankRun, rank: RecordedRank, answers: RankAnswers) -> None:
    """Treat what another host's watcher has shared as answers of the rank's monitor."""
    rank.shared, rank.status = answers, answers.status
    run.cpu_share, run.library_wait = answers.cpu_share, None
    if rank.recorder is not None:
        rank.recorder.add_flight(answers.flight)
    if answers.branches is not None:
        rank.branch_values = answers.branches
        if rank.recorder is not None:
            rank.recorder.branch_marks = answers.branches.marks
    group, number, since_s = answers.waits_group, answers.waits_number, answers.waits_since_s
    # a rank that has recorded a call since then has left that wait
    if group is None or number is None or since_s is None:
        return
    if rank.last_recorded_s <= answers.at_s:
        run.library_wait = (group, number), since_s


def _last_launch(known: Iterable[RecordedRank]) -> dict[int, RecordedRank]:
    """The ranks that were started last, by number.

    A restart by torchrun has its own generation, and a batch system's job its own id. Two commands
    one after the other may have equal ids (torchrun's is ``none`` unless it is given); a rank that
    starts for the second time, or long after all others have ended, then begins the later one.
    """
    ordered = sorted(known, key=lambda one: one.started.wall_s)
    newest = [one for one in ordered if one.generation == ordered[-1].generation]
    # a launcher may pass the batch system's variables to some hosts only
    allocations = [one.started.allocation for one in newest if one.started.allocation]
    ranks: dict[int, RecordedRank] = {}
    for one in newest:
        if one.started.allocation in ("", *allocations[-1:]):
            if one.rank in ranks or _ended_before(ranks.values(), one.started.wall_s):
                ranks = {}
            ranks[one.rank] = one
    return ranks


def _ended_before(ranks: Iterable[RecordedRank], wall_s: float) -> bool:
    """Whether all ranks had ended long before that time."""
    ends = (rank.noted_end_s for rank in ranks)
    return all(end is not None and end + _CLOCKS_APART_S < wall_s for end in ends)


def is_recorded(folder: Path, host: str = "") -> bool:
    """Whether a folder is that of a recorded job in which a rank was seen, on a host if given."""
    if not folder.is_dir():
        return False
    recorded = (file.stem.rpartition("-")[0] for file in folder.glob(f"*{job_files.STARTED}"))
    return any(not host or one == host for one in recorded)


def _ended_earlier(folder: Path) -> set[str]:
    """The names of the files of ranks that ended long ago."""
    found = set()
    for file in folder.glob(f"*{job_files.STARTED}"):
        with suppress(OSError, FormatError):
            rank = RecordedRank(file, watched=False)
            if _ended_before([rank], time.time()):
                found.add(file.name)
            rank.close()
    return found


def allocation_of(folder: Path) -> str:
    """The batch system's job that recorded to a folder; empty if none is known."""
    for file in sorted(folder.glob(f"*{job_files.STARTED}")):
        with suppress(OSError, FormatError):
            started = job_files.read(file)
            if isinstance(started, RankStarted) and started.allocation:
                return started.allocation
    return ""


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
            job.observe()
            stands = bool(job.state().stuck)
            return job.with_answers(job.snapshot(), stands=stands)
        # at that time, the monitors of the ranks could still be asked
        report = job.last_report()
        if report is None or report.outcome == "interrupted":
            now = job.snapshot()
            # ranks may go on when the command that started them has ended
            if report is None or now.outcome != "interrupted":
                return now
        return report
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
    with suppress(OSError, SyntaxError, ValueError), tokenize.open(started.script) as file:
        source = file.read()
    return Cell(number=1, source=source, file=started.script, arguments=started.arguments)
