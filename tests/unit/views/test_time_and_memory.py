"""Views of collectives, time and memory: from none to 64 ranks, from friendly to hostile names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, RankReport, Snapshot
from ddt_notebook.model.performance import RankPerformance
from ddt_notebook.model.stragglers import laggard
from ddt_notebook.views import figures, flags, words
from ddt_notebook.views.displayable import Displayable
from ddt_notebook.views.figures import MIME, Figured

from .test_html import KEPT, parsed
from .timelines import HOSTILE, LATE_S, STEP_S, STEPS, empty, traced

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
def test_a_data_frame_has_rows_if_the_run_has_ranks(view: View, run: Snapshot) -> None:
    frame = view(run).to_frame()  # type: ignore[attr-defined]
    assert list(frame.columns)
    assert bool(len(frame)) == bool(run.ranks)


@pytest.mark.parametrize("view", [ddt.timeline, ddt.memory], ids=lambda view: view.__name__)
@each_run
def test_figures_have_three_formats_and_upload_nothing(view: View, run: Snapshot) -> None:
    shown = view(run)
    assert isinstance(shown, Figured)
    bundle = shown._repr_mimebundle_()
    plain = shown.to_plotly()
    drawn = any(trace["type"] != "table" for trace in plain["data"])
    assert list(bundle) == ["text/plain", "text/html", *([MIME] if drawn else [])]
    assert bundle.get(MIME, plain) == plain
    assert plain["config"]["showSendToCloud"] is False
    assert plain["config"]["displaylogo"] is False
    assert plain["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
    assert "<script" not in json.dumps(plain)
    assert shown.to_figure().to_plotly_json()["layout"]["height"] == plain["layout"]["height"]


def test_the_format_of_a_figure_can_be_chosen() -> None:
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
def test_a_rank_that_waited_for_a_processor_is_not_called_a_straggler(view: View) -> None:
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
def test_waits_of_threads_for_a_processor_count_and_more_work_waits_longer(
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


def test_different_collectives_that_met_are_flagged() -> None:
    run = traced(2)
    first, last = run.ranks
    pending = replace(first.calls[-1], status="pending", left_s=None)
    other = replace(last.calls[-1], op="barrier", status="pending", left_s=None, shapes=())
    ranks = (
        replace(first, calls=(*first.calls[:-1], pending)),
        replace(last, calls=(*last.calls[:-1], other)),
    )
    shown = ddt.collectives(replace(run, ranks=ranks, timeline=(), outcome="hung"))
    texts = [flag.text for flag in shown.flags]
    assert any("rank 0 entered all_reduce" in text and "barrier" in text for text in texts)


def test_no_rank_is_called_a_straggler_after_few_collectives() -> None:
    run = traced(2)
    first, last = run.ranks
    on_time = replace(first.calls[0], entered_s=0.0)
    late = replace(last.calls[0], entered_s=0.15, left_s=0.2)
    ranks = replace(first, calls=(on_time,)), replace(last, calls=(late,))
    shown = ddt.collectives(replace(run, ranks=ranks, timeline=(), duration_s=0.3))
    assert not shown.flags
    assert "rank 1 was late by 150 ms" in " ".join(str(shown).split())  # it is shown all the same


def test_the_host_of_a_late_rank_is_named() -> None:
    run = traced(2)
    ranks = tuple(replace(one, host=f"node{one.rank}") for one in run.ranks)
    there = replace(run, ranks=ranks)
    assert "1 · node1 +150 ms" in str(ddt.collectives(there))
    assert "critical path" in str(ddt.timeline(there))
    assert "rank 1 · node1 came last" in str(ddt.timeline(there))
    path = str(ddt.timeline(there)).partition("critical path")[2]
    assert "rank 1 · node1 " in " ".join(path.split())
    assert "rank 1 · node1" in json.dumps(ddt.timeline(there).to_plotly(), ensure_ascii=False)
    assert [row["host"] for row in ddt.timeline(there).to_json()["rows"]] == ["node0", "node1"]
    assert list(ddt.timeline(there).to_frame().columns)[:2] == ["rank", "host"]
    assert "host" not in ddt.timeline(run).to_frame().columns
    memory = ddt.memory(there)
    for shown in (
        str(memory),
        memory.to_html(),
        json.dumps(memory.to_plotly(), ensure_ascii=False),
    ):
        assert "1 · node1" in shown


def test_a_host_whose_ranks_are_all_late_is_named() -> None:
    run = traced(4)
    third, last = run.ranks[2:]
    # the ranks of node1 come late in turn: neither holds the others up most of the time
    calls = [
        [
            replace(call, entered_s=(call.entered_s or 0.0) + 0.004 * (call.index % 2 == first))
            for call in last.calls
        ]
        for first in (0, 1)
    ]
    ranks = (
        *run.ranks[:2],
        replace(third, calls=tuple(calls[0])),
        replace(last, calls=tuple(calls[1])),
    )
    there = replace(
        run, ranks=tuple(replace(one, host=f"node{one.rank // 2}") for one in ranks), timeline=()
    )
    (flag,) = ddt.collectives(there).flags
    assert flag.text.startswith("ranks 2 and 3 · node1 came after all others to 11 of 11")
    mixed = tuple(replace(one, host=f"node{one.rank % 2}") for one in ranks)
    assert "after all others" not in str(ddt.collectives(replace(there, ranks=mixed)))
    # clocks that are apart by as much: each rank waits as long as the others by its own clock
    apart = tuple(
        replace(
            one,
            calls=tuple(
                replace(
                    call,
                    entered_s=call.index * 0.2 + 0.15 * (one.rank > 1),
                    left_s=call.index * 0.2 + 0.15 * (one.rank > 1) + 0.02,
                )
                for call in one.calls
            ),
        )
        for one in there.ranks
    )
    assert "after all others" not in str(ddt.collectives(replace(there, ranks=apart)))


def test_a_single_late_arrival_is_shown_and_not_flagged() -> None:
    run = traced(2)
    first, last = run.ranks
    on_time = [
        replace(call, entered_s=number, left_s=number + 0.2)
        for number, call in enumerate(first.calls)
    ]
    calls = [
        replace(call, entered_s=one.entered_s, left_s=one.left_s)
        for call, one in zip(last.calls, on_time, strict=True)
    ]
    calls[0] = replace(calls[0], entered_s=0.15)
    ranks = replace(first, calls=tuple(on_time)), replace(last, calls=tuple(calls))
    shown = ddt.collectives(replace(run, ranks=ranks, timeline=(), duration_s=0.3))
    assert not shown.flags
    assert "rank 1 was late by 150 ms" in " ".join(str(shown).split())


@pytest.mark.parametrize("view", [ddt.collectives, ddt.timeline], ids=lambda view: view.__name__)
def test_a_rank_that_was_blocked_in_a_message_is_not_called_a_straggler(view: View) -> None:
    """It came late because its own sender did."""
    run = traced(2)
    first, last = run.ranks
    messages = tuple(
        Call(
            index=100 + number,
            op="recv",
            kind="p2p",
            sequence=number + 1,
            peer=0,
            entered_s=number * STEP_S,
            left_s=number * STEP_S + LATE_S + 0.01,
        )
        for number in range(STEPS)
    )
    received = replace(last, calls=(*last.calls, *messages))
    assert view(run).flags  # type: ignore[attr-defined]
    assert not view(replace(run, ranks=(first, received))).flags  # type: ignore[attr-defined]


def test_a_straggler_is_a_hint_where_waits_for_a_processor_are_not_known() -> None:
    run = traced(2)
    times = tuple(RankPerformance(rank=rank, queued_s=0.0) for rank in range(2))
    assert [flag.kind for flag in ddt.collectives(run).flags] == ["hint"]
    known = ddt.collectives(replace(run, performance=times))
    assert [flag.kind for flag in known.flags] == ["warning"]


@pytest.mark.parametrize("late", [1, 4])
def test_a_rank_that_is_late_now_and_then_is_not_called_a_straggler(late: int) -> None:
    run = traced(2)
    first, last = run.ranks
    calls = [
        replace(call, entered_s=(call.entered_s or 0.0) - (LATE_S if at >= late else 0.0))
        for at, call in enumerate(last.calls)
    ]
    shown = replace(run, ranks=(first, replace(last, calls=tuple(calls))))
    for view in (ddt.collectives, ddt.timeline):
        assert not view(shown).flags


def test_a_wait_for_a_message_that_never_comes_is_flagged() -> None:
    receive = Call(
        index=0, op="recv", kind="p2p", members=(0, 1), sequence=1, peer=1, entered_s=5.0
    )
    waits = RankReport(rank=0, state="blocked", blocked_in=0, blocked_s=2.0, calls=(receive,))
    run = Snapshot(
        cell=Cell(number=1, source="", file="/train.py"),
        outcome="hung",
        ranks=(waits, RankReport(rank=1)),
        world_size=2,
    )
    for view in (ddt.timeline, ddt.collectives):
        assert [flag.kind for flag in view(run).flags] == ["warning"]
    shown = str(ddt.timeline(run))
    assert "the whole run, 2.0 s" in shown
    assert "w" * 56 in shown


def test_a_trace_has_the_wait_in_which_a_rank_hangs(tmp_path: Path) -> None:
    run = traced(2)
    waits = replace(run.ranks[0].calls[-1], left_s=None, status="pending")
    first = replace(
        run.ranks[0],
        state="blocked",
        blocked_in=waits.index,
        blocked_s=20.0,
        calls=(*run.ranks[0].calls[:-1], waits),
    )
    hung = replace(run, ranks=(first, run.ranks[1]), timeline=(), outcome="hung")
    path = ddt.timeline(hung).save_chrome_trace(tmp_path / "trace.json")
    longest = max(json.loads(path.read_text())["traceEvents"], key=lambda e: e.get("dur", 0))
    assert (longest["pid"], longest["dur"]) == (0, pytest.approx(20e6))
    assert longest["args"]["waited_us"] == pytest.approx(20e6)


def test_each_collective_is_a_row() -> None:
    frame = ddt.collectives(traced(4)).to_frame()
    assert list(frame.sequence) == list(range(1, STEPS + 1))
    assert set(frame.bytes) == {40_000}
    assert set(frame.straggler) == {3}
    assert frame.late_ms.iloc[0] == pytest.approx(150)
    assert frame.transfer_ms.iloc[0] == pytest.approx(10)
    assert frame.arrivals_ms.iloc[0] == {0: 0.0, 1: 0.0, 2: 0.0, 3: 150.0}


def test_a_run_without_a_trace_is_reported() -> None:
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


def test_a_trace_can_be_written_for_perfetto(tmp_path: Path) -> None:
    path = ddt.timeline(traced(4)).save_chrome_trace(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}
    first = next(e for e in events if e["name"] == "gloo:all_reduce" and e["pid"] == 0)
    assert first["dur"] == pytest.approx(160_000)
    assert first["args"]["waited_us"] == 150_000
    assert first["args"]["last_rank"] == 3


def test_a_folder_can_be_written_for_trace_analysis(tmp_path: Path) -> None:
    folder = ddt.timeline(traced(2)).save_hta(tmp_path / "traces")
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["rank_0.json", "rank_1.json"]
    assert json.loads(files[1].read_text())["distributedInfo"]["rank"] == 1


def test_the_frame_has_the_parts_of_memory_and_the_rest() -> None:
    frame = ddt.memory(traced(2)).to_frame()
    assert set(frame.parameters) == {40_000_000}
    assert set(frame.rest) == {220_000_000}
    assert len(ddt.memory(traced(2)).samples_frame()) == 40


def test_a_full_container_and_a_full_rank_are_flagged() -> None:
    run = traced(4)  # four times 300 MB of 1 GB
    assert "fill the container" in str(ddt.memory(run))
    capped = replace(run.memory[0], limits={"rank": 200_000_000})
    assert "nearly reached the cap" in str(ddt.memory(replace(run, memory=(capped,))))
    several = tuple(replace(capped, rank=rank) for rank in range(64))
    flags = [flag.text for flag in ddt.memory(replace(run, memory=several)).flags]
    assert [text for text in flags if text.startswith("ranks 0-63 nearly reached")] == flags[:1]


def test_what_makes_room_is_what_makes_the_largest_part_smaller() -> None:
    run = traced(2)
    full = replace(run.memory[0], limits={"rank": 200_000_000}, counts=())

    def advice(**parts: int) -> str:
        memory = (replace(full, parts=parts), replace(full, rank=1, parts={}))
        return str(ddt.memory(replace(run, memory=memory)).flags[0].text)

    assert "activation checkpointing" in advice(parameters=6, activations=126)
    assert "sharding" not in advice(parameters=6, activations=126)
    assert "a smaller batch makes room" in advice()
    assert "a smaller batch or sharding (FSDP)" in advice(parameters=126, activations=6)


def test_activations_that_a_failed_pass_has_left_are_not_compared() -> None:
    run = traced(2)
    more = replace(run.memory[1], parts={"parameters": 40_000_000, "activations": 90_000_000})
    run = replace(run, memory=(run.memory[0], more))
    assert "rank 1 holds" in str(ddt.memory(run))
    assert "rank 1 holds" not in str(ddt.memory(replace(run, outcome="failed")))


def test_a_rank_that_holds_more_is_flagged() -> None:
    run = traced(2)
    more = replace(run.memory[1], parts={"parameters": 40_000_000, "tensors": 90_000_000})
    (flag,) = ddt.memory(replace(run, memory=(run.memory[0], more))).flags
    assert "rank 1 holds" in flag.text
    assert "tensors" in flag.text


def test_limits_are_drawn_if_memory_comes_near_them() -> None:
    assert len(ddt.memory(traced(2)).to_plotly()["layout"]["shapes"]) == 1
    far = replace(traced(1).memory[0], limits={"machine": 10**12})
    assert not ddt.memory(replace(traced(1), memory=(far,))).to_plotly()["layout"]["shapes"]


@pytest.mark.parametrize(
    ("backend", "version", "issued"),
    [
        ("nccl", "2.13.0+cu126", True),
        ("cpu:gloo,cuda:nccl", "2.13.0+cu126", True),
        ("", "2.13.0+cu126", True),
        ("", "2.13.0+cpu", False),
        ("gloo", "2.13.0+cu126", False),
    ],
)
def test_times_of_calls_that_only_issue_are_not_those_of_the_collectives(
    backend: str, version: str, *, issued: bool
) -> None:
    """With NCCL, the last rank's host is late; how long GPUs wait or transfer is not known."""
    plain = replace(traced(4), timeline=(), origin="job")
    run = replace(plain, backend=backend, torch_version=version)
    assert run.calls_only_issue is issued
    collectives, timeline = ddt.collectives(run), ddt.timeline(run)
    assert bool(collectives.flags) is bool(timeline.flags) is not issued
    for column in ("transfer_ms", "longest_wait_ms", "bytes_per_s"):
        assert collectives.to_frame()[column].isna().all() == issued, column
    assert (timeline.to_frame()["waiting_ms"].sum() == 0) == issued
    assert (words.ISSUED in " ".join(str(timeline).split())) is issued
    assert (words.ISSUED in " ".join(str(collectives).split())) is issued
    assert (laggard(run) is None) is issued


