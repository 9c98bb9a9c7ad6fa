"""Values that are read too early or on the wrong rank, and legal code that looks alike."""

from __future__ import annotations

import pytest

from ..fixtures.cases import Case, load
from .conftest import Ranks


@pytest.mark.parametrize("case", load("reading"), ids=lambda case: case.name)
def test_reading_of_results(ranks: Ranks, case: Case) -> None:
    run = ranks.check(case)
    assert run.ok
