"""The report on a rank that has not finished, from its log and its monitor's answers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.host import rank_run
from ddt_notebook.host.call_log_reader import RankRecorder
from ddt_notebook.host.observed_rank import SILENT_AFTER_S
from ddt_notebook.host.rank_handle import RankHandle
from ddt_notebook.host.rank_run import RankRun, state_of
from ddt_notebook.model import Position, RankError, RankReport
from ddt_notebook.wire import ring
from ddt_notebook.wire.messages import (
    AskFlight,
    AskStatus,
    CellEnded,
    Envelope,
    FlightEntries,
    Message,
    MonitorStatus,
)
from ddt_notebook.wire.records import FlightEntry, Group

from .builders import RankLog

MEMBERS = {"0": (0, 1)}
ENDED = CellEnded(error=None, ended_s=1.0)
LINE = Position(file="cell[1]", line=4, code="loss.backward()")
AT_CELL = (LINE,)
AUTOGRAD = Position(file="/venv/site-packages/torch/autograd/graph.py", line=841)


class Questions:
    """The connection to a monitor that never answers."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message, *, number: int) -> None:
        self.sent.append(message)


class Handle(RankHandle):
    """The handle of a rank that has no process."""

    silent_s = 0.0  # type: ignore[assignment]
    stopped = False  # type: ignore[assignment]
    garbled = False
    now_s = property(lambda _: time.monotonic())  # type: ignore[assignment]

    def __init__(self, recorder: RankRecorder | None) -> None:
        self.rank, self.pid = 0, 4711
        self.recorder = recorder
        self._status_asked, self._flight_asked, self._requests = None, set(), 0
        self._running_asked = None
        self.questions: Any = Questions()
        self.share = 1.0
        self.forget_status()

    def processor_share(self) -> float:
        return self.share

    def crash_text(self) -> str:
        return "Fatal Python error: Segmentation fault"


@pytest.fixture
def log(tmp_path: Path) -> RankLog:
    return RankLog(tmp_path)


@pytest.fixture
def run(log: RankLog) -> RankRun:
    return RankRun(Handle(log.recorder), asked=True)


def now(run: RankRun) -> RankReport:
    assert run.handle.recorder is not None
    run.handle.recorder.drain()
    return state_of([run], MEMBERS).reports[0]


# -- blocked inside a library ------------------------------------------------------------------


def standing(at_s: float, **fields: Any) -> MonitorStatus:
    """The monitor's answer when the main thread stands in DDP's backward pass."""
    known = MonitorStatus(
        position=LINE,
        stack=(LINE, AUTOGRAD),
        groups={"0": (2, 1)},
        cpu_s=5.0,
        memory_bytes=1 << 20,
        at_s=at_s,
    )
    return replace(known, **fields)


def answer(run: RankRun, *messages: Message) -> None:
    for message in messages:
        run.take_answer(Envelope(message, run.handle._requests))


def test_a_rank_is_blocked_in_a_collective_of_a_library(run: RankRun, log: RankLog) -> None:
    log.call("barrier")
    log.library(done=False)
    began_s = time.monotonic() - 3.0
    answer(run, standing(began_s), standing(began_s + 1.0, cpu_s=5.01))
    report = now(run)
    assert report.state == "blocked"
    assert report.blocked_call is not None
    assert (report.blocked_call.op, report.blocked_call.sequence) == ("all_reduce", 2)
    assert report.blocked_s == pytest.approx(3.0, abs=0.5)
    assert (report.position, report.stack) == (LINE, (LINE, AUTOGRAD))

    answer(run, standing(began_s + 2.0), standing(began_s + 2.25))
    assert now(run).blocked_s == pytest.approx(3.0, abs=0.5), "it counts from the first look"
    assert run.may_be_blocked


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (standing(1.0), standing(1.25, cpu_s=5.2)),
        (standing(1.0), standing(1.1)),
        (standing(1.0), standing(1.25, stack=AT_CELL)),
        (standing(1.0, stack=AT_CELL), standing(1.25)),
        (standing(1.0, groups={"0": (1, 0)}), standing(1.25)),
        (standing(1.0), standing(8.0)),
    ],
    ids=["computes", "too early to tell", "left torch", "came to torch", "goes on", "long ago"],
)
def test_a_rank_that_may_be_working_is_not_called_blocked(
    run: RankRun, log: RankLog, before: MonitorStatus, after: MonitorStatus
) -> None:
    log.library()
    log.library(done=False)
    answer(run, standing(0.5), standing(0.75))
    assert run.library_wait is not None
    answer(run, before, after)
    assert run.library_wait is None
    assert now(run).state == "running"