def test_a_barrier_blocks_the_host_with_every_backend() -> None:
    run = replace(traced(2), timeline=(), origin="job", backend="nccl")
    ranks = tuple(
        replace(
            report,
            calls=tuple(replace(c, op="barrier", shapes=(), dtypes=()) for c in report.calls),
        )
        for report in run.ranks
    )
    frame = ddt.collectives(replace(run, ranks=ranks)).to_frame()
    assert frame["longest_wait_ms"].notna().all()


def test_what_a_gpu_holds_beside_the_parts_is_not_called_memory_of_the_process() -> None:
    run = traced(1)
    memory = replace(run.memory[0], device="cuda:0", limits={}, measured="running")
    unknown = ddt.memory(replace(run, memory=(memory,)))
    assert unknown.to_frame()["rest"].isna().all()
    assert "resident" in str(unknown)
    assert "the rest" not in str(unknown)
    known = replace(memory, gpu_allocated=10**9, gpu_reserved=2 * 10**9, gpu_peak=10**9)
    shown = ddt.memory(replace(run, memory=(known,)))
    assert "on the GPU" in str(shown)
    assert "pages that ranks share" not in str(shown)


def test_ranks_that_did_the_same_share_a_row_and_a_lane() -> None:
    shown = ddt.timeline(traced(64))
    lines = str(shown).splitlines()
    assert (
        sum("│" in line for line in lines) == 7
    )  # steps; the others, the last rank and the path, twice
    assert any(line.startswith("  ranks 0-62 │") for line in lines)
    assert any(line.startswith("  0-62 ") for line in lines)
    assert parsed(shown.to_html()).text.count("0-62") >= 2
    assert len(shown.to_html()) < 20_000


