"""Runs one cell on the ranks, from its start until it has ended on all of them."""

from __future__ import annotations

import datetime
import linecache
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ..model import Cell, RankReport, Snapshot
from ..model.branches import RankBranches
from ..model.observation import Observation
from ..model.snapshot import Outcome
from ..model.waits import Waiting
from ..wire.channel import Closed
from ..wire.messages import (
    CellEnded,
    DisplayShown,
    ExceptionRaised,
    Failed,
    RunCell,
)
from . import interrupts
from .branches import rank_branches
from .details import fetch_branch_values, fetch_stacks, named_files
from .hang_detection import SHOW_AFTER_S, HangWatch, builds_now, waiting_now
from .hang_recovery import Rescue
from .limits import GPUS_SIMULATED
from .listeners import (
    DisplayMessage,
    MomentFeed,
    RunListener,
    RunObserver,
    SilentListener,
)
from .notebook_names import missing_names
from .output_files import KeptText
from .place import Place
from .pool import RankPool, group_timeout_s
from .rank_run import (
    RankRun,
    RunState,
    brief,
    group_is_damaged,
    groups_seen,
    read_calls,
    state_of,
)
from .run_result import RunResult
from .source_files import SourceFiles

#: How long to wait for messages at most, and how often to look at the ranks beside them.
_TICK_S, _LOOK_EVERY_S = 0.03, 0.005
_ASK_EVERY_S = 0.25
#: A long wait is examined only this often, in seconds, because it may last for half an hour.
_EXAMINE_LONG_EVERY_S = 0.25
#: Of `WaitsFor`, those of extensions that PyTorch builds.
_BUILDS = ("build", "build lock")
#: A rescue that has lasted this long, in seconds, has taken its last step and is given up.
_GIVE_UP_S = 3.0


