"""The twenty faults that plain gloo and PyTorch's tools were measured with, on real processes."""

from __future__ import annotations

import pytest

from ..fixtures.cases import Case, load
from .conftest import Ranks

CASES = load("injected_twenty")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fault_is_named(ranks: Ranks, case: Case) -> None:
    run = ranks.check(case)
    ranks.check_still_usable(case, run.lost)


def test_all_twenty_are_here() -> None:
    assert len(CASES) == 20
