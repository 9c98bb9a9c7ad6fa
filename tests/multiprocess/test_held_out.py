"""Programs that the rules were not written for: broken ones, and healthy ones in a row."""

from __future__ import annotations

from itertools import count

import pytest

import ddt_notebook as ddt

from ..fixtures.cases import CELL, Case, load
from .conftest import Ranks

_HELPERS_CELL = CELL + 3
_HEALTHY = load("held_out_healthy")
_numbers = count(100)


@pytest.mark.parametrize("case", load("held_out_faults"), ids=lambda case: case.name)
def test_fault_in_a_program_of_another_style(ranks: Ranks, case: Case) -> None:
    if case.earlier:
        ranks.session(case.n, group=case.group).run_cell(case.earlier, number=_HELPERS_CELL)
    run = ranks.check(case)
    ranks.check_still_usable(case, run.lost)


@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
def test_healthy_programs_in_a_row(ranks: Ranks, order: int) -> None:
    """One session for all: the effects of an earlier cell must not show in a later one."""
    wrong = []
    for case in _HEALTHY[::order]:
        session = ranks.session(case.n, group=case.group)
        for source in filter(None, (case.earlier, case.source, case.then)):
            run = session.run_cell(source, number=next(_numbers))
            report = ddt.diagnose(run)
            if not run.ok or report.findings or report.hints:
                errors = {rank: str(error) for rank, error in run.errors.items()}
                wrong.append((case.name, errors, str(report)))
    assert not wrong