def test_one_step_is_drawn_in_detail_and_shows_where_the_last_rank_came() -> None:
    whole, step = str(ddt.timeline(traced(4))).split("one of median length: 200 ms")
    numbers = re.search(r"step +│(.{56})│", whole)
    assert numbers
    assert numbers[1].split() == [str(number) for number in range(2, STEPS + 1)]
    assert "▲" not in whole
    lanes = re.findall(r"(ranks? \S+) +│(.{56})│", step)
    (_, others), (late, lane) = lanes
    assert (late, lane.count("●")) == ("rank 3", 1)
    came = lane.index("●")
    assert came == int(56 * 0.16 / 0.2)  # it enters after 0.16 s of 0.2 s
    assert set(others[came - 10 : came]) == {"w"}
    assert others[came] == "↑", "the arrow points away from rank 3"
    assert "● came last, and the ranks at ↑ and ↓ had waited for it" in step
    drawn = ddt.timeline(traced(4)).to_html()
    assert drawn.count("↑") == drawn.count("●") == 1 + 1  # and in the legend


def test_an_arrow_goes_through_the_lanes_of_ranks_that_did_not_wait() -> None:
    """Rank 0 came last to a collective of the ranks 0 and 2, and rank 1 went on."""
    calls = [
        Call(
            index=1,
            op="barrier",
            group="pair",
            members=(0, 2),
            sequence=1,
            entered_s=at,
            left_s=1.0,
        )
        for at in (0.9, 0.0)
    ]
    other = Call(
        index=1, op="barrier", group="own", members=(1,), sequence=1, entered_s=0.0, left_s=0.01
    )
    ranks = tuple(
        RankReport(rank=rank, calls=(call,))
        for rank, call in enumerate((calls[0], other, calls[1]))
    )
    run = replace(traced(3), ranks=ranks, timeline=())
    lanes = re.findall(r"rank (\d) +│(.{56})│", str(ddt.timeline(run)))
    assert [(rank, lane[50]) for rank, lane in lanes] == [("0", "●"), ("1", "│"), ("2", "↓")]


