"""Which views show which faults."""

from __future__ import annotations

import pytest

from ddt_notebook.faults import FaultCard, cards, views
from ddt_notebook.symptoms import loader as taxonomy
from ddt_notebook.views.registry import VIEWS


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.id)
def test_a_card_names_views_that_exist_and_each_once(card: FaultCard) -> None:
    assert set(card.views) <= set(VIEWS)
    assert len(set(card.views)) == len(card.views)
    if "D.2.1" in card.symptoms:
        assert "stacks" in card.views, "where each rank stands is what a hang is about"
    if card.stage == "package build & import":
        assert card.views == (), "nothing has run on ranks"


def test_a_symptom_is_shown_by_the_views_that_show_its_faults() -> None:
    assert views.of_symptom("D.2.1") == ("stacks", "collectives")
    assert views.of_symptom("C.7") == ("partition",)
    assert views.of_symptom("A.1") == ()
    assert all(set(views.of_symptom(s.code)) <= set(VIEWS) for s in taxonomy.symptoms())


def test_the_views_of_a_card_are_those_it_names() -> None:
    assert views.of_card("uneven-iterations") == ("partition", "stacks")
    assert views.of_card("no-such-fault") == ()
