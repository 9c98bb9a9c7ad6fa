"""One rank's part in a run: its answers so far, and its current report.

Reports are cheap enough to be made many times per second while a cell runs.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..model import Call, RankError, RankReport
from ..model.clock import on_one_clock
from ..model.frameworks import ends_waits
from ..model.numbering import in_session_numbers
from ..model.rank import Activity
from ..model.waits import MOVING, Wait, cannot_complete, needs_all_calls, waits
from ..wire.messages import (
    AskFlight,
    AskStatus,
    CellEnded,
    Envelope,
    Failed,
    FlightEntries,
    MonitorStatus,
)
from .call_log_reader import CallList, thin
from .observed_rank import SILENT_AFTER_S, ObservedRank

#: A rank that waits in a library's collective uses at most this share of a processor.
_IDLE_CPU_SHARE = 0.2
#: A computing rank is asked for its status only this often, because the answer delays its cell.
_ASK_THE_BUSY_EVERY_S = 2.0
#: Of many ranks, only this many that compute are asked in a second.
_BUSY_ASKED_A_SECOND = 50
#: A rank that computes or waits for its device is asked more often.
_ASK_BEHIND_DEVICE_EVERY_S = 0.5
#: Two answers of a monitor are compared only if the time between them is in this range, in seconds.
_SHORTEST_GAP_S, _LONGEST_GAP_S = 0.2, 5.0
#: A wait that has lasted this long is examined.
_EXAMINE_AFTER_S = 0.1
#: How many of a rank's latest calls are read while the cell runs.
_LATEST_CALLS = 60
#: A rank may need this long to format a traceback on a slow machine.
_DESCRIBE_LIMIT_S = 10.0


@dataclass(slots=True)
class RankRun:
    """One rank's part in a run.

    Attributes
    ----------
    handle
        The rank.
    asked
        False if the cell does not run on this rank.
    number
        Number of the request to run the cell.
    answer
        The rank's message that the cell has ended; `Failed` if it could not run the cell at all.
    error
        The exception that left the cell.
    exit_status
        The exit code or negative signal number if the process has ended.
    library_wait
        The Flight Recorder's entry in which the rank is blocked inside a library, or in which its
        device waits while its host stands still, and the time at which that began.
    raised_s
        When an exception left the cell; the rank's answer arrives later.
    asked_s
        When the monitor was last asked for the rank's status.
    cpu_share
        How much of a processor the rank has used lately; None before it was measured.
    idle
        Whether it used hardly any processor time when that was last measured.
    killed
        Whether the session had to kill the rank.
    judged
        Whether the run was declared over. Later answers do not change where the rank waited,
        because a rank that answers looks busy.
    """

    handle: ObservedRank
    asked: bool
    number: int = 0
    answer: CellEnded | Failed | None = None
    error: RankError | None = None
    exit_status: int | None = None
    library_wait: tuple[tuple[str, int], float] | None = None
    raised_s: float | None = None
    asked_s: float = 0.0
    cpu_share: float | None = None
    idle: bool = False
    killed: bool = False
    judged: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether the cell still runs on it."""
        return self.asked and self.answer is None and self.exit_status is None

    @property
    def raised(self) -> bool:
        """Whether an exception has left its cell."""
        return self.raised_s is not None

    @property
    def describes_error(self) -> bool:
        """Whether an exception has just left its cell, and its description has not yet arrived."""
        if self.raised_s is None or not self.unfinished:
            return False
        return time.monotonic() - self.raised_s < _DESCRIBE_LIMIT_S

    @property
    def idle_in_library(self) -> bool:
        """Whether its main thread seems to wait in torch's own code.

        The monitor's last two answers decide. They must show the same stack, which ends in torch,
        the same numbers of operations, some of them incomplete, and hardly any processor time.
        """
        now, before = self.handle.status, self.handle.earlier_status
        if now is None or before is None or not now.stack or "/torch/" not in now.stack[-1].file:
            return False
        passed = now.at_s - before.at_s
        return (
            _SHORTEST_GAP_S <= passed < _LONGEST_GAP_S
            and now.cpu_s - before.cpu_s < _IDLE_CPU_SHARE * passed
            and before.stack == now.stack
            and before.groups == now.groups
            and any(completed < given for given, completed in now.groups.values())
        )

    @property
    def stands_behind_device(self) -> bool:
        """Whether its main thread stands still while its device has operations to complete.

        The monitor's last two answers decide. Processor time shows nothing: a thread that waits for
        a GPU may use a whole core.
        """
        now, before = self.handle.status, self.handle.earlier_status
        if now is None or before is None or not now.stack:
            return False
        return (
            _SHORTEST_GAP_S <= now.at_s - before.at_s < _LONGEST_GAP_S
            and before.stack == now.stack
            and before.on_device == now.on_device
            and _is_open(now)
        )

    def end(self, message: CellEnded | Failed, *, freed: bool) -> None:
        """Process the rank's message that the cell has ended.

        Parameters
        ----------
        message
            The rank's message.
        freed
            Whether the session ended the rank's wait itself.
        """
        self.answer = message
        if self.handle.recorder is not None:
            self.handle.recorder.drain()
        if isinstance(message, Failed):  # the rank could not run the cell at all
            self.error = RankError(type="RuntimeError", message=message.error)
            return
        self.handle.names = message.names
        self.handle.recorded = message.recorded
        self.handle.missing_features = message.missing_features
        if self.handle.recorder is not None:
            self.handle.recorder.add_flight(message.flight)
        if message.error is not None:
            self.error = replace(message.error, released=freed, at_s=message.ended_s)

    @property
    def ended(self) -> CellEnded | None:
        """The rank's report at the end of the cell; None if it did not reach the end."""
        return self.answer if isinstance(self.answer, CellEnded) else None

    @property
    def broken(self) -> bool:
        """Whether what runs cells in the rank has failed, so that it has to be replaced."""
        return isinstance(self.answer, Failed) and self.answer.reason == "broken"

    @property
    def notes(self) -> list[str]:
        """Notes for the user about this rank and its records."""
        notes = list(self.ended.notes) if self.ended is not None else []
        rank, recorder = self.handle.rank, self.handle.recorder
        if self.broken:
            notes.append(
                f"rank {rank} could no longer run cells, so it was replaced: did the cell change a "
                "module that others use?"
            )
        if recorder is not None and recorder.overflowed:
            notes.append(f"the call log of rank {rank} overflowed: some calls are missing")
        if recorder is not None and recorder.names_missing:
            notes.append(
                f"the call log of rank {rank} has no room for further names: "
                "later calls may lack their file, function or group"
            )
        return notes

    def take_answer(self, answer: Envelope) -> None:
        """Process the monitor's answer, and check whether the rank is blocked inside a library."""
        handle = self.handle
        entries = handle.take_answer(answer)
        if handle.recorder is None:
            return
        handle.recorder.add_flight(entries)
        if self.judged:
            return
        if handle.earlier_status is not None and self.stands_behind_device:
            if self.library_wait is not None:
                return
            if isinstance(answer.message, FlightEntries):  # what was read before may be complete
                open_ = handle.recorder.open_on_device()
                since_s = handle.earlier_status.at_s
                self.library_wait = (open_, since_s) if open_ is not None else None
            elif isinstance(answer.message, MonitorStatus) and not handle.owes_flight:
                handle.ask(AskFlight(stacks=False))
        elif not self.idle_in_library or handle.earlier_status is None:
            self.library_wait = None
        elif self.library_wait is None:
            pending = handle.recorder.pending_flight()
            # an entry may have been read while it was pending, and be complete since then
            fresh = isinstance(answer.message, FlightEntries)
            if pending is not None and (fresh or not self._has_passed(*pending)):
                self.library_wait = (pending, handle.earlier_status.at_s)
            elif isinstance(answer.message, MonitorStatus) and not handle.owes_flight:
                handle.ask(AskFlight(stacks=False))  # once for each status: a wait may last long

    def _has_passed(self, group: str, number: int) -> bool:
        """Whether a later operation of the group is complete, by the monitor's last answer."""
        status = self.handle.status
        return status is not None and status.groups.get(group, (0, 0))[1] >= number

    def ask_status(self, *, busy_too: bool, among: int = 1) -> None:
        """Ask the monitor for its status; rarely if the rank computes, since that delays its cell.

        Parameters
        ----------
        busy_too
            Ask as often if the rank computes, because a rank waits or a user watches.
        among
            Of how many ranks it is one: the more there are, the less often one that computes is
            asked.
        """
        if not self.unfinished or self.handle.recorder is None:
            return
        share = self.handle.processor_share()
        # the mean of the last measurements; each covers a quarter of a second
        self.cpu_share = share if self.cpu_share is None else (self.cpu_share + share) / 2
        self.idle = share < _IDLE_CPU_SHARE
        status = self.handle.status
        every_s = max(_ASK_THE_BUSY_EVERY_S, among / _BUSY_ASKED_A_SECOND)
        if status is not None and _is_open(status):
            every_s = _ASK_BEHIND_DEVICE_EVERY_S
        if self.idle or busy_too or time.monotonic() - self.asked_s > every_s:
            self.asked_s = time.monotonic()
            self.handle.ask(AskStatus())

    @property
    def may_be_blocked(self) -> bool:
        """Whether it should be examined; takes microseconds."""
        if not self.unfinished:
            return False
        recorder = self.handle.recorder
        since_s = recorder.blocked_since_s if recorder is not None else None
        return (
            (since_s is not None and self.handle.lasts_s(since_s) > _EXAMINE_AFTER_S)
            or self.library_wait is not None
            or self.handle.silent_s > SILENT_AFTER_S / 3
        )


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of all ranks of a run at one moment.

    Attributes
    ----------
    reports
        One for each rank.
    waiting
        For each waiting rank, the ranks that it waits for and the call in which it waits.
    stuck
        Ranks in a wait that can no longer end by itself.
    """

    reports: tuple[RankReport, ...]
    waiting: dict[int, Wait]
    stuck: frozenset[int]

    @property
    def longest(self) -> RankReport | None:
        """The rank that has been blocked for longest."""
        blocked = [report for report in self.reports if report.rank in self.waiting]
        return max(blocked, key=lambda report: report.blocked_s or 0.0, default=None)


def state_of(
    runs: list[RankRun],
    members: dict[str, tuple[int, ...]],
    *,
    whole: bool = False,
    expected: Iterable[int] = (),
) -> RunState:
    """Report on every rank now.

    Parameters
    ----------
    runs
        Each rank's part in the run.
    members
        Members of the groups by name.
    whole
        True to include all calls of the run, False for the latest only.
    expected
        Ranks that have not begun to record, but may still do so.
    """
    reports = tuple(_report(run, members, whole=whole) for run in runs)
    reports += tuple(RankReport(rank=rank, state="running") for rank in expected)
    numbered = in_session_numbers(reports)
    waiting = waits(numbered)
    if not whole and needs_all_calls(waiting.values(), numbered):
        return state_of(runs, members, whole=True, expected=expected)
    return RunState(reports, waiting, cannot_complete(waiting, numbered))


def groups_seen(runs: list[RankRun], world_size: int | None = None) -> dict[str, tuple[int, ...]]:
    """Members of each group that any rank's call log names.

    The default group has ``world_size`` ranks; by default as many as there are runs.
    """
    found: dict[str, tuple[int, ...]] = {"0": tuple(range(world_size or len(runs)))}
    for run in runs:
        if run.handle.recorder is not None:
            found |= run.handle.recorder.groups()
    return found


def read_calls(runs: Iterable[RankRun]) -> None:
    """Read what all ranks have recorded since the last time."""
    recorders = {
        run.handle.rank: run.handle.recorder for run in runs if run.handle.recorder is not None
    }
    news = [recorder.drain() for recorder in recorders.values()]
    if any(news):
        thin(recorders)


def brief(run: RankRun) -> RankReport:
    """Report on one rank now without its calls; takes microseconds."""
    return _report_with(run, CallList())


def _report(run: RankRun, members: dict[str, tuple[int, ...]], *, whole: bool) -> RankReport:
    recorder = run.handle.recorder
    if recorder is None:
        return brief(run)
    if not whole:
        return _report_with(run, recorder.calls(members, _LATEST_CALLS))
    report = _report_with(run, recorder.calls(members))
    beside = run.handle.thread_calls()
    return replace(report, thread_calls=beside) if beside else report


def _report_with(run: RankRun, known: CallList) -> RankReport:
    handle = run.handle
    calls = known.calls
    values: dict[str, Any] = {
        "rank": handle.rank,
        "pid": handle.pid,
        "host": handle.host,
        "calls": calls,
        "calls_dropped": known.left_out,
        "joined": known.joined,
        "memory_bytes": handle.status.memory_bytes if handle.status else None,
        "error": run.error,
        "killed": run.killed,
    }
    if run.exit_status is not None:
        values |= _death(run, calls)
    elif not run.asked:
        values["state"] = "idle"
    elif run.answer is not None:
        values["state"] = "raised" if run.error is not None else "finished"
        if isinstance(run.answer, CellEnded):
            values["exited_at"] = values["position"] = run.answer.exited_at
        if run.error is not None:
            # a rank that is out of memory cannot find out where its exception was raised
            last_seen = handle.status.position if handle.status is not None else None
            values["position"] = run.error.where or last_seen
            values["error"] = _with_call(run.error, calls)
    else:
        values |= _unfinished(run, known)
    if values.get("position") is None and calls and values.get("state") != "died":
        values["position"] = calls[-1].where
    return on_one_clock(RankReport(**values), handle.clock)


def _is_open(status: MonitorStatus) -> bool:
    """Whether the device has operations to complete."""
    return any(completed < given for given, completed in status.on_device.values())


def _with_call(error: RankError, calls: tuple[Call, ...]) -> RankError:
    """Add the call in which an exception was raised, if it was raised in a call."""
    if ends_waits(error.type):  # of an operation for which it waited; later ones are open
        failed = next((call for call in reversed(calls) if call.status == "failed"), None)
        return replace(error, call=failed.index) if failed is not None else error
    failed = calls[-1] if calls and calls[-1].status == "failed" else None
    if failed is None or failed.where is None or error.where is None:
        return error
    same = (failed.where.file, failed.where.line) == (error.where.file, error.where.line)
    return replace(error, call=failed.index) if same else error


def _death(run: RankRun, calls: tuple[Call, ...]) -> dict[str, Any]:
    status = run.exit_status or 0
    last = calls[-1] if calls else None
    seen = run.handle.status
    position = seen.position if seen is not None else None
    # the rank may have gone on since its monitor answered last
    later = last is not None and (seen is None or (last.entered_s or 0.0) > seen.at_s)
    if last is not None and (later or last.status == "pending"):
        position = last.where
    process = run.handle.host_process
    if process is not None and process.host_lost:
        return {"state": "died", "host_lost": True, "position": position}
    return {
        "state": "died",
        "exit_code": status if status >= 0 else None,
        "exit_signal": -status if status < 0 else None,
        "garbled": run.handle.garbled,
        "crash_text": run.handle.crash_text() if status < 0 else "",
        "abort_text": run.handle.abort_text() if status == -signal.SIGABRT else "",
        "position": position,
    }


def _unfinished(run: RankRun, known: CallList) -> dict[str, Any]:
    handle = run.handle
    now = handle.now_s
    values: dict[str, Any] = {"state": "running"}
    in_graph = False
    if handle.status is not None:
        values |= {"position": handle.status.position, "stack": handle.status.stack}
    blocked = handle.recorder.blocked if handle.recorder is not None else None
    wait = run.library_wait
    entry = known.by_flight.get(wait[0]) if wait is not None else None
    if wait is not None and entry is not None and known.calls[entry].status == "issued":
        # the host may stand anywhere, also in a later call that blocks it
        values |= {
            "state": "blocked",
            "blocked_in": entry,
            "blocked_s": now - wait[1],
            "device_waits": True,
        }
    elif blocked is not None and blocked[0] in known.by_record:
        call = known.calls[known.by_record[blocked[0]]]
        in_graph = call.is_graph
        if not call.asynchronous and call.where is not None:
            values["position"] = call.where
        values |= {
            "state": "blocked",
            "blocked_in": call.index,
            "blocked_s": now - blocked[1],
        }
    elif wait is not None and entry is not None:
        values |= {"state": "blocked", "blocked_in": entry, "blocked_s": now - wait[1]}
    elif handle.silent_s > SILENT_AFTER_S:
        values["state"] = "silent"
    if handle.silent_s > SILENT_AFTER_S / 3 and handle.stopped:
        values["state"] = "stopped"
    if (values["state"] in MOVING or in_graph) and run.cpu_share is not None:
        status = handle.status if values["state"] == "running" or in_graph else None
        values["activity"] = Activity(
            cpu_share=round(run.cpu_share, 2),
            waits_for=status.waits_for if status is not None else "",
            file=status.file if status is not None else "",
            held_by=status.held_by if status is not None else None,
            compiled=status.compiled if status is not None else None,
            thread_error=status.thread_error if status is not None else None,
            threads_run=status.threads_run if status is not None else True,
            inside=status.inside if status is not None else None,
            inside_s=status.inside_s if status is not None else None,
        )
    return values


def group_is_damaged(runs: list[RankRun], *, group: bool, well: bool) -> bool:
    """Whether the process groups are unusable because ranks have left them differently.

    Parameters
    ----------
    runs
        Each rank's part in the run, which has ended.
    group
        Whether the session formed the group.
    well
        Whether the run ended without failure.
    """
    recorders = [run.handle.recorder for run in runs if run.handle.recorder is not None]
    if not well and any(recorder.failed for recorder in recorders):
        return True
    if len({recorder.new_groups for recorder in recorders}) > 1:
        return True
    if group and any(run.ended is not None and not run.ended.formed for run in runs):
        return True
    members = groups_seen(runs)
    reached: dict[str, set[int]] = {}
    for run in runs:
        if run.handle.recorder is None:
            continue
        numbers = run.handle.recorder.reached()
        for name, ranks in members.items():
            if run.handle.rank in ranks:
                reached.setdefault(name, set()).add(numbers.get(name, 0))
    pending = any(recorder.pending_flight() is not None for recorder in recorders)
    return any(len(numbers) > 1 for numbers in reached.values()) or (pending and not well)
