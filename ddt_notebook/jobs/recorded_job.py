"""A recorded job: the ranks whose files are in its folder, and the snapshot of them.

The processes may run, or all of them may be gone. A rank that was waiting when its process was
ended from outside is reported as waiting, since the end of the process says nothing about it.
"""

from __future__ import annotations

import datetime
import os
import re
import select
import signal
import time
import tokenize
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from ..formatting import ranks_text
from ..host.branches import rank_branches
from ..host.details import fetch_branch_values, fetch_stacks, named_files
from ..host.limits import GPUS_SIMULATED
from ..host.rank_run import RankRun, RunState, groups_seen, read_calls, state_of
from ..host.source_files import SourceFiles
from ..model import Cell, DdtError, FormatError, RankReport, Snapshot
from ..model.clock import Clock, on_one_clock
from ..model.observation import add_observations
from ..model.snapshot import Outcome
from ..wire import job_files
from ..wire.channel import Channel, Closed
from ..wire.job_files import RankAnswers, RankStarted
from ..wire.messages import AskFlight, AskStatus
from .clocks import clocks
from .deaths import judge_deaths
from .host_notes import about_clocks, about_hosts, about_unknown_ends
from .launches import JobFolder
from .process_ends import ProcessEnds
from .questions import ask_running
from .recorded_process import RecordedRank
from .shared_answers import AnswersReader, AnswersWriter

#: How often a running job is observed, and for how long each time, in seconds. Two answers of a
#: rank that are 0.2 s apart show that it is idle, a third one in which operation; a busy rank may
#: answer late.
_LOOKS, _LOOK_S = 8, 0.3
#: Watchers of other hosts answer a question within this time, in seconds: they look four times a
#: second, and asking a rank's monitor for everything takes at most 1.2 s.
_OTHERS_ANSWER_S = 3.0
#: Monitors give the entries that the Flight Recorder has added within this time, in seconds.
_DRAIN_LIMIT_S = 0.4

_REPORT = re.compile(r"report-(\d{1,9})\.ddt\.json")