def behind_device(at_s: float, **fields: Any) -> MonitorStatus:
    """The monitor's answer when the main thread stands in ``item()``, and uses a whole core."""
    fields = {"stack": (LINE,), "cpu_s": at_s, "groups": {}, "on_device": {"0": (3, 1)}} | fields
    return standing(at_s, **fields)


def issue_three(log: RankLog) -> list[FlightEntry]:
    for _ in range(3):
        log.call("all_reduce")
    return [
        FlightEntry(group="0", number=number, op="all_reduce", done=number < 2, on_device=True)
        for number in (1, 2, 3)
    ]


def test_a_device_waits_in_the_first_call_that_is_open_there(run: RankRun, log: RankLog) -> None:
    entries = FlightEntries(entries=tuple(issue_three(log)))
    answer(run, behind_device(10.0), behind_device(10.5))
    assert run.library_wait is None, "which call is open has to be asked"
    answer(run, entries)
    report = now(run)
    assert (report.state, report.device_waits, report.may_go_on) == ("blocked", True, True)
    assert report.blocked_call is not None
    assert report.blocked_call.sequence == 2
    assert [call.status for call in report.calls] == ["done", "issued", "issued"]
    answer(run, behind_device(11.0, on_device={"0": (4, 1)}))
    assert (now(run).state, now(run).device_waits) == ("running", False)


def test_a_host_that_moves_or_a_device_that_completes_is_no_wait(
    run: RankRun, log: RankLog
) -> None:
    entries = FlightEntries(entries=tuple(issue_three(log)))
    for later in ({"stack": (LINE, AUTOGRAD)}, {"on_device": {"0": (3, 2)}}, {"at_s": 10.1}):
        answer(run, behind_device(10.0), behind_device(**{"at_s": 10.5} | later), entries)
        assert run.library_wait is None
    done = {"on_device": {"0": (3, 3)}}
    answer(run, behind_device(10.0, **done), behind_device(10.5, **done), entries)
    assert run.library_wait is None


def test_a_judgement_does_not_change_when_the_report_is_made(run: RankRun, log: RankLog) -> None:
    """The stacks that are fetched for a report take processor time, too."""
    log.library()
    log.library(done=False)
    answer(run, standing(0.5), standing(0.75))
    run.judged = True
    answer(run, standing(0.8, cpu_s=5.5))
    assert now(run).state == "blocked"


def test_entries_are_fetched_only_where_a_rank_idles_in_torch(run: RankRun, log: RankLog) -> None:
    """The counts show that an operation is pending, but not yet which."""
    log.library()
    answer(run, standing(1.0), standing(1.25, cpu_s=5.2))
    assert run.handle.questions.sent == []  # type: ignore[attr-defined]
    answer(run, standing(1.5, cpu_s=5.2))
    assert run.handle.questions.sent == [AskFlight(stacks=False)]  # type: ignore[attr-defined]
    assert now(run).state == "running"
    assert run.handle.owes_flight
    log.operations += 1
    entry = FlightEntry(group="0", number=2, op="broadcast", done=False, created_ns=time.time_ns())
    answer(run, FlightEntries(entries=(entry,)))
    assert now(run).state == "blocked"
    assert not run.handle.owes_flight


def test_an_entry_that_was_pending_earlier_is_fetched_again(run: RankRun, log: RankLog) -> None:
    """Else the rank seems to wait in the first operation for ever, and no hang is found."""
    log.library(done=False)
    answer(run, standing(1.0, groups={"0": (1, 0)}), standing(1.5, groups={"0": (1, 0)}))
    assert run.library_wait == (("0", 1), 1.0)
    log.operations += 1
    at_second = {"groups": {"0": (2, 1)}}
    answer(run, standing(2.0, **at_second), standing(2.5, **at_second))
    assert run.library_wait is None
    assert run.handle.questions.sent == [AskFlight(stacks=False)]  # type: ignore[attr-defined]
    later = FlightEntry(group="0", number=2, op="broadcast", done=False, created_ns=time.time_ns())
    answer(run, FlightEntries(entries=(replace(log.flown[0], done=True), later)))
    assert run.library_wait == (("0", 2), 2.0)