class CellRun:
    """Runs one cell. `start` sends it to the ranks, `drive` waits until it has ended.

    Parameters
    ----------
    pool
        The ranks.
    cell, earlier
        The cell, and the cells before it.
    chosen
        Ranks on which it runs.
    timeout_s, hang_after_s, freeze, trace, keep_names, replay
        As in `Session` and `Session.run_script`.
    trained_before
        As in `Snapshot`.
    branches
        Whether to observe branches also where that slows the user's code.
    listener
        Gets the output.
    observers
        Receive the progress of the ranks.
    """

    def __init__(
        self,
        pool: RankPool,
        cell: Cell,
        earlier: tuple[Cell, ...],
        chosen: tuple[int, ...],
        *,
        timeout_s: float | None,
        hang_after_s: float,
        freeze: bool,
        trace: bool,
        branches: bool,
        keep_names: bool = False,
        replay: str = "",
        trained_before: bool = False,
        listener: RunListener,
        observers: Sequence[RunObserver] = (),
    ) -> None:
        self.cell = cell
        self.frozen = False
        self._pool = pool
        self._earlier, self._trained_before = earlier, trained_before
        group_s = group_timeout_s(timeout_s, pool.options.backend)
        self._group_timeout_s, self._hang_after_s = group_s, hang_after_s
        self._timeout_s = group_s if timeout_s is None else timeout_s
        self._watch = HangWatch(timeout_s=timeout_s, hang_after_s=hang_after_s)
        self._freeze, self.trace, self._observe_branches = freeze, trace, branches
        self._keep_names, self._replay = keep_names, replay
        self._branches: tuple[RankBranches, ...] = ()
        self._listener = listener
        self._feed = MomentFeed(observers, cell.number)
        self._state: RunState | None = None  # the current state, if a rank may be blocked
        self._kept = {rank: KeptText() for rank in chosen}
        self._runs = [RankRun(h, asked=h.rank in chosen) for h in pool.handles]
        self._outcome: Outcome = "ok"
        #: Whether the session has formed the process group in which this runs.
        self._in_group = pool.options.group and not cell.file
        self._held: RunState | None = None  # the state when the run was declared over
        self._rescue: Rescue | None = None
        self._interrupt_asked = self._freeze_asked = False
        self._poller: select.poll | None = None  # of the ranks that run, and how many these are
        self._polled = 0
        self._builds_since_s: float | None = None
        self._examined_s = self._asked_s = self._looked_s = 0.0
        self._began_s = self._ended_s = 0.0
        self._created = ""

    def start(self) -> None:
        """Send the cell to the ranks; returns at once."""
        linecache.checkcache()  # the user may have edited a file
        self._began_s = self._looked_s = time.monotonic()
        self._created = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        command = RunCell(
            cell=self.cell.number,
            source=self.cell.source,
            first_line=self.cell.first_line,
            group_timeout_s=self._group_timeout_s,
            trace=self.trace,
            branches=self._observe_branches,
            file=self.cell.file,
            arguments=self.cell.arguments,
            keep_names=self._keep_names,
            replay=self._replay,
        )
        try:
            with interrupts.deferred():
                self._send(command)
        except KeyboardInterrupt:  # the cell runs by now: `drive` ends it
            self._interrupt_asked = True

    def _send(self, command: RunCell) -> None:
        for run in self._runs:
            handle = run.handle
            if handle.recorder is not None:
                handle.recorder.begin_run()
            handle.forget_status()
            if run.asked:
                run.number = handle.command(command)

    def observed(self) -> dict[int, Observation]:
        """What ranks observed at the end of the cell without being asked, by rank."""
        return {
            run.handle.rank: run.ended.observed
            for run in self._runs
            if run.ended is not None and run.ended.observed is not None
        }

    # -- the loop ------------------------------------------------------------------------------

    @property
    def blocked(self) -> frozenset[int]:
        """Ranks that wait while the cell is being held."""
        return frozenset(self._held.waiting) if self._held is not None else frozenset()

    @property
    def _failed(self) -> bool:
        return any(run.error is not None or run.exit_status is not None for run in self._runs)

    @property
    def unfinished(self) -> frozenset[int]:
        """Ranks on which the cell still runs."""
        return frozenset(run.handle.rank for run in self._runs if run.unfinished)

    @property
    def _describes_error(self) -> bool:
        return any(run.describes_error for run in self._runs)

    def drive(self) -> RunResult:
        """Wait until the cell has ended on every rank, or is held; returns the result."""
        try:
            self._loop_through_interrupts()
            self._listener.on_waiting(None)
            if self.frozen:
                self._listener.on_end()
                return self._feed.end(self._result())
            with interrupts.deferred():
                return self._feed.end(self._finish())
        except Exception:  # of ours or of the listener: the ranks must not run on unattended
            self._listener = SilentListener()
            self._feed.silence()
            self._interrupt_now()
            with interrupts.deferred():
                self._loop_through_interrupts()
                self._finish()
            raise

    def _loop_through_interrupts(self) -> None:
        for _ in range(3):  # a keyboard interrupt ends the cell first, and only then this loop
            try:
                self._loop()
            except KeyboardInterrupt:
                self._interrupt_now()
            else:
                return

    def _loop(self) -> None:
        while self.unfinished or (self._rescue is not None and self._rescue.owed):
            if not self._wait():
                continue
            self._relay_output()
            self._listener.on_tick(time.monotonic())
            self._feed.tick(self._reports, waiting=self._state is not None)
            if self._rescue is not None:
                self._rescue.step()
                if self._rescue.passed_s > _GIVE_UP_S and not self._describes_error:
                    break
            elif self._interrupt_asked:
                self._interrupt_now()
            elif self._freeze_asked and self.unfinished:
                self._freeze_now()
                return
            elif self._examine():
                return

    def _reports(self) -> tuple[RankReport, ...]:
        if self._state is not None:
            return self._state.reports
        return tuple(brief(run) for run in self._runs)

    def _state_now(self, *, whole: bool = False) -> RunState:
        return state_of(self._runs, groups_seen(self._runs), whole=whole)

    def interrupt(self) -> None:
        """End the cell within two seconds, whatever the ranks do; may be called from any thread."""
        self._interrupt_asked = True

    def _interrupt_now(self) -> None:
        if self._rescue is None:
            self._hold("interrupted")
            self._begin_rescue(self.unfinished)

    def freeze(self) -> None:
        """Hold the cell as it is, within a tick; may be called from any thread."""
        self._freeze_asked = True

    def _freeze_now(self) -> None:
        self._listener.on_waiting(None)
        stuck = self._state_now().stuck
        self._hold(("failed" if self._failed else "hung") if stuck else "interrupted")
        self.frozen = True

    def unfreeze(self) -> None:
        """Begin to end the cell that is held."""
        self.frozen = self._freeze_asked = False
        # a cell that was held before it hung would otherwise run on
        self._begin_rescue(self.unfinished if self._outcome == "interrupted" else frozenset())

    def _wait(self) -> bool:
        """Process everything that arrives within a tick.

        Returns
        -------
        bool
            Whether it is time to look at what the ranks do: most answers come at the same time,
            and a look at all ranks after each of them would take longer than short cells.
        """
        running = [run for run in self._runs if run.exit_status is None]
        if self._poller is None or len(running) != self._polled:
            self._poller, self._polled = _poller(self._pool.place, running), len(running)
        ready = {descriptor for descriptor, _ in self._poller.poll(1e3 * _TICK_S)}
        for run in running:
            if run.handle.commands.fileno() in ready:
                self._receive(run)
            if run.handle.questions.fileno() in ready:
                with suppress(Closed):
                    run.take_answer(run.handle.receive(run.handle.questions))
        now = time.monotonic()
        if now - self._looked_s < _LOOK_EVERY_S and self._pool.place.fileno() not in ready:
            return False
        self._looked_s = now
        self._pool.reap()
        for run in self._runs:
            if run.exit_status is None and not run.handle.alive:
                self._receive_rest(run)
                run.exit_status = run.handle.exit_status
        read_calls(self._runs)
        return True

    def _receive_rest(self, run: RankRun) -> None:
        while run.handle.commands.poll():
            if not self._receive(run):
                return

    def _receive(self, run: RankRun) -> bool:
        try:
            received = run.handle.receive(run.handle.commands)
        except Closed:
            return False
        rank, rescue = run.handle.rank, self._rescue
        match received.message:
            case DisplayShown() as shown:
                self._relay_output(run, shown.stdout_bytes, shown.stderr_bytes)
                self._relay_display(rank, shown)
            case ExceptionRaised():
                run.raised_s = time.monotonic()
            case _ if rescue is not None and rescue.is_own_answer(rank, received.number):
                rescue.answered(rank)
            case CellEnded() | Failed() as ended if received.number == run.number:
                freed = rescue.freed if rescue is not None else frozenset()
                run.end(ended, freed=rank in freed)
        return True

    def _relay_display(self, rank: int, shown: DisplayShown) -> None:
        message = DisplayMessage(
            kind=shown.kind,
            data=shown.data,
            metadata=shown.metadata,
            transient=shown.transient,
            update=shown.update,
        )
        self._listener.on_display(rank, message)
        if shown.kind != "clear" and "text/plain" in shown.data:
            self._kept[rank].add(f"{shown.data['text/plain']}\n")

    def _relay_output(
        self, only: RankRun | None = None, out: int | None = None, err: int | None = None
    ) -> None:
        for run in [only] if only is not None else self._runs:
            if not run.asked:
                continue
            rank = run.handle.rank
            for stream, until in (("stdout", out), ("stderr", err)):
                text = run.handle.tails[stream].read(until)  # type: ignore[index]
                if text:
                    self._kept[rank].add(text)
                    self._listener.on_output(rank, stream, text)  # type: ignore[arg-type]

    # -- slow or hung --------------------------------------------------------------------------

    def _examine(self) -> bool:
        """Find the blocked ranks; returns True if a hang was declared and will be held."""
        now = time.monotonic()
        if now - self._asked_s > _ASK_EVERY_S and now - self._began_s > _ASK_EVERY_S:
            self._asked_s = now
            all_of_them = self._feed.wanted or any(run.may_be_blocked for run in self._runs)
            for run in self._runs:
                run.ask_status(busy_too=all_of_them)
        if not any(run.may_be_blocked for run in self._runs):
            self._state = None
            self._watch.reset()
            self._listener.on_waiting(self._builds_now())
            return False
        failed = self._failed
        if self._lasts_long and not failed and now - self._examined_s < _EXAMINE_LONG_EVERY_S:
            return False
        self._examined_s = now
        state = self._state = self._state_now()
        over = self._watch.over_the_limit(state) and not self._describes_error
        if not over and not self._watch.hung(state, failed=failed):
            self._listener.on_waiting(waiting_now(state))
            return False
        self._listener.on_waiting(None)
        self._hold("failed" if failed and not over else "hung")
        if self._freeze:
            self.frozen = True
            return True
        self._begin_rescue(self._watch.to_interrupt(state, over_the_limit=over))
        return False

    def _builds_now(self) -> Waiting | None:
        """What is shown of builds that take long, if no rank waits in a collective."""
        statuses = (run.handle.status for run in self._runs if run.unfinished)
        if not any(one is not None and one.waits_for in _BUILDS for one in statuses):
            self._builds_since_s = None
            return None
        now = time.monotonic()
        if self._builds_since_s is None:
            self._builds_since_s = now
        lasted_s = now - self._builds_since_s
        if lasted_s < SHOW_AFTER_S:
            return None
        found = builds_now(brief(run) for run in self._runs)
        return replace(found, waited_s=lasted_s) if found is not None else None

    @property
    def _lasts_long(self) -> bool:
        """Whether a rank has been waiting for so long that its wait is shown."""
        longest = self._state.longest if self._state is not None else None
        return longest is not None and (longest.blocked_s or 0.0) >= SHOW_AFTER_S

    # -- the end -------------------------------------------------------------------------------

    def _hold(self, outcome: Outcome) -> None:
        """Declare the run over, and keep the current state of the ranks."""
        read_calls(self._runs)
        if outcome != "ok":
            fetch_stacks(self._runs, self._wait)
            fetch_branch_values(self._runs, self._wait, always=self._observe_branches)
        self._outcome = outcome
        self._held = self._state_now(whole=True)
        self._ended_s = time.monotonic()
        if outcome != "ok" or self._used_modules_differ:
            self._branches = rank_branches(run.handle for run in self._runs if run.asked)

    @property
    def _used_modules_differ(self) -> bool:
        """Whether the ranks trained with modules that are not equal, for which a line may show."""
        answers = (run.answer for run in self._runs)
        observed = (one.observed for one in answers if isinstance(one, CellEnded))
        trainings = (one.training for one in observed if one is not None)
        used = (one.used for one in trainings if one is not None)
        untrained = (tuple(m.last for m in modules if not m.trained) for modules in used)
        return len(set(untrained)) > 1

    def _begin_rescue(self, interrupt: frozenset[int]) -> None:
        self._state = None
        self._rescue = Rescue(self._runs, interrupt)
        self._rescue.step()

    def _finish(self) -> RunResult:
        for run in self._runs:
            if run.asked:
                for stream, tail in run.handle.tails.items():
                    text = tail.read_all()
                    if text:
                        self._kept[run.handle.rank].add(text)
                        self._listener.on_output(run.handle.rank, stream, text)
        self._listener.on_end()
        if self._held is None:
            self._hold("failed" if self._failed else "ok")
        dead = [run.handle.rank for run in self._runs if run.exit_status is not None]
        dead += [run.handle.rank for run in self._runs if run.unfinished]  # they were given up
        dead += [run.handle.rank for run in self._runs if run.broken]
        damaged = (
            bool(dead or self.cell.file)  # the groups of a script end with it
            or self._rescue is not None
            or group_is_damaged(self._runs, group=self._in_group, well=self._outcome == "ok")
        )
        result = self._result()
        if damaged:
            if result.ok and self._in_group:
                self._pool.notes.append(
                    "ranks left the group in different states, so it was formed again"
                )
            result = replace(result, lost=self._pool.renew(dead))
        return result

    def _result(self) -> RunResult:
        assert self._held is not None
        pool, options = self._pool, self._pool.options
        reports = tuple(self._with_end(report) for report in self._held.reports)
        notes = list(pool.notes)
        notes += pool.missed(reports)
        pool.notes.clear()
        if options.simulated_gpus and self._outcome != "ok":
            notes.append(GPUS_SIMULATED)
        notes += dict.fromkeys(note for run in self._runs for note in run.notes)
        notes += [
            f"it was not observed which way rank {one.rank} went: {one.unobserved}"
            for one in self._branches
            if one.unobserved
        ]
        snapshot = Snapshot(
            cell=self.cell,
            outcome=self._outcome,
            ranks=reports,
            earlier_cells=self._earlier,
            trained_before=self._trained_before,
            files=self._files().of(named_files(reports, self._branches)),
            groups=groups_seen(self._runs),
            world_size=options.world_size,
            backend=options.backend,
            device=options.device,
            has_group=self._in_group,
            framework=options.framework,
            timeout_s=self._timeout_s,
            hang_after_s=self._hang_after_s,
            duration_s=round(self._ended_s - self._began_s, 6),
            created=self._created,
            torch_version=pool.handles[0].torch_version,
            missing_features=pool.missing_features,
            notebook_names=missing_names(report.error for report in reports),
            notes=tuple(notes),
            branches=self._branches,
        )
        asked = [run for run in self._runs if run.asked]
        return RunResult(
            ok=self._outcome == "ok",
            outputs={run.handle.rank: str(self._kept[run.handle.rank]) for run in asked},
            errors={run.handle.rank: run.error for run in asked if run.error is not None},
            snapshot=snapshot,
            duration_s=time.monotonic() - self._began_s,
            frozen=self.frozen,
            replayed=next((run.ended.replayed for run in asked if run.ended is not None), None),
        )

    def _files(self) -> SourceFiles:
        known = SourceFiles() if self.cell.file else self._pool.source_files
        for run in self._runs:
            if run.ended is not None:
                known.note(run.ended.imported)
        return known

    def _with_end(self, report: RankReport) -> RankReport:
        """The report of when the run was declared over, with the exception that freed the rank."""
        run = self._runs[report.rank]
        freed = run.error and replace(run.error, at_s=run.handle.clock.moved(run.error.at_s))
        if (report.error or freed) is report.error and report.killed == run.killed:
            return report
        return replace(report, error=report.error or freed, killed=run.killed)


def _poller(place: Place, runs: Sequence[RankRun]) -> select.poll:
    """Waits for what the ranks send, and for the end of a process."""
    poller = select.poll()
    channels = [c for run in runs for c in (run.handle.commands, run.handle.questions)]
    for waited in (place, *channels):
        poller.register(waited.fileno(), select.POLLIN)
    return poller
