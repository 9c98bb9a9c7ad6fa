"""What the side panel shows of the ranks' devices and memory."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ddt_notebook.views import panel
from ddt_notebook.views.live_ranks import LiveView, RankLine
from ddt_notebook.widgets import lab


@dataclass
class Resources:
    device: str = "cpu"
    resident_bytes: int | None = None
    allocated_bytes: int | None = None
    cap_bytes: int | None = None


def rows(lines: list[RankLine], resources: dict[int, Resources]) -> list[dict[str, object]]:
    shown = panel.of_view(LiveView("2 ranks", tuple(lines)), resources)["rows"]
    return list(shown)


def test_each_rank_has_its_device() -> None:
    lines = [RankLine(ranks=(0,), state="ready"), RankLine(ranks=(1,), state="ready")]
    known = {0: Resources("cuda:0 (simulated)"), 1: Resources("cuda:1 (simulated)")}
    assert [row["device"] for row in rows(lines, known)] == [
        "cuda:0 (simulated)",
        "cuda:1 (simulated)",
    ]


def test_ranks_that_share_a_row_share_a_device_only_if_it_is_the_same() -> None:
    line = RankLine(ranks=(0, 1, 2), state="ready")
    (row,) = rows([line], {rank: Resources() for rank in range(3)})
    assert row["device"] == "cpu"
    (row,) = rows([line], {rank: Resources(f"cuda:{rank % 2}") for rank in range(3)})
    assert row["device"] == "cuda:0, cuda:1"


def test_memory_is_compared_with_the_cap_of_the_rank_that_allocated_most() -> None:
    line = RankLine(ranks=(0, 1), state="running")
    known = {
        0: Resources(allocated_bytes=100_000_000, cap_bytes=400_000_000),
        1: Resources(allocated_bytes=200_000_000, cap_bytes=400_000_000),
    }
    (row,) = rows([line], known)
    assert row["share"] == 0.5
    assert row["allocated"] == "≤ 200 MB of 400 MB allocated"


def test_resident_memory_is_what_the_ranks_reported_else_what_the_system_reports() -> None:
    lines = [
        RankLine(ranks=(0,), state="running", memory_bytes=90_000_000),
        RankLine(ranks=(1, 2), state="ready"),
        RankLine(ranks=(3,), state="died"),
    ]
    known = {rank: Resources(resident_bytes=(rank + 1) * 10_000_000) for rank in range(4)}
    assert [row["memory"] for row in rows(lines, known)] == ["90.0 MB", "≤ 30.0 MB", ""]


def test_what_is_not_known_is_not_shown() -> None:
    line = RankLine(ranks=(0,), state="ready")
    for resources in ({}, {0: Resources("")}, {0: Resources("", cap_bytes=400_000_000)}):
        (row,) = rows([line], resources)
        assert (row["device"], row["share"], row["allocated"]) == ("", None, "")


def test_a_rank_on_another_host_lives_as_long_as_that_host_says() -> None:
    processes = [SimpleNamespace(pid=2**22 + 1, exists=one) for one in (True, True)]
    handles = [SimpleNamespace(process=one, host="") for one in processes]
    pids = [one.pid for one in processes]
    session: Any = SimpleNamespace(resting=False, pids=pids, pool=SimpleNamespace(handles=handles))
    assert lab._at_prompt(session) == panel.at_prompt([True, True], ["", ""])