def test_entries_are_fetched_once_for_each_status(run: RankRun, log: RankLog) -> None:
    """A wait in the user's own call has no entry of a library, and may last for half an hour."""
    log.call("barrier")
    answer(run, standing(1.0), standing(1.25))
    for _ in range(3):
        answer(run, FlightEntries(entries=()))
    asked = [AskFlight(stacks=False)]
    assert run.handle.questions.sent == asked  # type: ignore[attr-defined]
    answer(run, standing(1.5))
    assert run.handle.questions.sent == 2 * asked  # type: ignore[attr-defined]


def test_a_rank_whose_calls_have_all_completed(run: RankRun, log: RankLog) -> None:
    log.library()
    answer(run, standing(1.0, groups={"0": (1, 1)}), standing(1.25, groups={"0": (1, 1)}))
    assert now(run).state == "running"
    assert not run.may_be_blocked


# -- other states ------------------------------------------------------------------------------


def test_a_rank_is_blocked_in_a_call_of_the_cell(run: RankRun, log: RankLog) -> None:
    log.begin("barrier", file="cell[1]", line=2)
    report = now(run)
    assert report.state == "blocked"
    assert report.blocked_call is not None
    assert report.blocked_call.op == "barrier"
    assert report.position is not None
    assert report.position.place == "cell[1] line 2"


def test_a_monitor_that_does_not_answer(run: RankRun) -> None:
    run.handle.silent_s = SILENT_AFTER_S - 0.1  # type: ignore[misc]
    assert now(run).state == "running"
    run.handle.silent_s = SILENT_AFTER_S + 0.1  # type: ignore[misc]
    assert now(run).state == "silent"
    run.handle.stopped = True  # type: ignore[misc]
    assert now(run).state == "stopped"


def test_a_rank_that_died_within_a_call(run: RankRun, log: RankLog) -> None:
    log.begin("all_reduce", file="cell[1]", line=3)
    run.exit_status = -11
    report = now(run)
    assert (report.state, report.exit_signal, report.exit_code) == ("died", 11, None)
    assert report.position is not None
    assert report.position.place == "cell[1] line 3"
    assert "Segmentation fault" in report.crash_text
    run.exit_status = 3
    assert (now(run).exit_code, now(run).crash_text) == (3, "")


def test_an_exception_is_tied_to_the_call_that_raised_it(run: RankRun, log: RankLog) -> None:
    log.call("barrier", file="cell[1]", line=2)
    log.end(log.begin("all_reduce", file="cell[1]", line=3), ring.FAILED)
    run.answer = ENDED
    for line, call in ((3, 1), (4, None)):
        where = Position(file="cell[1]", line=line)
        run.error = RankError(type="RuntimeError", message="closed", where=where)
        report = now(run)
        assert report.state == "raised"
        assert report.position == where
        assert report.error is not None
        assert report.error.call == call


def test_the_state_of_a_rank_that_was_asked_or_has_finished(run: RankRun, log: RankLog) -> None:
    assert now(run).state == "running"
    run.answer = ENDED
    assert now(run).state == "finished"
    run.asked = False
    assert now(run).state == "idle"


def test_members_of_groups_are_gathered_from_all_ranks(tmp_path: Path) -> None:
    logs = [RankLog(tmp_path, rank) for rank in (0, 1)]
    logs[1].call("barrier", group=Group("2", (1,)))
    runs = [RankRun(Handle(log.recorder), asked=True) for log in logs]
    for one in logs:
        one.recorder.drain()
    assert rank_run.groups_seen(runs) == {"0": (0, 1), "2": (1,)}


@pytest.mark.parametrize(
    ("share", "busy_too", "asked"),
    [(1.0, False, []), (0.01, False, [AskStatus()]), (1.0, True, [AskStatus()])],
)
def test_a_busy_rank_is_not_asked_unless_another_rank_waits(
    tmp_path: Path, share: float, busy_too: bool, asked: list[Message]
) -> None:
    handle = Handle(RankLog(tmp_path).recorder)
    handle.share = share
    run = RankRun(handle, asked=True, asked_s=time.monotonic())
    run.ask_status(busy_too=busy_too)
    assert handle.questions.sent == asked


@pytest.mark.parametrize(("among", "asked"), [(2, [AskStatus()]), (512, [])])
def test_one_of_many_busy_ranks_is_asked_less_often(
    tmp_path: Path, among: int, asked: list[Message]
) -> None:
    handle = Handle(RankLog(tmp_path).recorder)
    handle.share = 1.0
    run = RankRun(handle, asked=True, asked_s=time.monotonic() - 5)
    run.ask_status(busy_too=False, among=among)
    assert handle.questions.sent == asked
