"""A rank at work is not a hang. The others wait for it, and a line shows what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis.rules import hang
from ddt_notebook.host import hang_detection
from ddt_notebook.host.listeners import SilentListener
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.model.waits import Waiting

#: A wait is shown, and reported after an interrupt, when it has lasted this long, in seconds.
SHOW_AFTER_S = 0.4
PREPARES = """
import os, pathlib, time
kept = 10 + rank
if rank == 0:
    while not os.access({path!r}, os.F_OK):
        {work}
dist.barrier()
"""


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(3, hang_after=0.3) as made:
        assert made.timeout is None
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_detection, "SHOW_AFTER_S", SHOW_AFTER_S)
    monkeypatch.setattr(hang, "_LONG_WAIT_S", SHOW_AFTER_S)


class Watcher(SilentListener):
    """Acts when the wait that it looks for is shown for the first time."""

    def __init__(self, wanted: Callable[[Waiting], bool], act: Callable[[], object]) -> None:
        self.wanted, self.act = wanted, act
        self.seen: Waiting | None = None
        self.shown_last: Waiting | None = None

    def on_waiting(self, waiting: Waiting | None) -> None:
        self.shown_last = waiting
        if waiting is not None and self.seen is None and self.wanted(waiting):
            self.seen = waiting
            self.act()


def check_that_nothing_was_lost(session: ddt.Session, run: RunResult) -> None:
    assert not run.lost
    after = session.run("x = torch.ones(1)\ndist.all_reduce(x)\nprint(int(x), kept)")
    assert after.ok
    assert [after.outputs[rank].split() for rank in range(3)] == [
        ["3", "10"],
        ["3", "11"],
        ["3", "12"],
    ]


WORK = {
    "time": "time.sleep(0.2)",
    "": "sum(range(100_000))",
    "missing file": "time.sleep(0.1 * (not pathlib.Path('no such file').exists()))",
}


@pytest.mark.parametrize("waits_for", WORK)
def test_a_rank_at_work_is_waited_for_and_shown(
    session: ddt.Session, tmp_path: Path, waits_for: str
) -> None:
    flag = tmp_path / "go"

    def wanted(waiting: Waiting) -> bool:
        awaited = waiting.awaited[0] if waiting.awaited else None
        if awaited is None or waiting.ranks != (1, 2):
            return False
        does = awaited.activity
        if does is None or awaited.position is None:  # a busy rank tells it later
            return False
        # a rank that is ready to run waits for nothing; how much it computes depends on the machine
        return does.waits_for == waits_for

    watcher = Watcher(wanted, flag.touch)
    source = PREPARES.format(path=str(flag), work=WORK[waits_for])
    run = session.run_cell(source, listener=watcher)
    assert run.ok
    assert not ddt.diagnose(run).findings
    seen = watcher.seen
    assert seen is not None
    assert seen.call is not None
    assert seen.call.op == "barrier"
    (at_work,) = seen.awaited
    assert at_work.rank == 0
    assert at_work.position is not None
    assert at_work.position.line in (5, 6)
    assert watcher.shown_last is None
    check_that_nothing_was_lost(session, run)


def test_an_interrupt_reports_the_wait_as_likely_and_loses_nothing(
    session: ddt.Session, tmp_path: Path
) -> None:
    watcher = Watcher(lambda waiting: waiting.ranks == (1, 2), session.interrupt)
    source = PREPARES.format(path=str(tmp_path / "never"), work=WORK["time"])
    run = session.run_cell(source, listener=watcher)
    assert run.snapshot.outcome == "interrupted"
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.confidence) == ("late", "likely")
    assert (finding.ranks, finding.waiting) == ([0], [1, 2])
    assert finding.places[0].line in (5, 6)
    assert finding.places[1].line == 7
    check_that_nothing_was_lost(session, run)


def test_a_lock_file_that_no_process_has_open_is_shown_and_named(
    session: ddt.Session, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    lock.touch()  # by a build that was killed
    source = (
        "from torch.utils.file_baton import FileBaton\n"
        "kept = 10 + rank\n"
        f"FileBaton({str(lock)!r}).wait()"
    )

    def all_wait(waiting: Waiting) -> bool:
        return [one.rank for one in waiting.awaited if one.builds] == [0, 1, 2]

    watcher = Watcher(all_wait, session.interrupt)
    run = session.run_cell(source, listener=watcher)
    assert watcher.seen is not None
    assert {one.activity and one.activity.file for one in watcher.seen.awaited} == {str(lock)}
    (finding,) = ddt.diagnose(run).findings
    assert (finding.cause, finding.ranks) == ("build-lock-left-over", [0, 1, 2])
    assert {place.line for place in finding.places.values()} == {3}
    assert str(lock) in finding.fixes[0].advice
    check_that_nothing_was_lost(session, run)
