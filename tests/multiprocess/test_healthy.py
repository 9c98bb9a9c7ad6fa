"""Programs without a fault give no finding."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt

from ..fixtures.cases import Case, load
from .conftest import Ranks

CASES = [
    pytest.param(case, marks=[pytest.mark.slow] if case.slow else [], id=case.name)
    for case in load("healthy")
]


@pytest.mark.parametrize("case", CASES)
def test_healthy_program_is_silent(ranks: Ranks, case: Case) -> None:
    run = ranks.check(case)
    assert run.ok
    ranks.check_still_usable(case)


def test_cells_on_the_members_of_an_earlier_group(ranks: Ranks) -> None:
    session = ranks.session(4)
    runs = [
        session.run("pair = dist.new_group([1, 2])"),
        session.run("dist.all_reduce(torch.ones(2), group=pair)", ranks=[1, 2]),
        session.run("print('alone')", ranks=[3]),
        session.run("dist.barrier()"),
    ]
    for run in runs:
        report = ddt.diagnose(run)
        assert report.ok, str(report)
        assert not report.hints, str(report)


def test_handle_waited_for_in_a_later_cell(ranks: Ranks) -> None:
    session = ranks.session(2)
    runs = [
        session.run("work = dist.all_reduce(torch.ones(2), async_op=True)"),
        session.run("work.wait()"),
        session.run("dist.barrier()"),
    ]
    for run in runs:
        report = ddt.diagnose(run)
        assert report.ok, str(report)
        assert not report.hints, str(report)


def test_ranks_that_give_up_at_a_barrier_of_their_own(ranks: Ranks) -> None:
    """As WeNet's executor finds that the batches of one rank have ended."""
    run = ranks.session(2).run(
        """
from datetime import timedelta
for epoch in range(2):
    join = dist.new_group(timeout=timedelta(seconds=5))
    for batch in range(2 + (rank + epoch) % 2):
        try:
            dist.monitored_barrier(join, timeout=timedelta(seconds=5))
        except RuntimeError:
            break
    dist.destroy_process_group(join)
    dist.barrier()
"""
    )
    report = ddt.diagnose(run)
    assert run.ok
    assert report.ok, str(report)
