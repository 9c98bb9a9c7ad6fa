"""The picture of the last collectives before a hang."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.model import Call, Cell, Finding, Position, RankError, RankReport, Snapshot
from ddt_notebook.model.last_collectives import last_collectives
from ddt_notebook.views import last_collectives as picture


def call(number: int, status: str = "done", op: str = "all_reduce", group: str = "0") -> Call:
    return Call(
        index=number,
        op=op,
        kind="collective",
        group=group,
        members=(0, 1, 2, 3),
        sequence=number,
        status=status,  # type: ignore[arg-type]
    )


def waits(rank: int, number: int, op: str = "all_reduce", first: int = 1) -> RankReport:
    calls = (*(call(n) for n in range(first, number)), call(number, "pending", op))
    return RankReport(
        rank=rank, state="blocked", blocked_in=number, blocked_s=1.0 + rank, calls=calls
    )


def misses(rank: int, after: int) -> RankReport:
    return RankReport(rank=rank, calls=tuple(call(n) for n in range(1, after + 1)))


def run(*ranks: RankReport) -> Snapshot:
    cell = Cell(number=1, source="")
    return Snapshot(cell=cell, world_size=len(ranks), outcome="hung", ranks=ranks)


def test_ranks_that_did_the_same_share_a_lane_with_their_longest_wait() -> None:
    found = last_collectives(run(waits(0, 9), misses(1, 8), waits(2, 9), waits(3, 9)), [0, 2, 3], 3)
    assert found is not None
    assert found.columns == ((7, "all_reduce"), (8, "all_reduce"), (9, "all_reduce"))
    waiting, missing = found.lanes
    assert (waiting.ranks, missing.ranks) == ((0, 2, 3), (1,))
    assert [entry.step for entry in waiting.entries] == ["done", "done", "waiting"]
    assert [entry.step for entry in missing.entries] == ["done", "done", "missing"]
    assert waiting.entries[-1].waited_s == 4.0


def test_a_call_that_only_issued_a_collective_is_not_drawn_as_done() -> None:
    """The host waits in a barrier; what its GPU has completed is not known."""
    before = (call(7, op="barrier"), call(8), call(9, "pending", "barrier"))
    waiting = replace(waits(0, 9, "barrier"), calls=before)
    snapshot = replace(run(waiting, replace(waiting, rank=1)), backend="nccl")
    found = last_collectives(snapshot, [0, 1], 3)
    assert found is not None
    assert [entry.step for entry in found.lanes[0].entries] == ["done", "issued", "waiting"]
    dumps = last_collectives(replace(snapshot, origin="dumps"), [0, 1], 3)
    assert dumps is not None
    assert [entry.step for entry in dumps.lanes[0].entries] == ["done", "done", "waiting"]
    finding = Finding(symptom="D.2.1", stage="training & evaluation", waiting=[0, 1])
    for shown in (picture.as_text, picture.as_html):
        assert "issued" in str(shown(finding, snapshot))


def test_another_operation_is_named_and_stands_in_its_own_lane() -> None:
    found = last_collectives(run(waits(0, 2), waits(1, 2, "barrier"), waits(2, 2)), [0, 1, 2], 5)
    assert found is not None
    assert found.columns[-1] == (2, "all_reduce")
    assert [(lane.ranks, lane.entries[-1].op) for lane in found.lanes] == [
        ((0, 2), ""),
        ((1,), "barrier"),
    ]


def test_who_passed_something_else_stands_apart_from_those_who_raised_because_of_it() -> None:
    """As with gloo: rank 0 aborts, ranks 1 and 3 lose the connection, rank 2 still waits."""
    line = Position(file="cell[1]", line=31, code="loss.backward()")
    tensors = {"shapes": ((19210,),), "dtypes": ("float32",), "where": line}
    last = replace(call(9), **tensors)  # type: ignore[arg-type]
    lost = RankReport(
        rank=1,
        state="raised",
        calls=(call(8), last),
        error=RankError(type="RuntimeError", message="Connection closed by peer", where=line),
    )
    open_ = replace(last, status="pending")
    scalar = replace(open_, shapes=((),), dtypes=("int64",), where=None)
    died = RankReport(rank=0, state="died", exit_signal=6, calls=(call(8), scalar))
    blocked = replace(waits(2, 9), calls=(call(8), open_))
    snapshot = run(died, lost, blocked, replace(lost, rank=3))
    finding = Finding(symptom="D.1.1", stage="training & evaluation", waiting=[1, 2, 3])
    lanes = picture.as_text(finding, snapshot)[1:]
    assert [" ".join(lane.split()) for lane in lanes] == [
        "rank 0 ✓ ✖ died · scalar int64",
        "ranks 1, 3 ✓ ✖ raised · 19210 × float32",
        "rank 2 ✓ waiting 3.0 s · 19210 × float32",
    ]
    drawn = "".join(picture.as_html(finding, snapshot))
    assert "✖ died · scalar int64" in drawn
    alike = replace(died, calls=(call(8), open_))
    agreeing = picture.as_text(finding, run(alike, lost, blocked, replace(lost, rank=3)))
    assert "float32" not in "".join(agreeing), "they passed the same"
    roots = [
        replace(
            waits(r, 2, "broadcast"),
            calls=(call(1), replace(call(2, "pending", "broadcast"), root=r // 2)),
        )
        for r in range(4)
    ]
    rooted = picture.as_text(replace(finding, waiting=[0, 1, 2, 3]), run(*roots))
    assert ["root 0" in rooted[1], "root 1" in rooted[2]] == [True, True]


def test_a_call_that_was_dropped_because_it_matched_is_drawn_as_done() -> None:
    found = last_collectives(run(waits(0, 9, first=9), waits(1, 9), misses(2, 8)), [0, 1], 3)
    assert found is not None
    assert [lane.ranks for lane in found.lanes] == [(0, 1), (2,)]


def test_nothing_is_drawn_without_something_to_compare() -> None:
    assert last_collectives(run(waits(0, 1), misses(1, 0)), [0], 5) is None
    assert last_collectives(run(waits(0, 3), RankReport(rank=1)), [0], 5) is None
    assert last_collectives(run(misses(0, 3), misses(1, 3)), [0], 5) is None
    other = replace(waits(1, 3), calls=(call(3, "pending", group="1"),))
    assert last_collectives(run(waits(0, 3), other), [0, 1], 5) is None


def test_text_and_html_say_the_same() -> None:
    snapshot = run(waits(0, 4), misses(1, 3), waits(2, 4, "<b>", first=1))
    finding = Finding(symptom="D.2.1", stage="training & evaluation", waiting=[0, 2], ranks=[1])
    text = "\n".join(picture.as_text(finding, snapshot))
    html = "".join(picture.as_html(finding, snapshot))
    assert "<b>" in text
    assert "<b>" not in html
    for said in ("#4 all_reduce", "waiting 1.0 s", "never entered", "rank 1"):
        assert said in text
        assert said in html


def test_the_bar_of_a_wait_is_its_part_of_the_time_of_the_cell() -> None:
    finding = Finding(symptom="D.2.1", stage="training & evaluation", waiting=[0, 1], ranks=[2])
    snapshot = run(waits(0, 4), waits(1, 4, "barrier"), misses(2, 3))
    for shown in (picture.as_text, picture.as_html):
        drawn = str(shown(finding, replace(snapshot, duration_s=4.0)))
        assert "waiting 1.0 s ██░░░░░░" in drawn
        assert "waiting 2.0 s ████░░░░" in drawn
        assert "█ how much of the cell" in drawn
        script = replace(snapshot, duration_s=4.0, cell=replace(snapshot.cell, file="train.py"))
        assert "█ how much of the script" in str(shown(finding, script))
        assert "█" not in str(shown(finding, snapshot)), "how long it ran is not known"


def test_only_the_first_of_many_lanes_are_shown_and_the_other_ranks_counted() -> None:
    ranks = [waits(rank, 2, f"operation {rank}") for rank in range(12)]
    members = tuple(range(12))
    known = [
        replace(one, calls=tuple(replace(call, members=members) for call in one.calls))
        for one in ranks
    ]
    finding = Finding(symptom="D.2.1", stage="training & evaluation", waiting=list(members))
    shown = picture.as_text(finding, run(*known))
    assert len(shown) == 1 + picture.LANES + 1
    assert shown[-1].split() == ["and", "4", "more", "ranks"]


def test_ten_collectives_are_drawn_and_in_a_terminal_those_that_fit() -> None:
    finding = Finding(symptom="D.2.1", stage="training & evaluation", waiting=[0, 2], ranks=[1])
    head, *lanes = picture.as_text(finding, run(waits(0, 119), misses(1, 118), waits(2, 119)))
    assert head.split() == [
        *("#113", "all_reduce", "#114", "#115", "#116", "#117", "#118", "#119", "all_reduce")
    ]
    assert [lane.count("✓") for lane in lanes] == [6, 6]
    assert max(map(len, (head, *lanes))) <= 80
    html = "".join(picture.as_html(finding, run(waits(0, 119), misses(1, 118), waits(2, 119))))
    assert html.count("✓") == 2 * 9
    assert "#110 all_reduce" in html
    other = run(waits(0, 119, "broadcast_object_list"), misses(1, 118), waits(2, 119))
    head, *lanes = picture.as_text(finding, other)
    assert head.split()[0] == "#115"  # and not so many that a lane is shortened
    assert "…" not in "".join((head, *lanes))
