"""The line below a running cell says who waits for whom, and what the awaited ranks do."""

from __future__ import annotations

from typing import Any

import pytest

from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.model.rank import Activity, RankState
from ddt_notebook.model.waits import Waiting
from ddt_notebook.views import words as view_words
from ddt_notebook.views.waiting import parts

AT = Position(file="/srv/prepare.py", line=12, code="tokenize(documents)")
BARRIER = Call(index=0, op="barrier", sequence=3, members=(0, 1, 2))


def awaited(rank: int, state: RankState = "running", **activity: Any) -> RankReport:
    does = Activity(**activity) if activity else None
    return RankReport(rank=rank, state=state, position=AT, activity=does)


def shown(*reports: RankReport, ranks: tuple[int, ...] = (1, 2)) -> list[str]:
    return parts(Waiting(ranks=ranks, call=BARRIER, waited_s=4.21, awaited=reports))


def test_the_line_shows_which_ranks_wait_where_and_for_how_long() -> None:
    assert shown(awaited(0, cpu_share=0.82)) == [
        "ranks 1, 2 have been waiting in barrier #3 for 4.2 s",
        "rank 0 is at work in prepare.py line 12 (82 % of a core)",
    ]
    assert shown(ranks=(1,)) == [
        "rank 1 has been waiting in barrier #3 for 4.2 s",
        "every member has entered it",
    ]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (awaited(0, cpu_share=0.02, waits_for="time"), ("sleeps", "prepare.py line 12")),
        (awaited(0, cpu_share=0.02, waits_for="file", file="/data/a.bin"), ("reads /data/a.bin",)),
        (awaited(0, cpu_share=0.02, waits_for="file lock"), ("waits for the lock",)),
        (awaited(0, cpu_share=0.02, waits_for="lock"), ("waits for a lock", "thread")),
        (awaited(0, cpu_share=0.02, waits_for="process"), ("waits for a process",)),
        (
            awaited(0, cpu_share=0.02, waits_for="build lock", file="/c/lock"),
            ("lock of a build", "/c/lock", "no process here has open"),
        ),
        (
            awaited(0, cpu_share=0.02, waits_for="build lock", file="/c/lock", held_by=7),
            ("process 7 has open",),
        ),
        (
            awaited(0, cpu_share=0.02, waits_for="build", compiled=(1, 3)),
            ("builds an extension", "1 of 3 files compiled"),
        ),
        (awaited(0, cpu_share=0.02, waits_for="data"), ("waits for data",)),
        (awaited(0, cpu_share=0.9, waits_for="lock"), ("is at work", "90 % of a core")),
        (awaited(0, cpu_share=0.06, waits_for="lock"), ("is at work", "6 % of a core")),
        (awaited(0, cpu_share=3.24), ("is at work", "3.2 cores")),
        (awaited(0, cpu_share=0.01), ("is in prepare.py line 12", "1 % of a core")),
        (awaited(0), ("is at work in prepare.py line 12",)),
        (awaited(0, "silent", cpu_share=0.99), ("in a C call", "99 % of a core")),
        (awaited(0, "stopped"), ("suspended",)),
        (awaited(0, "blocked"), ("waits, too", "prepare.py line 12")),
        (awaited(0, "finished"), ("finished the cell",)),
    ],
)
def test_the_line_shows_what_the_awaited_rank_does(
    report: RankReport, words: tuple[str, ...]
) -> None:
    _, line = shown(report)
    assert line.startswith("rank 0 ")
    assert all(word in line for word in words), line


def test_ranks_that_do_the_same_share_a_line_and_the_lines_are_bounded() -> None:
    busy = [awaited(rank, cpu_share=0.5 + rank / 10) for rank in (2, 3, 4)]
    assert shown(*busy)[1] == "ranks 2-4 are at work in prepare.py line 12 (80 % of a core each)"
    apart = [
        RankReport(rank=n, state="running", position=Position(file="a.py", line=n))
        for n in range(60)
    ]
    assert len(shown(*apart)) == 5
    assert shown(*apart)[-1] == "and 57 more ranks"


def test_text_of_a_rank_is_cleaned_and_bounded() -> None:
    file = "/data/\x1b[31m" + 500 * "x"
    _, line = shown(awaited(0, cpu_share=0.0, waits_for="file", file=file))
    assert "\x1b" not in line
    assert len(line) < 150


def test_a_suspended_rank_that_no_rank_waits_for() -> None:
    (line,) = parts(Waiting(awaited=(RankReport(rank=2, state="stopped"),)))
    assert line.startswith("rank 2 is suspended")


def test_a_rank_that_waits_for_an_ended_thread_is_not_called_running() -> None:
    waits, runs = awaited(0, waits_for="ended thread", cpu_share=0.0), awaited(1, cpu_share=0.8)
    assert view_words.state(waits) == "waits for a thread that has ended"
    assert view_words.state(waits, ranks=2) == "wait for a thread that has ended"
    assert view_words.state(runs) == "was still running"
