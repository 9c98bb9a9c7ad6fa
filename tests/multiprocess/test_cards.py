"""Every card on real ranks: the broken cell gives its finding, the fixed one gives none."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults import card_ids

from .. import cards


@pytest.mark.parametrize("name", card_ids())
def test_broken_cell_gives_its_finding(name: str) -> None:
    one = cards.runnable(name)
    report = ddt.diagnose(cards.run_broken(one))
    assert not cards.complaints_broken(one, report), str(report)


@pytest.mark.parametrize("name", card_ids())
def test_fixed_cell_is_silent_and_does_what_was_wanted(name: str) -> None:
    one = cards.runnable(name)
    run, proof = cards.run_fixed(one)
    assert not cards.complaints_fixed(one, run, proof), str(ddt.diagnose(run))
