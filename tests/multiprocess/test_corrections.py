"""Corrected cells on real ranks: the correction of a card's finding removes the finding."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis.corrections import CORRECTED
from ddt_notebook.faults import card, card_ids

from .. import cards


def test_every_correction_belongs_to_a_card() -> None:
    assert set(card_ids()) >= CORRECTED


@pytest.mark.parametrize("name", sorted(CORRECTED & set(card_ids())))
def test_the_corrected_cell_is_without_the_finding(name: str) -> None:
    one = card(name)
    broken = ddt.diagnose(cards.run_broken(one))
    made = broken.correction
    assert made is not None, str(broken)
    again = cards.run_cell(one, made.source)
    after = ddt.diagnose(again)
    assert again.ok, again.errors
    assert name not in [f.cause for f in (*after.findings, *after.hints)], str(after)
