"""When ranks enter a collective, when it ends, and how a rank spent its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, RankReport, Snapshot
from ddt_notebook.model.meetings import item_bytes, lateness, meetings
from ddt_notebook.model.shares import (
    TimeWindow,
    activities,
    intersect,
    subtract,
    time_window,
    union,
    untimed,
)
from ddt_notebook.model.timeline import BACKWARD, IN_GRAPH, WAIT, RankTimeline, kind_of


def call(sequence: int, entered: float, left: float | None = None, **changes: object) -> Call:
    fields: dict[str, object] = {
        "index": sequence,
        "op": "all_reduce",
        "members": (0, 1),
        "sequence": sequence,
        "shapes": ((1000,),),
        "dtypes": ("float32",),
        "entered_s": entered,
        "left_s": left,
    }
    return Call(**(fields | changes))  # type: ignore[arg-type]


def snapshot(*calls: list[Call], timeline: tuple[RankTimeline, ...] = ()) -> Snapshot:
    ranks = tuple(RankReport(rank=rank, calls=tuple(own)) for rank, own in enumerate(calls))
    return Snapshot(cell=Cell(number=1, source=""), ranks=ranks, timeline=timeline)


def timeline(rank: int, *spans: tuple[str, float, float], **changes: object) -> RankTimeline:
    """Spans in seconds."""
    fields: dict[str, object] = {
        "rank": rank,
        "started_s": 0.0,
        "ended_s": 10.0,
        "names": tuple(name for name, _, _ in spans),
        "name": tuple(range(len(spans))),
        "start_us": tuple(round(1e6 * start) for _, start, _ in spans),
        "duration_us": tuple(round(1e6 * (end - start)) for _, start, end in spans),
    }
    return RankTimeline(**(fields | changes))  # type: ignore[arg-type]


def test_nobody_came_last_where_ranks_entered_different_operations() -> None:
    barrier = call(1, 1.0, op="barrier", status="pending", shapes=(), dtypes=())
    (met,) = meetings(snapshot([barrier], [call(1, 1.3, status="pending")]))
    assert met.mismatched
    assert (met.straggler, met.begun_s, met.wait_s(0)) == (None, None, None)
    (met,) = meetings(snapshot([replace(barrier, status="done")], [call(1, 1.3, status="done")]))
    assert met.straggler == 1  # two names of one operation


def test_the_last_to_arrive_is_the_straggler() -> None:
    (met,) = meetings(snapshot([call(1, 1.0, 1.4)], [call(1, 1.3, 1.4)]))
    assert met.straggler == 1
    assert met.late_s == pytest.approx(0.3)
    assert met.wait_s(0) == pytest.approx(0.3)
    assert met.wait_s(1) == 0
    assert met.transfer_s == pytest.approx(0.1)
    assert met.bytes == 4000
    assert met.bytes_per_s == pytest.approx(40_000)
    assert lateness([met]) == {1: [pytest.approx(0.3)]}


def test_lateness_is_measured_from_the_others_median() -> None:
    times = {0: 1.0, 1: 1.1, 2: 1.2, 3: 2.0}
    own = [[call(1, at, 2.1, members=(0, 1, 2, 3))] for at in times.values()]
    (met,) = meetings(snapshot(*own))
    assert (met.straggler, met.late_s) == (3, pytest.approx(0.9))


def test_without_all_members_no_rank_is_the_last() -> None:
    (met,) = meetings(snapshot([call(1, 1.0, status="pending")], []))
    assert met.straggler is None
    assert met.late_s == 0
    assert met.transfer_s is None
    assert list(met.arrivals_s) == [0]


def test_a_wait_ends_when_the_rank_was_freed() -> None:
    """Rank 0 was freed before rank 1 came."""
    (met,) = meetings(snapshot([call(1, 1.0, 2.0)], [call(1, 5.0, 5.1)]))
    assert met.wait_s(0) == pytest.approx(1.0)


def test_asynchronous_calls_end_with_the_profilers_span() -> None:
    given = [call(1, 1.0, 3.0, asynchronous=True)]
    spans = timeline(0, ("gloo:all_reduce", 1.0001, 1.5))
    (met,) = meetings(snapshot(given, timeline=(spans,)))
    assert met.ends_s == {0: pytest.approx(1.5)}


def test_a_span_within_a_synchronous_call_is_not_taken_for_another() -> None:
    own = call(1, 1.0, 2.0)
    library = call(2, 2.0005, source="flight recorder")
    spans = timeline(0, ("gloo:all_reduce", 1.2, 1.9), ("gloo:all_reduce", 2.001, 2.5))
    first, second = meetings(snapshot([own, library], timeline=(spans,)))
    assert first.ends_s == {0: 2.0}
    assert second.ends_s == {0: pytest.approx(2.5)}


def test_buckets_are_recognised_by_size_and_order() -> None:
    sizes = [3, 3, 1000, 500, 1000, 500, 7]
    calls = [
        call(number, float(number), source="flight recorder", shapes=((size,),))
        for number, size in enumerate(sizes, 1)
    ]
    (spans,) = (timeline(0, buckets=((4000, 2000),)),)
    labels = [met.label for met in meetings(snapshot(calls, timeline=(spans,)))]
    buckets = ["DDP bucket 1/2", "DDP bucket 2/2"]
    assert labels == ["library", "library", *buckets, *buckets, "library"]


def test_a_bucket_beside_the_backward_pass_holds_up_only_what_outlasts_it() -> None:
    calls = [call(1, 1.0, source="flight recorder")]
    spans = timeline(0, (BACKWARD, 0.5, 3.0), ("gloo:all_reduce", 1.0, 4.0), buckets=((4000,),))
    alone = snapshot(calls, timeline=(spans,))
    (activity,) = activities(alone, meetings(alone))
    assert activity.communication == [(pytest.approx(3.0), pytest.approx(4.0))]


def test_shares_add_up_to_the_window() -> None:
    traced = (
        timeline(0, ("enumerate(DataLoader)#_Iter.__next__", 5.0, 6.0)),
        timeline(1),
    )
    run = snapshot([call(1, 1.0, 3.5)], [call(1, 3.0, 3.5)], timeline=traced)
    window = time_window(run, meetings(run))
    assert window == TimeWindow(0.0, 10.0)
    assert window is not None
    first, second = (activity.share(window) for activity in activities(run, meetings(run)))
    assert (first.waiting_s, first.communication_s) == (pytest.approx(2.0), pytest.approx(0.5))
    assert (first.data_s, first.compute_s) == (pytest.approx(1.0), pytest.approx(6.5))
    assert (second.waiting_s, second.compute_s) == (0, pytest.approx(9.5))


@pytest.mark.parametrize(
    ("inside", "waited_s"),
    [([(6.0, 8.0)], 4.0), ([(6.0, 6.5), (7.0, 8.0)], None), ([], None)],
    ids=["one each", "another number", "not seen"],
)
def test_a_rank_works_in_a_graph_until_its_collective_begins(
    inside: list[tuple[float, float]], waited_s: float | None
) -> None:
    name = f"{IN_GRAPH}CollectiveReduceV2"
    traced = (
        timeline(0, (name, 2.0, 8.0)),
        timeline(1, *((name, start, end) for start, end in inside)),
    )
    run = snapshot(
        [call(1, 1.0, 9.0, op="step()")], [call(1, 1.5, 9.0, op="step()")], timeline=traced
    )
    (met,) = met_all = meetings(run)
    window = TimeWindow(0.0, 10.0)
    first, second = (activity.share(window) for activity in activities(run, met_all))
    assert met.straggler == 1
    if waited_s is None:  # a graph is taken as a whole
        assert met.wait_s(0) == first.waiting_s == pytest.approx(0.5)
        return
    assert met.wait_s(0) == first.waiting_s == pytest.approx(waited_s)
    assert (first.communication_s, first.compute_s) == (pytest.approx(2.0), pytest.approx(4.0))
    assert (second.waiting_s, second.communication_s) == (0.0, pytest.approx(2.0))
    assert met.transfer_s == pytest.approx(2.0)


def test_the_first_of_many_steps_is_left_out() -> None:
    traced = tuple(timeline(r, steps_us=(1_000_000, 2_000_000, 3_000_000)) for r in (0, 1))
    window = time_window(snapshot([], [], timeline=traced), [])
    assert window == TimeWindow(1.0, 3.0, 2, 3)
    assert window.name == "steps 2 to 3"


def blocked(rank: int, *calls: Call, waited_s: float) -> RankReport:
    last = calls[-1].index
    return RankReport(
        rank=rank, state="blocked", blocked_in=last, blocked_s=waited_s, calls=tuple(calls)
    )


@pytest.mark.parametrize("kind", ["collective", "p2p"])
def test_the_wait_in_which_a_rank_hangs_is_waiting_and_a_rank_that_ended_does_not_work(
    kind: str,
) -> None:
    waits = blocked(0, call(1, 1.0, 2.0), call(2, 3.0, kind=kind), waited_s=8.0)
    ended = RankReport(rank=1, calls=(call(1, 1.0, 2.0),))
    run = replace(snapshot(), ranks=(waits, ended), outcome="hung")
    window = time_window(run, meetings(run))
    assert window == TimeWindow(1.0, 11.0)
    first, second = (activity.share(window) for activity in activities(run, meetings(run)))
    assert (first.waiting_s, first.compute_s) == (pytest.approx(8.0), pytest.approx(1.0))
    assert (second.waiting_s, second.compute_s) == (0, pytest.approx(0.0))
    assert [activity.ended_s for activity in activities(run, [])] == [None, 2.0]


def test_the_wait_for_a_handle_begins_after_its_call() -> None:
    """Rank 1 made the call early and has been waiting for its handle for 1 s."""
    first = blocked(0, call(1, 3.0), waited_s=8.0)
    second = blocked(1, call(1, 2.0, asynchronous=True), waited_s=1.0)
    run = replace(snapshot(), ranks=(first, second), outcome="hung")
    waits = [activity.waiting for activity in activities(run, meetings(run))]
    assert waits == [[(3.0, 11.0)], [(10.0, 11.0)]]


def test_a_wait_for_the_handle_of_a_call_without_a_span_waits_for_the_last_rank() -> None:
    """As in Horovod, whose operations PyTorch's profiler does not see."""
    handles = [[call(1, entered, asynchronous=True)] for entered in (1.0, 4.0)]
    waits = tuple(timeline(rank, (WAIT, begun, 4.5)) for rank, begun in enumerate((2.0, 4.2)))
    run = snapshot(*handles, timeline=waits)
    first, second = activities(run, meetings(run))
    assert (first.waiting, first.communication) == ([(2.0, 4.0)], [(4.0, 4.5)])
    assert (second.waiting, second.communication) == ([], [(4.2, 4.5)])


