"""Whether the next run has to observe which way each rank goes."""

from __future__ import annotations

import signal

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.unexplained import lacks_reason
from ddt_notebook.model import Report

from .builders import all_reduce, at, call, peer_error, raised, rank, snapshot

#: All ranks reduce several tensors in one helper.
HELPER = """
def mean(x):
    dist.all_reduce(x)
    return x
for x in tensors:
    mean(x)
"""


def _mismatch(*before: tuple[int, ...], ends: tuple[tuple[int, ...], ...]) -> Report:
    sent = [[all_reduce(3, shapes=(shape,)) for shape in (*before, last)] for last in ends]
    return diagnose(
        snapshot(
            *(rank(number, *calls, blocked=True) for number, calls in enumerate(sent)),
            source=HELPER,
            outcome="hung",
        )
    )


@pytest.mark.parametrize(
    ("before", "ends", "expected"),
    [
        ([(4,), (9,)], ((4,), (9,)), True),
        ([(4,)], ((4,), (9,)), True),
        ([], ((4,), (9,)), False),
        ([(8, 5), (8, 5)], ((8, 5), (3, 5)), False),
    ],
    ids=["other tensors before", "another tensor now", "first call", "a smaller batch"],
)
def test_ranks_at_one_line_may_be_out_of_step(
    before: list[tuple[int, ...]], ends: tuple[tuple[int, ...], ...], expected: bool
) -> None:
    report = _mismatch(*before, ends=ends)
    assert report.findings[0].cause == "shape-differs", str(report)
    assert lacks_reason(report) is expected


FLAT = """
for step in range(9):
    if enabled:
        dist.all_reduce(a)
    {more}
dist.barrier()
"""


@pytest.mark.parametrize(
    ("more", "expected"), [("pass", False), ("if loss > limit():\n        break", True)]
)
def test_one_of_several_conditions_in_a_cell_explains_nothing(more: str, expected: bool) -> None:
    """The source says only which of them could come out differently."""
    source = FLAT.format(more=more)
    last = source.splitlines().index("dist.barrier()") + 1
    report = diagnose(
        snapshot(
            rank(0, all_reduce(4), all_reduce(4), blocked=True),
            rank(1, all_reduce(4), call("barrier", last), blocked=True),
            source=source,
            outcome="hung",
        )
    )
    assert report.findings[0].cause is not None, str(report)
    assert lacks_reason(report) is expected, str(report)


def test_a_rank_that_a_mismatch_killed_while_it_waited_for_a_handle() -> None:
    """Where it waited is no cause: gloo aborts it there because of the call that it had issued."""
    source = "handle = dist.all_reduce(x, async_op=True)\nhandle.wait()\n"
    sent = [all_reduce(1, shapes=((size,),), status="issued") for size in (4, 9)]
    report = diagnose(
        snapshot(
            rank(0, sent[0], state="died", exit_signal=int(signal.SIGABRT), position=at(2)),
            raised(1, sent[1], error=peer_error(None, where=at(2), frames=(at(2),))),
            source=source,
            outcome="failed",
        )
    )
    assert [finding.cause for finding in report.findings] == ["shape-differs"], str(report)
    assert "died-of-it" in {fact.kind for fact in report.findings[0].facts}
