"""Broken cells for each kind of fault: the right cause, culprits, victims and line."""

from __future__ import annotations

import pytest

from ..fixtures.cases import Case, load
from .conftest import Ranks

CASES = load("faults")
pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fault_is_told_apart(ranks: Ranks, case: Case) -> None:
    run = ranks.check(case)
    ranks.check_still_usable(case, run.lost)
