"""Who talks to whom: amounts by sender and receiver, and by rank and group."""

from __future__ import annotations

from itertools import pairwise

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, RankReport, Snapshot
from ddt_notebook.model.critical_path import critical_path, waits
from ddt_notebook.model.meetings import meetings
from ddt_notebook.model.shares import activities, time_window
from ddt_notebook.model.traffic import messages

from .test_html import KEPT, parsed

SHAPE = (10, 100)
BYTES = 4 * 10 * 100
SLOW_S = 0.3


def pipeline(ranks: int, slow: int = -1) -> Snapshot:
    """Each rank receives from the one before it, works, and sends; then all meet in two groups."""
    evens = tuple(range(0, ranks, 2))
    odds = tuple(range(1, ranks, 2))
    reports = []
    done = 0.0
    for rank in range(ranks):
        calls, at = [], 0.0
        if rank:
            calls.append(message("recv", 0, rank - 1, 0.01, done + 0.01))
            at = done + 0.01
        at += SLOW_S if rank == slow else 0.02
        if rank < ranks - 1:
            calls.append(message("send", 1, rank + 1, at, at + 0.001))
            done = at
        mine = evens if rank % 2 == 0 else odds
        calls.append(
            Call(
                index=2,
                op="all_reduce",
                group="evens" if rank % 2 == 0 else "odds",
                members=mine,
                sequence=1,
                shapes=(SHAPE,),
                dtypes=("float32",),
                entered_s=at + 0.01,
                left_s=ranks + 1.0,
            )
        )
        reports.append(RankReport(rank=rank, calls=tuple(calls)))
    return Snapshot(
        cell=Cell(number=1, source=""), ranks=tuple(reports), world_size=ranks, duration_s=ranks + 1
    )


def message(op: str, index: int, peer: int, entered_s: float, left_s: float) -> Call:
    return Call(
        index=index,
        op=op,
        kind="p2p",
        peer=peer,
        sequence=1,
        shapes=(SHAPE,),
        dtypes=("float32",),
        entered_s=entered_s,
        left_s=left_s,
    )


def test_bytes_and_waits_of_messages_are_those_of_the_calls() -> None:
    frame = ddt.collectives(pipeline(4, slow=1)).messages_frame()
    assert list(zip(frame.sender, frame.receiver, strict=True)) == [(0, 1), (1, 2), (2, 3)]
    assert set(frame.bytes) == {BYTES}
    assert set(frame.messages) == {1}
    assert frame.blocked_ms[1] == pytest.approx(1e3 * (0.03 + SLOW_S))


def test_a_message_counts_once_though_both_sides_recorded_it() -> None:
    run = pipeline(2)
    receiver_only = Snapshot(cell=run.cell, ranks=run.ranks[1:], world_size=2)
    assert messages(run)[0, 1].times == messages(receiver_only)[0, 1].times == 1


def test_the_columns_are_documented() -> None:
    view = ddt.collectives(pipeline(4))
    for frame in (view.messages_frame, view.groups_frame):
        documented = {
            name.strip("` ")
            for line in frame.__doc__.splitlines()
            if line.strip().startswith("- ``")
            for name in line.strip()[2:].partition(":")[0].split(",")
        }
        assert documented == set(frame().columns)


def test_groups_show_the_bytes_of_their_members_only() -> None:
    text = str(ddt.collectives(pipeline(4)))
    row = next(line for line in text.splitlines() if line.strip().startswith("evens: 0, 2"))
    assert row.split()[-6:] == ["4.0", "kB", "·", "4.0", "kB", "·"]


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_text_and_html_hold_the_same_amounts_in_any_size(ranks: int) -> None:
    view = ddt.collectives(pipeline(ranks))
    page = parsed(view.to_html())
    assert page.tags <= KEPT | {"style"}
    assert len(view.to_html()) < 60_000
    assert all(len(line) <= 80 for line in str(view).splitlines())
    assert f"{ranks - 1} message" in page.text
    if ranks == 64:
        assert "a cell of several ranks holds their sum" in page.text
        # seven neighbours in a block of eight ranks, and one message to the next block
        assert f"{7 * BYTES / 1000:.1f} kB" in page.text
        assert "56-63" in str(view)


def test_a_run_without_messages_and_groups_has_no_grid() -> None:
    run = pipeline(4)
    collectives = [
        RankReport(rank=r.rank, calls=tuple(c for c in r.calls if c.group == "evens"))
        for r in run.ranks
    ]
    view = ddt.collectives(Snapshot(cell=run.cell, ranks=tuple(collectives), world_size=4))
    assert "message" not in str(view)
    assert "groups:" not in str(view)


def path(run: Snapshot) -> list[tuple[int, float, float]]:
    met = meetings(run)
    seen = activities(run, met)
    window = time_window(run, met)
    assert window is not None
    found = critical_path(waits(run, met, seen), seen, window)
    assert found[0].start_s == window.start_s
    assert found[-1].end_s == window.end_s
    assert all(a.end_s == b.start_s for a, b in pairwise(found))
    return [(part.rank, part.start_s, part.end_s) for part in found]


def test_the_critical_path_goes_through_the_slow_stage() -> None:
    parts = path(pipeline(4, slow=1))
    assert [rank for rank, _, _ in parts][:2] == [0, 1] or parts[0][0] == 1
    taken = {rank: end - start for rank, start, end in parts if end <= 1.0}
    assert max(taken, key=lambda rank: taken[rank]) == 1


def test_no_path_is_drawn_where_nobody_waited() -> None:
    one = pipeline(1)
    met = meetings(one)
    seen = activities(one, met)
    assert waits(one, met, seen) == []
