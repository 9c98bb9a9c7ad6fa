"""One cell on the ranks, from its start until it has ended everywhere."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any

from ..model import Cell, RankError, RankReport, Snapshot, codec
from .channel import Closed
from .listener import DisplayMessage, RunListener
from .outputs import KeptText
from .recorder import thin
from .rescue import Rescue
from .result import RunResult
from .watch import RankRun, View, groups_seen, look

if TYPE_CHECKING:
    from .ranks import RankHandle
    from .session import Session

_TICK_S = 0.03
_ASK_EVERY_S = 0.25
#: A wait is looked at more closely from here on.
_LOOK_AFTER_S = 0.1
#: When a rank has raised or died, its peers' wait is ended after this.
_GRACE_AFTER_FAILURE_S = 0.2
_SAY_AFTER_S = 1.0
_STACKS_LIMIT_S = 0.4
#: After the last rung of the rescue nothing is waited for any longer than this.
_GIVE_UP_S = 3.0


class CellRun:
    """Runs one cell.

    Parameters
    ----------
    session
        Whose ranks run it.
    cell, earlier
        The cell, and those before it.
    chosen
        Ranks on which it runs.
    timeout_s
        The longest that a rank is waited for in a collective.
    freeze
        Hold a hang instead of ending it.
    listener
        Is told of output.
    """

    def __init__(
        self,
        session: Session,
        cell: Cell,
        earlier: tuple[Cell, ...],
        chosen: tuple[int, ...],
        *,
        timeout_s: float,
        freeze: bool,
        listener: RunListener,
    ) -> None:
        self.cell = cell
        self.frozen = False
        self._session = session
        self._earlier = earlier
        self._timeout_s = timeout_s
        self._freeze = freeze
        self._listener = listener
        self._kept = {rank: KeptText() for rank in chosen}
        self._runs = [RankRun(h, asked=h.rank in chosen) for h in session.handles]
        self._outcome: str | None = None
        self._held: View | None = None  # the moment at which a hang was declared
        self._rescue: Rescue | None = None
        self._interrupts = 0
        self._stuck_since: dict[frozenset[int], float] = {}
        self._asked_s = 0.0
        self._began_s = time.monotonic()
        self._created = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self._send()

    def _send(self) -> None:
        what = {
            "do": "run",
            "cell": self.cell.number,
            "source": self.cell.source,
            "first_line": self.cell.first_line,
        }
        for run in self._runs:
            handle = run.handle
            if handle.recorder is not None:
                handle.recorder.begin_run()
            handle.forget_status()
            if run.asked:
                run.number = handle.command(what)

    # -- the loop ------------------------------------------------------------------------------

    @property
    def unfinished(self) -> frozenset[int]:
        """Ranks on which the cell still runs."""
        return frozenset(run.handle.rank for run in self._runs if run.unfinished)

    def drive(self) -> RunResult:
        """Wait until the cell has ended on every rank, or is held; then tell how it went."""
        while True:
            with self._interruptible():
                self._loop()
                break
        if self.frozen:
            self._listener.on_status(None)
            self._listener.on_end()
            return self._result(lost={})
        return self._finish()

    def _loop(self) -> None:
        while self.unfinished or (self._rescue is not None and self._rescue.owed):
            self._wait()
            self._relay_output()
            self._listener.on_tick(time.monotonic())
            if self._rescue is not None:
                self._rescue.step()
                if time.monotonic() - self._rescue_began_s > _GIVE_UP_S:
                    break
            elif self._examine():
                return

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """A keyboard interrupt ends the cell, not our own work; the loop then goes on."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupt()
            with suppress(KeyboardInterrupt):
                self._loop()

    def interrupt(self) -> None:
        """End the cell within two seconds, whatever the ranks do."""
        if self._rescue is None:
            self._hold("interrupted")
            self._begin_rescue(self.unfinished)

    def unfreeze(self) -> None:
        """Go on to end a hang that was held."""
        self.frozen = False
        self._begin_rescue(frozenset())

    def _wait(self) -> None:
        session = self._session
        waited: list[Any] = [session.server]
        for run in self._runs:
            if run.exit_status is None:
                waited += [run.handle.commands, run.handle.questions]
        ready = wait_for(waited, timeout=_TICK_S)
        for run in self._runs:
            if run.handle.commands in ready:
                self._receive(run)
            if run.handle.questions in ready:
                with suppress(Closed):
                    entries = run.handle.take_answer(run.handle.questions.receive())
                    if run.handle.recorder is not None:
                        run.handle.recorder.add_flight(entries)
                    run.look_for_library_wait()
        session.reap()
        for run in self._runs:
            if run.exit_status is None and not run.handle.alive:
                self._receive_rest(run)
                run.exit_status = run.handle.exit_status
        recorders = {
            run.handle.rank: run.handle.recorder
            for run in self._runs
            if run.handle.recorder is not None
        }
        for recorder in recorders.values():
            recorder.drain()
        thin(recorders)

    def _receive_rest(self, run: RankRun) -> None:
        while run.handle.commands.poll():
            if not self._receive(run):
                return

    def _receive(self, run: RankRun) -> bool:
        try:
            message = run.handle.commands.receive()
        except Closed:
            return False
        rank = run.handle.rank
        if "display" in message:
            self._relay_output(run, message["out"], message["err"])
            shown = DisplayMessage(
                kind=message["display"],
                data=message["data"],
                metadata=message["metadata"],
                transient=message["transient"],
                update=message["update"],
            )
            self._listener.on_display(rank, shown)
            if shown.kind != "clear" and "text/plain" in shown.data:
                self._kept[rank].add(f"{shown.data['text/plain']}\n")
        elif self._rescue is not None and self._rescue.is_own_answer(rank, message["reply"]):
            self._rescue.answered(rank)
        elif message.get("reply") == run.number:
            self._end_on(run, message)
        return True

    def _end_on(self, run: RankRun, message: dict[str, Any]) -> None:
        run.answer = message
        run.handle.names = message.get("names", [])
        if run.handle.recorder is not None:
            run.handle.recorder.drain()
            run.handle.recorder.add_flight(message.get("flight", []))
        error = message.get("error")
        if isinstance(error, str):  # the rank could not run the cell at all
            run.error = RankError(type="RuntimeError", message=error)
        elif error is not None:
            freed = self._rescue is not None and run.handle.rank in self._rescue.freed
            run.error = replace(
                codec.from_plain(RankError, error), released=freed, at_s=message["ended_s"]
            )

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
        """Look at who is blocked; True if a hang was declared and is to be held."""
        now = time.monotonic()
        if now - self._began_s < _LOOK_AFTER_S:
            return False
        if now - self._asked_s > _ASK_EVERY_S and now - self._began_s > _ASK_EVERY_S:
            self._asked_s = now
            for run in self._runs:
                if run.unfinished:
                    run.handle.ask("status")
                    self._ask_for_flight(run)
        view = look(self._runs, groups_seen(self._runs))
        over = self._over_the_limit(view)
        declared = over or self._stuck_long_enough(view, now)
        if not declared:
            self._say(view)
            return False
        self._listener.on_status(None)
        failed = any(run.error is not None or run.exit_status is not None for run in self._runs)
        self._hold("failed" if failed and not over else "hung")
        if self._freeze:
            self.frozen = True
            return True
        self._begin_rescue(self._to_interrupt(view, over=over))
        return False

    @staticmethod
    def _ask_for_flight(run: RankRun) -> None:
        """Fetch the recorder's entries where a library may be waiting in one."""
        status = run.handle.status
        if status is None:
            return
        in_torch = bool(status.stack) and "/torch/" in status.stack[-1].file
        if in_torch and any(done < given for given, done in status.groups.values()):
            run.handle.ask("flight")

    def _stuck_long_enough(self, view: View, now: float) -> bool:
        stuck = view.stuck | self._left_behind(view)
        if not stuck:
            self._stuck_since.clear()
            return False
        since = self._stuck_since.setdefault(stuck, now)
        self._stuck_since = {stuck: since}
        blocked_s = [r.blocked_s for r in view.reports if r.rank in stuck and r.blocked_s is not None]
        stuck_s = min([now - since + _TICK_S, *blocked_s]) if blocked_s else now - since
        return stuck_s >= self._grace_s()

    def _grace_s(self) -> float:
        failed = any(run.error is not None or run.exit_status is not None for run in self._runs)
        if failed:
            return min(_GRACE_AFTER_FAILURE_S, self._session.hang_after)
        return self._session.hang_after

    @staticmethod
    def _left_behind(view: View) -> frozenset[int]:
        """Stopped ranks, when nobody else does anything any more."""
        stopped = frozenset(report.rank for report in view.reports if report.state == "stopped")
        others = {r.rank for r in view.reports if r.state in ("running", "silent", "blocked")}
        return stopped if others <= view.stuck else frozenset()

    def _over_the_limit(self, view: View) -> bool:
        longest = view.longest
        return longest is not None and (longest.blocked_s or 0.0) > self._timeout_s

    def _to_interrupt(self, view: View, *, over: bool) -> frozenset[int]:
        """Ranks that run code for which others have waited too long, or that are stopped."""
        states = {report.rank: report.state for report in view.reports}
        stopped = {rank for rank, state in states.items() if state == "stopped"}
        if not over:
            return frozenset(stopped)
        awaited = {rank for wait in view.waiting.values() for rank in wait.missing}
        return frozenset(stopped | {r for r in awaited if states.get(r) in ("running", "silent")})

    def _say(self, view: View) -> None:
        longest = view.longest
        if longest is None or (longest.blocked_s or 0.0) < _SAY_AFTER_S:
            self._listener.on_status(None)
            return
        self._listener.on_status(_waiting_line(longest, view))

    # -- the end -------------------------------------------------------------------------------

    def _hold(self, outcome: str) -> None:
        """Keep what can be said at this moment."""
        if outcome != "ok":
            self._fetch_stacks()
        self._outcome = outcome
        self._held = look(self._runs, groups_seen(self._runs), whole=True)
        self._ended_s = time.monotonic()

    def _fetch_stacks(self) -> None:
        """Ask where the collectives came from that libraries issued; the answer is worth a wait."""
        recorders = [r.handle.recorder for r in self._runs if r.handle.recorder is not None]
        if not any(recorder.saw_libraries for recorder in recorders):
            return
        for run in self._runs:
            if run.exit_status is None and run.asked:
                run.handle.ask("flight")
        deadline = time.monotonic() + _STACKS_LIMIT_S
        while time.monotonic() < deadline and any(
            run.handle.flight_owed for run in self._runs if run.exit_status is None
        ):
            self._wait()

    def _begin_rescue(self, interrupt: frozenset[int]) -> None:
        self._rescue_began_s = time.monotonic()
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
        self._listener.on_status(None)
        self._listener.on_end()
        if self._held is None:
            failed = any(r.error is not None or r.exit_status is not None for r in self._runs)
            self._hold("failed" if failed else "ok")
        dead = [run.handle.rank for run in self._runs if run.exit_status is not None]
        dead += [run.handle.rank for run in self._runs if run.unfinished]  # gave up on them
        result = self._result({})
        if dead or self._group_is_damaged():
            lost = self._session.replace(dead)
            self._session.form_group()
            result = replace(result, lost=lost)
        return result

    def _group_is_damaged(self) -> bool:
        """Whether ranks no longer stand at the same place of their groups."""
        if self._rescue is not None:
            return True
        recorders = [run.handle.recorder for run in self._runs if run.handle.recorder is not None]
        if any(recorder.failed for recorder in recorders):
            return True
        if self._session.has_group and any(
            run.answer is not None and not run.answer.get("formed", True) for run in self._runs
        ):
            return True
        reached: dict[str, set[int]] = {}
        for rank, recorder in enumerate(recorders):
            for name, number in recorder.reached().items():
                members = groups_seen(self._runs).get(name, ())
                if rank in members or not members:
                    reached.setdefault(name, set()).add(number)
        if "0" in reached and len(recorders) > 1:
            counts = [recorder.reached().get("0", 0) for recorder in recorders]
            reached["0"] = set(counts)
        pending = any(recorder.pending_flight() is not None for recorder in recorders)
        failed = any(run.error is not None for run in self._runs)
        return any(len(numbers) > 1 for numbers in reached.values()) or (pending and failed)

    def _result(self, lost: dict[int, list[str]]) -> RunResult:
        assert self._held is not None and self._outcome is not None
        session = self._session
        reports = tuple(self._with_end(report) for report in self._held.reports)
        notes = list(session.notes)
        session.notes.clear()
        for run in self._runs:
            if run.handle.recorder is not None and run.handle.recorder.overflowed:
                notes.append(f"the call log of rank {run.handle.rank} overflowed: some calls are missing")
        snapshot = Snapshot(
            cell=self.cell,
            outcome=self._outcome,  # type: ignore[arg-type]
            ranks=reports,
            earlier_cells=self._earlier,
            groups=groups_seen(self._runs),
            world_size=session.world_size,
            backend=session.backend,
            device=session.device,
            has_group=session.has_group,
            timeout_s=self._timeout_s,
            hang_after_s=session.hang_after,
            duration_s=round(self._ended_s - self._began_s, 6),
            created=self._created,
            torch_version=session.torch_version,
            flight_recorder=session.flight_available,
            notes=tuple(notes),
        )
        asked = [run for run in self._runs if run.asked]
        return RunResult(
            ok=self._outcome == "ok",
            outputs={run.handle.rank: str(self._kept[run.handle.rank]) for run in asked},
            errors={run.handle.rank: run.error for run in asked if run.error is not None},
            snapshot=snapshot,
            duration_s=time.monotonic() - self._began_s,
            frozen=self.frozen,
            lost=lost,
        )

    def _with_end(self, report: RankReport) -> RankReport:
        """A report of the moment of the hang, with how the rank was freed from it."""
        run = self._runs[report.rank]
        return replace(report, error=report.error or run.error, killed=run.killed)


def _waiting_line(longest: RankReport, view: View) -> str:
    """``waiting 4.2 s for rank 1, which is at cell[3] line 7: time.sleep(8)``."""
    reports = {report.rank: report for report in view.reports}
    missing = sorted(view.waiting[longest.rank].missing)
    text = f"waiting {longest.blocked_s:.1f} s"
    if not missing:
        return f"{text} in {longest.blocked_call.label}" if longest.blocked_call else text
    text += f" for rank {missing[0]}" if len(missing) == 1 else f" for ranks {', '.join(map(str, missing))}"
    first = reports.get(missing[0])
    if first is None:
        return text
    if first.state == "silent":
        return f"{text}, which does not answer: C code holds its interpreter"
    if first.position is not None and first.state in ("running", "blocked", "stopped"):
        verb = "which is" if len(missing) == 1 else f"rank {first.rank} is"
        return f"{text}, {verb} at {first.position.label}"
    return text
