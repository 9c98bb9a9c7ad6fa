"""Views of collectives, time and memory: from none to 64 ranks, from friendly to hostile names."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Snapshot
from ddt_notebook.model.performance import RankPerformance
from ddt_notebook.views import figures, flags
from ddt_notebook.views.displayable import Displayable
from ddt_notebook.views.figures import MIME, Figured

from .test_html import KEPT, parsed
from .timelines import HOSTILE, LATE_S, STEPS, empty, traced

View = Callable[[Snapshot], Displayable]
VIEWS = [ddt.collectives, ddt.timeline, ddt.memory]
RUNS = {"empty": empty(), "one": traced(1), "four": traced(4), "sixty-four": traced(64)}
RUNS["hostile"] = traced(4, HOSTILE)
each_view = pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
each_run = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)


@each_view
@each_run
def test_text_fits_eighty_columns(view: View, run: Snapshot) -> None:
    for line in view(run).to_text().splitlines():
        assert len(line) <= 80, line
        assert "\x1b" not in line


@each_view
@each_run
def test_html_is_what_the_sanitizer_keeps(view: View, run: Snapshot) -> None:
    page = parsed(view(run).to_html())
    assert page.tags <= KEPT | {"style"}
    assert page.attributes <= {"class", "style", "title"}
    assert len(page.text) < 120_000


@each_view
@each_run
def test_the_same_run_is_shown_the_same_way(view: View, run: Snapshot) -> None:
    again = Snapshot.from_json(json.loads(json.dumps(run.to_json())))
    assert json.dumps(view(run)._repr_mimebundle_()) == json.dumps(view(again)._repr_mimebundle_())


@each_view
@each_run
def test_frames(view: View, run: Snapshot) -> None:
    frame = view(run).to_frame()  # type: ignore[attr-defined]
    assert list(frame.columns)
    assert bool(len(frame)) == bool(run.ranks)


@pytest.mark.parametrize("view", [ddt.timeline, ddt.memory], ids=lambda view: view.__name__)
@each_run
def test_figures_have_three_faces_and_no_upload(view: View, run: Snapshot) -> None:
    shown = view(run)
    assert isinstance(shown, Figured)
    bundle = shown._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "text/html", MIME]
    plain = bundle[MIME]
    assert plain["config"]["showSendToCloud"] is False
    assert plain["config"]["displaylogo"] is False
    assert plain["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
    assert "<script" not in json.dumps(plain)
    assert shown.to_figure().to_plotly_json()["layout"]["height"] == plain["layout"]["height"]


def test_faces_can_be_chosen() -> None:
    shown = ddt.timeline(traced(2))
    assert list(shown._repr_mimebundle_(include=["text/html"])) == ["text/html"]
    assert MIME not in shown._repr_mimebundle_(exclude=[MIME])


@pytest.mark.parametrize("world_size", [2, 4, 64])
def test_the_straggler_is_named(world_size: int) -> None:
    last = world_size - 1
    for view in (ddt.collectives, ddt.timeline):
        (flag,) = view(traced(world_size)).flags
        assert f"rank {last} came last" in flag.text
        assert "150 ms after the others" in flag.text
    frame = ddt.timeline(traced(world_size)).to_frame().set_index("rank")
    # the window begins with the second step
    assert frame.waiting_ms[0] == pytest.approx(1e3 * (STEPS - 1) * LATE_S)
    assert frame.waiting_ms[last] == 0


@pytest.mark.parametrize("view", [ddt.collectives, ddt.timeline])
def test_a_rank_that_waited_for_a_processor_is_no_straggler(view: View) -> None:
    late = STEPS * LATE_S

    def shown(queued_s: float | None) -> list[flags.Flag]:
        times = (RankPerformance(rank=0), RankPerformance(rank=1, queued_s=queued_s))
        return view(replace(traced(2), performance=times)).flags  # type: ignore[attr-defined,no-any-return]

    assert shown(None)
    assert shown(0.5 * late)
    assert not shown(late)


@pytest.mark.parametrize(
    ("cpu_s", "beside_s", "count"), [(0.3, 0.7, 0), (0.3, 0.1, 1), (0.7, 0.7, 1)]
)
def test_threads_wait_for_a_processor_too_and_more_work_waits_longer(
    cpu_s: float, beside_s: float, count: int
) -> None:
    """A rank that computes more than the others is a straggler although it waits longer, too."""
    whole_s = STEPS * LATE_S
    late = RankPerformance(
        rank=1, cpu_s=cpu_s, queued_s=0.5 * whole_s, queued_beside_s=beside_s * whole_s
    )
    usual = RankPerformance(rank=0, cpu_s=0.3)
    run = replace(traced(2), performance=(usual, late))
    for view in (ddt.collectives, ddt.timeline):
        assert len(view(run).flags) == count


@pytest.mark.parametrize(("late_s", "flagged"), [(0.02, False), (0.15, True)])
def test_a_single_late_arrival_has_to_be_long(late_s: float, *, flagged: bool) -> None:
    run = traced(2)
    first, last = run.ranks
    on_time = replace(first.calls[0], entered_s=0.0)
    late = replace(last.calls[0], entered_s=late_s, left_s=0.2)
    ranks = replace(first, calls=(on_time,)), replace(last, calls=(late,))
    run = replace(run, ranks=ranks, timeline=(), duration_s=0.3)
    shown = ddt.collectives(run)
    assert bool(shown.flags) is flagged
    if not flagged:  # it was 20 of 300 ms, which is not nothing
        assert "20 ms for rank 1" in " ".join(str(shown).split())


def test_collectives_one_by_one() -> None:
    frame = ddt.collectives(traced(4)).to_frame()
    assert list(frame.sequence) == list(range(1, STEPS + 1))
    assert set(frame.bytes) == {40_000}
    assert set(frame.straggler) == {3}
    assert frame.late_ms.iloc[0] == pytest.approx(150)
    assert frame.transfer_ms.iloc[0] == pytest.approx(10)
    assert frame.arrivals_ms.iloc[0] == {0: 0.0, 1: 0.0, 2: 0.0, 3: 150.0}


def test_nothing_traced_is_reported() -> None:
    run = replace(traced(2), timeline=())
    assert "not traced" in str(ddt.timeline(run))
    assert "no collective was called" in str(ddt.timeline(empty()))


def test_long_runs_are_drawn_in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ddt.timeline(traced(64))
    monkeypatch.setattr(figures, "MAX_BARS", 100)
    overview = view.zoom()
    assert "share of the time" in overview["layout"]["xaxis"]["title"]["text"]
    waiting = next(trace for trace in overview["data"] if trace["name"] == "waiting for a rank")
    height = dict.fromkeys(range(64), 0.0)
    for y, width in zip(waiting["y"], waiting["width"], strict=True):
        height[round(y)] += width
    assert height[0] > 0
    assert height[63] == 0
    monkeypatch.setattr(figures, "MAX_BARS", 9000)
    assert view.zoom(0, 200)["data"] != view.zoom()["data"]


def test_a_trace_for_perfetto(tmp_path: Path) -> None:
    path = ddt.timeline(traced(4)).save_chrome_trace(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}
    first = next(e for e in events if e["name"] == "gloo:all_reduce" and e["pid"] == 0)
    assert first["dur"] == pytest.approx(160_000)
    assert first["args"]["waited_us"] == 150_000
    assert first["args"]["last_rank"] == 3


def test_a_folder_for_trace_analysis(tmp_path: Path) -> None:
    folder = ddt.timeline(traced(2)).save_hta(tmp_path / "traces")
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["rank_0.json", "rank_1.json"]
    assert json.loads(files[1].read_text())["distributedInfo"]["rank"] == 1


def test_parts_of_memory_and_the_rest() -> None:
    frame = ddt.memory(traced(2)).to_frame()
    assert set(frame.parameters) == {40_000_000}
    assert set(frame.rest) == {220_000_000}
    assert len(ddt.memory(traced(2)).samples_frame()) == 40


def test_a_full_container_and_a_full_rank_are_flagged() -> None:
    run = traced(4)  # four times 300 MB of 1 GB
    assert "fill the container" in str(ddt.memory(run))
    capped = replace(run.memory[0], limits={"rank": 200_000_000})
    assert "nearly reached the cap" in str(ddt.memory(replace(run, memory=(capped,))))


def test_a_rank_that_holds_more_is_flagged() -> None:
    run = traced(2)
    more = replace(run.memory[1], parts={"parameters": 40_000_000, "tensors": 90_000_000})
    (flag,) = ddt.memory(replace(run, memory=(run.memory[0], more))).flags
    assert "rank 1 holds" in flag.text
    assert "tensors" in flag.text


def test_near_limits_are_drawn() -> None:
    assert len(ddt.memory(traced(2)).to_plotly()["layout"]["shapes"]) == 1
    far = replace(traced(1).memory[0], limits={"machine": 10**12})
    assert not ddt.memory(replace(traced(1), memory=(far,))).to_plotly()["layout"]["shapes"]