def test_a_narrow_table_of_waits_names_every_rank() -> None:
    call = Call(index=1, op="barrier", members=(0, 1, 2, 3), sequence=1, entered_s=0.0, left_s=1.0)
    late = replace(call, entered_s=0.9)
    ranks = tuple(RankReport(rank=rank, calls=(late if rank == 2 else call,)) for rank in range(4))
    lines = str(ddt.timeline(replace(traced(4), ranks=ranks, timeline=()))).splitlines()
    (row,) = [line for line in lines if "barrier #1" in line]
    assert re.split(r"\s{2,}", row.strip())[:2] == ["rank 2", "0, 1, 3"]


def test_time_of_collectives_whose_end_was_not_recorded_is_not_called_own_work() -> None:
    """As in a job, where the recorder of DDP's collectives knows only when they began."""
    run = traced(2)
    ranks = tuple(
        replace(report, calls=tuple(replace(call, left_s=None) for call in report.calls))
        for report in run.ranks
    )
    shown = str(ddt.timeline(replace(run, ranks=ranks, timeline=(), origin="job")))
    assert "█" not in shown
    assert "░ own work, or a collective whose end was not recorded" in " ".join(shown.split())
    assert len(re.findall(r"^  [01] +not known", shown, re.MULTILINE)) == 2
    assert "critical path" not in shown


def test_a_run_without_steps_has_no_step_to_draw() -> None:
    whole = replace(traced(2), timeline=())
    assert "median length" not in str(ddt.timeline(whole))