class NotRecorded(DdtError):
    """A folder holds no record of a rank."""


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
        self.runs: list[RankRun] = []
        self.ranks: list[RecordedRank] = []  #: in the order of ``runs``
        #: Whether this host reports if records are collected; None: if it has the first rank.
        self.reports: bool | None = None
        self._watched = watched
        self._files = JobFolder(folder, watched=watched, only=only)
        self._next: dict[int, RecordedRank] | None = None  # a later launch, not looked at yet
        self._ends = ProcessEnds()
        #: The connections that are polled, and whose they are, by descriptor.
        self._connected: list[Channel] = []
        self._poll = select.poll()
        self._answering: dict[int, tuple[RankRun, RecordedRank]] = {}
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
        ends = self._ends.ended()
        ended = [
            (run, rank)
            for run, rank in self._pairs()
            if rank.gone_s is None and not self._goes_on(rank, ends)
        ]
        if ended:
            # while ranks of the same launch run here, nothing shows that those elsewhere have ended
            over = {id(rank) for _, rank in ended}
            living = (rank for rank in self.ranks if rank.gone_s is None and id(rank) not in over)
            if any(rank.is_here for rank in living):
                ended = [(run, rank) for run, rank in ended if not rank.may_run_elsewhere]
        if ended:
            self._note_ends(ended)
        read_calls(self.runs)

    def _goes_on(self, rank: RecordedRank, ends: set[Hashable]) -> bool:
        runs = rank not in ends if self._ends.watches(rank) else rank.runs
        return runs and not rank.is_exiting

    def _find(self) -> None:
        found = self._files.find()
        for rank in found:
            if self._watched and rank.process is not None:
                self._ends.add(rank, rank.process)
        dropped = self._files.drop_others()
        if dropped:
            self._take({one.rank: one for one in self.ranks if one.started.job not in self.beside})
        ranks = self._files.last_launch() if found or dropped else {}
        if not ranks:
            return
        kept = set(map(id, ranks.values()))
        if self._watched and not all(id(rank) in kept for rank in self.ranks):
            self._next = ranks
        else:
            self._take(ranks)

    @property
    def beside(self) -> set[str]:
        """The jobs that run at the same time as this one, which others have to look at."""
        return self._files.beside

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
        read_calls(self.runs)  # a call of init_process_group makes earlier answers void
        for run, rank in ended:
            answers = self._answers_elsewhere.new(rank.files)
            if answers is not None and not (self._watched and rank.is_here):
                _take_answers(run, rank, answers)
        latest: dict[str, float] = {}
        for rank in self.ranks:
            host = rank.started.host
            at_s = max(rank.last_recorded_s, rank.shared.at_s if rank.shared is not None else 0.0)
            latest[host] = max(latest.get(host, 0.0), at_s)
        for run, rank in ended:
            end = rank.note_end(latest[rank.started.host])
            if end is not None:
                run.end(end, freed=False)
        judge_deaths(list(self._pairs()))

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
        """Whether the watcher here reports on all hosts: by default, that of the first rank."""
        if self.reports is not None:
            return self.reports
        return not self.ranks or self.ranks[0].is_here

    @property
    def failed(self) -> bool:
        """Whether a rank raised or died."""
        return any(run.error is not None or run.exit_status is not None for run in self.runs)

    @property
    def died_at_exit(self) -> list[str]:
        """What to say about processes that a signal ended after their scripts had ended."""
        died: dict[int, list[int]] = {}
        for rank in self.ranks:
            number = rank.died_at_exit if rank.gone_s is not None else None
            if number is not None:
                died.setdefault(number, []).append(rank.rank)
        return [
            f"after the script had ended, {signal.Signals(number).name} ended the process of "
            f"{ranks_text(ranks)}; the last lines of its output may show why"
            for number, ranks in died.items()
        ]

    # -- questions -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the monitors for the status of their ranks."""
        waiting = any(run.may_be_blocked for run in self.runs)
        for run, rank in zip(self.runs, self.ranks, strict=True):
            if rank.connect():
                run.ask_status(busy_too=waiting, among=len(self.runs))

    def watch_command(self, pid: int) -> None:
        """Let `wait` notice the end of the command that started the job."""
        self._ends.add("command", psutil.Process(pid))

    def wait(self, limit_s: float) -> None:
        """Wait until a process ends, for at most ``limit_s`` seconds; then process answers."""
        self._ends.wait(limit_s)
        self.receive(0.0)

    def receive(self, limit_s: float = 0.02) -> None:
        """Wait for answers for at most ``limit_s`` seconds, and process them."""
        connected = [rank.questions for rank in self.ranks if rank.questions is not None]
        if not connected:
            time.sleep(limit_s)
            return
        if connected != self._connected:
            self._connected, self._poll, self._answering = connected, select.poll(), {}
            for run, rank in self._pairs():
                if rank.questions is not None:
                    self._poll.register(rank.questions.fileno(), select.POLLIN)
                    self._answering[rank.questions.fileno()] = run, rank
        for descriptor, _ in self._poll.poll(1e3 * limit_s):
            run, rank = self._answering[descriptor]
            assert rank.questions is not None
            try:
                run.take_answer(rank.questions.receive())
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
    def hosts(self) -> dict[int, str]:
        """The host of each rank."""
        return {rank.rank: rank.started.host for rank in self.ranks}

    @property
    def _several_hosts(self) -> bool:
        return self.reports is False or any(not rank.is_here for rank in self.ranks)

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
        # a process that still imports torch is a rank that is at work; once the ranks have met, it
        # is one that is not recorded here
        unrecorded = self.ended or (whole and self._have_met)
        expected = () if unrecorded else self._missing
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
    def _have_met(self) -> bool:
        """Whether a rank has gone past a collective, which it cannot before all have joined."""
        recorders = (run.handle.recorder for run in self.runs)
        return any(max(one.reached().values(), default=0) > 1 for one in recorders if one)

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
        hosts = self.hosts
        if len(set(hosts.values())) == 1:
            reports = tuple(replace(one, host="") for one in reports)
        branches = rank_branches(self.ranks)
        first = min((rank.started for rank in self.ranks), key=lambda one: one.wall_s)
        known = SourceFiles()
        for run in self.runs:
            if run.ended is not None:
                known.note(run.ended.imported)
        notes = list(dict.fromkeys(note for run in self.runs for note in run.notes))
        if first.simulated_gpus and (outcome or self._outcome(state)) != "ok":
            notes.append(GPUS_SIMULATED)
        missing = self._missing
        if missing:
            numbers = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            notes.append(f"no record of these ranks: {numbers}{self.why_not_recorded()}")
        if self.ended_from_outside:
            notes.append("the ranks were ended from outside; they are shown as they were before")
        notes += self.died_at_exit
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
            framework=next(
                (one.started.framework for one in self.ranks if one.started.framework), ""
            ),
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
        return add_observations(snapshot, observed, clock_of) if observed else snapshot

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
        # they are of this host, and have no times
        return replace(add_observations(snapshot, seen, {}), running=asked)

    def _clocks(self, reports: tuple[RankReport, ...]) -> dict[int, Clock]:
        """The clock of each rank's host."""
        hosts = self.hosts
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
        self._files.close()


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