def test_calls_without_a_measured_end_are_known_to_be_missing() -> None:
    waits = blocked(0, call(1, 1.0, 2.0), call(2, 3.0), waited_s=8.0)
    assert not untimed(replace(snapshot(), ranks=(waits,)))
    waits = blocked(0, call(1, 1.0, source="flight recorder"), call(2, 3.0), waited_s=8.0)
    assert untimed(replace(snapshot(), ranks=(waits,)))
    assert not untimed(replace(snapshot(timeline=(timeline(0),)), ranks=(waits,)))


def test_a_run_without_spans_has_no_window() -> None:
    assert time_window(snapshot(), []) is None


def test_intervals_are_joined_and_subtracted() -> None:
    assert union([(3, 4), (0, 1), (1, 2), (5, 5)]) == [(0, 2), (3, 4)]
    assert intersect([(0, 2), (3, 6)], [(1, 4), (5, 9)]) == [(1, 2), (3, 4), (5, 6)]
    assert subtract([(0, 10)], [(2, 3), (5, 6)]) == [(0, 2), (3, 5), (6, 10)]
    assert subtract([(0, 1)], [(0, 1)]) == []
    assert subtract([(2, 3), (4, 5)], [(0, 9)]) == []


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float32", 4),
        ("bfloat16", 2),
        ("int64", 8),
        ("bool", 1),
        ("complex64", 8),
        ("complex128", 16),
        ("uint8", 1),
        ("float8_e4m3fn", 1),
        ("thing", None),
    ],
)
def test_bytes_of_an_element(dtype: str, size: int | None) -> None:
    assert item_bytes(dtype) == size


def test_spans_are_known_by_their_names() -> None:
    assert kind_of("gloo:all_reduce") == "collective"
    assert kind_of("Optimizer.step#Adam.step") == "optimizer"
    assert kind_of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") == "data"
    assert kind_of("my part") == "user"


def test_a_traced_snapshot_survives_a_trip_through_json() -> None:
    run = snapshot([call(1, 1.0, 2.0)], timeline=(timeline(0, (BACKWARD, 1, 2), buckets=((8,),)),))
    assert Snapshot.from_json(run.to_json()) == run


def test_a_wait_that_never_ends_lasts_to_the_end_of_the_run() -> None:
    alone = replace(snapshot([call(1, 1.0, 3.0, status="failed")]), outcome="hung")
    (activity,) = activities(alone, meetings(alone))
    assert activity.waiting == [(1.0, 3.0)]
    assert activity.communication == []
    (flag,) = ddt.collectives(alone).flags
    assert flag.text == "rank 1 never entered all_reduce #1 (1000 × float32); rank 0 waited 2.0 s"
