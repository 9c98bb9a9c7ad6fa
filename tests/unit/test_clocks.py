"""Clocks of several hosts, aligned by what their ranks recorded."""

from __future__ import annotations

import pytest

from ddt_notebook.jobs.clocks import clocks
from ddt_notebook.model import Call, Cell, Observation, RankError, RankReport, Snapshot
from ddt_notebook.model.checkpoints import CheckpointUse, RankCheckpoints
from ddt_notebook.model.clock import Clock, on_one_clock
from ddt_notebook.model.memory import RankMemory
from ddt_notebook.model.observation import add_observations
from ddt_notebook.model.timeline import RankTimeline

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


def test_all_times_of_a_report_are_moved() -> None:
    made = call(0, 1, 10.0, 12.0)
    error = RankError(type="E", message="", at_s=13.0)
    moved = on_one_clock(RankReport(rank=0, calls=(made,), joined=made, error=error), Clock(5.0))
    assert moved.joined == moved.calls[0]
    assert (moved.calls[0].entered_s, moved.calls[0].left_s) == (15.0, 17.0)
    assert moved.error is not None
    assert moved.error.at_s == 18.0


def test_observations_are_moved_as_the_calls_are() -> None:
    use = CheckpointUse(action="save", path="x", began_s=1.0, ended_s=2.0)
    seen = {
        rank: Observation(
            rank=rank,
            checkpoints=RankCheckpoints(rank=rank, uses=(use,)),
            memory=RankMemory(rank=rank, started_s=1.0, at_ms=(0, 100)),
            timeline=RankTimeline(
                rank=rank, started_s=1.0, ended_s=2.0, traced_until_s=None if rank else 1.5
            ),
        )
        for rank in (0, 1)
    }
    ahead = {1: Clock(695.0)}
    snapshot = add_observations(Snapshot(cell=Cell(number=1, source="")), seen, ahead)
    used = [one.uses[0] for one in snapshot.checkpoints]
    assert [(one.began_s, one.ended_s) for one in used] == [(1.0, 2.0), (696.0, 697.0)]
    assert [one.started_s for one in snapshot.memory] == [1.0, 696.0]
    times = [(one.started_s, one.ended_s, one.traced_until_s) for one in snapshot.timeline]
    assert times == [(1.0, 2.0, 1.5), (696.0, 697.0, None)]
