"""Which views show which faults."""

from __future__ import annotations

from collections import Counter

import pytest

from ddt_notebook.diagnosis import showing
from ddt_notebook.faults import card_ids, cards
from ddt_notebook.symptoms import loader as taxonomy
from ddt_notebook.widgets.looking import VIEWS


def test_every_fault_stands_in_the_table_once() -> None:
    listed = Counter(cause for causes in showing.SHOWN.values() for cause in causes.split())
    assert set(listed) == set(card_ids())
    assert set(listed.values()) == {1}


def test_only_views_that_there_are_and_each_for_some_fault() -> None:
    named = [view for views in showing.SHOWN for view in views]
    assert set(named) == set(VIEWS)
    assert all(len(set(views)) == len(views) for views in showing.SHOWN)


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.id)
def test_what_a_hang_or_a_package_shows(card: object) -> None:
    views = showing.of_cause(card.id)  # type: ignore[attr-defined]
    stage, symptoms = card.stage, card.symptoms  # type: ignore[attr-defined]
    if "D.2.1" in symptoms:
        assert "stacks" in views, "where each rank stands is what a hang is about"
    if stage == "package build & import":
        assert views == (), "nothing has run on ranks"


def test_a_symptom_is_shown_by_what_shows_its_faults() -> None:
    assert showing.of_symptom("D.2.1") == ("stacks", "collectives")
    assert showing.of_symptom("C.7") == ("partition",)
    assert showing.of_symptom("A.1") == ()
    assert all(set(showing.of_symptom(s.code)) <= set(VIEWS) for s in taxonomy.symptoms())
    assert showing.of_cause("no-such-fault") == ()
