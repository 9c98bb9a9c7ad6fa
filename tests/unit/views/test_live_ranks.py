"""The live table, from reports alone."""

from dataclasses import replace

from ddt_notebook.model import Call, Position, RankError, RankReport
from ddt_notebook.views import live_ranks, panel

HOSTILE = "<script>alert(1)</script>" + "x" * 10_000


def waits_for_1(rank: int, ranks: int) -> RankReport:
    call = Call(
        index=0, op="all_reduce", members=tuple(range(ranks)), sequence=17, status="pending"
    )
    return RankReport(
        rank=rank,
        state="blocked",
        blocked_in=0,
        blocked_s=2.0 + rank / 100,
        position=Position(file="cell[3]", line=6, code="dist.all_reduce(loss)"),
        calls=(call,),
        memory_bytes=300_000_000,
    )


def moment(ranks: int, state: str = "running") -> tuple[RankReport, ...]:
    reports = [waits_for_1(rank, ranks) for rank in range(ranks)]
    position = Position(file="cell[3]", line=4, code="time.sleep(8)")
    reports[1] = RankReport(rank=1, state=state, position=position)  # type: ignore[arg-type]
    return tuple(reports)


def test_the_table_shows_which_rank_waits_for_which_and_where() -> None:
    view = live_ranks.of_reports(live_ranks.headline(3, 4.2), moment(3), {0: [1, 2]})
    shown = view.to_text().splitlines()
    assert shown[0] == "cell[3] runs · 4.2 s"
    assert "‖ waits 2.0 s for rank 1 in all_reduce #17" in shown[2]
    assert "cell[3] line 6: dist.all_reduce(loss)" in shown[2]
    assert "300 MB" in shown[2]
    assert "▸ running" in shown[3]
    assert "cell[3] line 4: time.sleep(8)" in shown[3]


def test_the_table_shows_waits_that_cannot_end_and_past_states() -> None:
    stuck = live_ranks.of_reports("", moment(3, "finished"), {})
    assert [line.state for line in stuck.lines] == ["stuck", "finished", "stuck"]
    ended = live_ranks.of_reports("", moment(3), {}, ended=True)
    assert [line.state for line in ended.lines] == ["waited", "was running", "waited"]


def test_the_bar_of_a_wait_grows_with_its_part_of_the_cell() -> None:
    bars = [
        live_ranks.of_reports("", moment(3), {}, elapsed_s=elapsed_s).lines[0].bar
        for elapsed_s in (0.0, 16.0, 4.0, 2.0)
    ]
    assert bars == ["", "█░░░░░░░", "████░░░░", "████████"]
    shown = live_ranks.of_reports("", moment(3), {}, elapsed_s=4.0)
    assert "waits ████░░░░ 2.0 s for rank 1" in shown.to_text()
    assert "████░░░░" in shown.to_html()


def test_many_ranks_that_are_alike_share_a_line() -> None:
    view = live_ranks.of_reports("", moment(64), {})
    assert [line.ranks for line in view.lines] == [(0, *range(2, 64)), (1,)]
    assert view.lines[0].wait == "2.6 s for rank 1 in all_reduce #17"
    assert view.lines[0].memory == "≤ 300 MB"
    assert len(view.to_html()) < 10_000


def test_the_memory_curve_rises_but_not_with_noise() -> None:
    noise = live_ranks.of_reports("", moment(3), {0: [300_000_000, 300_004_096]})
    assert noise.lines[0].curve == "▁▁"
    rise = live_ranks.of_reports("", moment(3), {0: [200_000_000, 300_000_000]})
    assert rise.lines[0].curve == "▁█"


def test_hostile_text_is_escaped_and_bounded() -> None:
    blocked, running, _ = moment(3)
    reports = (
        replace(blocked, calls=(replace(blocked.calls[0], op=HOSTILE),)),
        replace(running, position=Position(file=HOSTILE, line=1, code=HOSTILE)),
        RankReport(rank=2, state="raised", error=RankError(type=HOSTILE, message="\x1b[31m")),
    )
    view = live_ranks.of_reports("", reports, {})
    page = view.to_html()
    assert "<script" not in page
    assert "\x1b" not in page + view.to_text()
    assert len(page) < 10_000
    assert len(view.to_text()) < 2_000


def test_a_table_without_ranks() -> None:
    assert live_ranks.of_reports("cell[1] runs", (), {}).to_text() == "cell[1] runs"
    assert "cell[1] runs" in live_ranks.of_reports("cell[1] runs", (), {}).to_html()


def test_hosts_are_named_while_a_cell_runs_and_at_the_prompt() -> None:
    reports = [replace(report, host=f"node{report.rank // 2}") for report in moment(4)]
    shown = live_ranks.of_reports("", reports, {})
    assert (
        shown.to_text().splitlines()[2].startswith("  0 · node0  ‖ waits 2.0 s for rank 1 · node0")
    )
    assert "3 · node1" in shown.to_html()
    view = panel.at_prompt([True] * 20, ["nodeA"] * 8 + ["nodeB"] * 12)
    assert [row["label"] for row in panel.of_view(view, {})["rows"]] == [
        "0-7 · nodeA",
        "8-19 · nodeB",
    ]
