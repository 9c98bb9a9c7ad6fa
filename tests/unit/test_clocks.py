"""Clocks of several hosts, aligned by what their ranks recorded."""

from __future__ import annotations

import pytest

from ddt_notebook.jobs.clocks import clocks
from ddt_notebook.model import Call, RankReport
from ddt_notebook.model.clock import Clock, on_one_clock

HOSTS = {0: "a", 1: "a", 2: "b"}
WALL_S = {"a": 1000.0, "b": 1700.0}
#: What has to be added to the times of host b.
AHEAD_S = 695.0


def call(rank: int, number: int, entered_s: float, left_s: float, **changed: object) -> Call:
    ahead_s = AHEAD_S if HOSTS[rank] == "b" else 0.0
    values = {
        "index": number,
        "op": "all_reduce",
        "group": "0",
        "members": (0, 1, 2),
        "sequence": number,
        "status": "done",
        "source": "call log",
        "entered_s": entered_s - ahead_s,
        "left_s": left_s - ahead_s,
    }
    return Call(**values | changed)  # type: ignore[arg-type]


def job(*meetings: tuple[tuple[float, float], ...], **changed: object) -> list[RankReport]:
    """One collective for each argument, with the true entry and end of each rank."""
    return [
        RankReport(
            rank=rank,
            calls=tuple(
                call(rank, number, *times[rank], **changed)
                for number, times in enumerate(meetings, start=1)
            ),
        )
        for rank in HOSTS
    ]


def test_collectives_bound_the_difference_from_both_sides() -> None:
    reports = job(
        ((10.0, 12.001), (11.0, 12.0), (12.0, 12.002)),
        ((20.0, 20.5), (20.499, 20.501), (20.2, 20.5005)),
    )
    found = clocks(HOSTS, reports, WALL_S)
    assert found["a"] == Clock()
    clock = found["b"]
    assert clock.error_s is not None
    assert abs(clock.ahead_s - AHEAD_S) <= clock.error_s < 0.002
    aligned = on_one_clock(reports[2], clock)
    assert aligned.calls[0].entered_s == pytest.approx(12.0, abs=0.002)


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "broadcast", "root": 0},
        {"status": "failed"},
        {"asynchronous": True},
        {"source": "flight recorder"},
        {"sequence": None},
    ],
)
def test_other_calls_do_not_show_when_all_had_entered(changed: dict[str, object]) -> None:
    reports = job(((10.0, 12.0), (11.0, 12.0), (12.0, 12.0)), **changed)
    assert clocks(HOSTS, reports, WALL_S)["b"] == Clock(700.0, None)


def test_records_that_contradict_each_other_align_nothing() -> None:
    meetings = (
        ((10.0, 10.1), (10.0, 10.1), (15.0, 15.1)),
        ((20.0, 20.1), (20.0, 20.1), (12.0, 12.1)),
    )
    assert clocks(HOSTS, job(*meetings), WALL_S)["b"].error_s is None


def test_the_last_entry_and_the_first_end_of_a_host_bound_its_clock() -> None:
    reports = job(((10.0, 13.0), (12.5, 12.6), (12.0, 12.9)))
    clock = clocks(HOSTS, reports, WALL_S)["b"]
    # from rank 1, the last of its host to enter and the first to leave
    assert clock.ahead_s == pytest.approx(AHEAD_S + 0.1)
    assert clock.error_s == pytest.approx(0.5)


def test_one_host_needs_no_alignment() -> None:
    reports = job(((10.0, 12.0), (11.0, 12.0), (12.0, 12.0)))
    assert clocks({0: "a", 1: "a"}, reports[:2], WALL_S) == {"a": Clock()}
    assert on_one_clock(reports[0], Clock()) is reports[0]
