"""Two runs beside each other."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis.compare_runs import compare, compare_alone
from ddt_notebook.model import Cell, Finding, Position, RankError, RankReport, Report, Snapshot

from .builders import all_reduce, rank, snapshot

ERROR = RankError(
    type="ValueError", message="bad batch\nmore", where=Position(file="cell[1]", line=4, code="f()")
)
OTHER = RankError(type="ValueError", message="bad", where=Position(file="cell[1]", line=9))
FREED = RankError(type="RuntimeError", message="Connection closed by peer", released=True)


def finding(cause: str | None, symptom: str = "D.2.1", **fields: list[int]) -> Finding:
    return Finding(symptom=symptom, stage="", title=f"{cause}", cause=cause, **fields)


def report(*causes: str | None) -> Report:
    return Report(ok=not causes, findings=[finding(cause) for cause in causes])


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (report("a"), report(), "gone"),
        (report("a"), report("a"), "same"),
        (report("a"), report("b", "a"), "same"),
        (report("a", "b"), report("b"), "other"),
        (report("a"), report("b"), "other"),
        (report(), report("a"), "new"),
        (report(), report(), "well"),
        (Report(ok=False), report("a"), "other"),
        (Report(ok=False), Report(ok=False), "same"),
        (Report(ok=False), report(), "gone"),
        (report("a"), Report(ok=False), "other"),
    ],
)
def test_findings_are_compared_as_gone_left_or_new(
    before: Report, after: Report, change: str
) -> None:
    assert compare(before, after).change == change


def test_ranks_do_not_matter_when_findings_are_compared() -> None:
    before = Report(ok=False, findings=[finding("a", ranks=[0]), finding("b")])
    after = Report(ok=False, findings=[finding("a", ranks=[1]), finding("c")])
    found = compare(before, after)
    assert [[f.cause for f in part] for part in (found.gone, found.left, found.new)] == [
        ["b"],
        ["a"],
        ["c"],
    ]
    assert found.left[0].ranks == [1]
    assert (
        compare(
            Report(ok=False, findings=[finding("a", "B.2")]),
            Report(ok=False, findings=[finding("a", "D.2.1")]),
        ).change
        == "other"
    )


def run(*errors: RankError | None, outcome: str = "", **fields: int) -> Snapshot:
    ranks = tuple(
        RankReport(rank=rank, state="raised" if error else "finished", error=error)
        for rank, error in enumerate(errors)
    )
    if fields:
        ranks = (RankReport(rank=0, state="died", **fields), *ranks[1:])
    failed = "failed" if any(errors) or fields else "ok"
    return Snapshot(
        cell=Cell(number=1, source=""),
        ranks=ranks,
        outcome=outcome or failed,  # type: ignore[arg-type]
        world_size=len(ranks),
    )


LIBRARY = RankError(type="ValueError", message="no attribute of 'DistributedDataParallel'")
BAD = Report(ok=False, findings=[finding("x", ranks=[1])])


@pytest.mark.parametrize(
    ("several", "alone", "verdict"),
    [
        (run(None, ERROR), run(ERROR), "also"),
        (run(None, ERROR), run(None), "several"),
        (run(LIBRARY, LIBRARY), run(LIBRARY), "called"),
        (run(None, ERROR), run(OTHER), "otherwise"),
        (run(FREED, ERROR), run(ERROR), "also"),
        (run(FREED, None, outcome="hung"), run(None), "several"),
        (run(FREED, None, outcome="hung"), run(FREED), "otherwise"),
        (run(None, ERROR), run(None, outcome="interrupted"), "endless"),
        (run(None, None, exit_signal=11), run(None, exit_signal=11), "also"),
        (run(None, None, exit_signal=11), run(None, exit_code=1), "otherwise"),
    ],
)
def test_the_verdicts_of_the_check_on_one_rank(
    several: Snapshot, alone: Snapshot, verdict: str
) -> None:
    assert compare_alone(several, BAD, alone).verdict == verdict


def test_both_runs_are_summarised() -> None:
    found = compare_alone(run(FREED, ERROR), BAD, run(OTHER))
    assert found.several == "ValueError: bad batch at cell[1] line 4: f()"
    assert found.alone == "ValueError: bad at cell[1] line 9"
    died = compare_alone(run(None, exit_signal=9), BAD, run(None, exit_code=3))
    assert (died.several, died.alone) == ("died of signal 9", "exited with code 3")


def test_the_verdict_on_a_healthy_run() -> None:
    assert compare_alone(run(None, None), Report(ok=True), run(None)).verdict == "well"


def test_a_run_that_did_not_do_the_same_proves_nothing() -> None:
    failed, did = report("a"), snapshot(rank(0, all_reduce()), rank(1, all_reduce()))
    did_not = snapshot(rank(0), rank(1))
    assert compare(failed, report(), (did, did_not)).change == "untried"
    assert compare(failed, report(), (did, did)).change == "gone"
    assert compare(failed, report(), (did_not, did)).change == "gone"
