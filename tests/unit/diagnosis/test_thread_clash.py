"""When a collective of a thread is what kept the ranks from meeting, and when it is not."""

from __future__ import annotations

from typing import Any

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import RankError, RankReport, Report
from ddt_notebook.model.rank import Activity
from ddt_notebook.model.threads import ThreadCall

from .builders import all_reduce, at, call, raised, rank, snapshot

IN_THREAD = ThreadCall(
    op="barrier", group="1", where=at(9), thread="saver", started=(at(12),), pending=True
)
SAVING = call("barrier", 9, group="1", source="flight recorder", status="pending")
MAIN_WAITS = Activity(cpu_share=0.01, waits_for="lock")


def _of_thread(report: Report) -> bool:
    return report.findings[0].cause == "collective-in-a-thread"


def _diagnosed(*ranks: RankReport, **fields: Any) -> Report:
    return diagnose(snapshot(*ranks, outcome="hung", groups={"1": (0, 1)}, **fields))


def _saving(**fields: Any) -> RankReport:
    return rank(0, all_reduce(), SAVING, thread_calls=(IN_THREAD,), **fields)


def test_a_thread_for_which_its_rank_waits_and_that_no_other_rank_has() -> None:
    report = _diagnosed(
        _saving(state="running", position=at(14), activity=MAIN_WAITS),
        rank(1, all_reduce(), all_reduce(3), blocked=True),
    )
    (finding,) = report.findings
    assert (finding.cause, finding.ranks, finding.waiting) == ("collective-in-a-thread", [0], [1])
    assert finding.places[0].line == 9


def test_a_rank_whose_main_thread_is_at_work_may_still_come() -> None:
    working = Activity(cpu_share=0.9)
    report = _diagnosed(
        _saving(state="running", position=at(14), activity=working),
        rank(1, all_reduce(), all_reduce(3), blocked=True),
    )
    assert not _of_thread(report)


def test_main_threads_that_do_not_meet_keep_a_thread_waiting() -> None:
    made_before = ThreadCall(op="barrier", group="1", where=at(9), times=3)
    first = all_reduce(3, status="pending")
    report = _diagnosed(
        rank(0, all_reduce(), SAVING, first, blocked=True, thread_calls=(IN_THREAD,)),
        rank(1, all_reduce(), call("barrier", 4), blocked=True, thread_calls=(made_before,)),
    )
    assert not _of_thread(report)


def test_an_exception_on_another_rank_comes_first() -> None:
    error = RankError(type="ValueError", message="bad batch", where=at(5))
    report = _diagnosed(
        _saving(state="running", position=at(14), activity=MAIN_WAITS),
        raised(1, all_reduce(), error=error),
    )
    assert not _of_thread(report)
