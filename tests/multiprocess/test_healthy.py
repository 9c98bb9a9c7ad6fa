"""Programs without a fault: silence."""

from __future__ import annotations

import pytest

from ..fixtures.cases import Case, load
from .conftest import Ranks

CASES = [
    pytest.param(case, marks=[pytest.mark.slow] if case.slow else [], id=case.name)
    for case in load("healthy")
]
pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("case", CASES)
def test_healthy_program_is_silent(ranks: Ranks, case: Case) -> None:
    run = ranks.check(case)
    assert run.ok
    ranks.check_still_usable(case)
