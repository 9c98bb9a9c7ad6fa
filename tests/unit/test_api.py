"""The public functions refuse what they cannot be asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ddt_notebook as ddt


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (ddt.explain, "explain takes a text, not NoneType"),
        (ddt.lint, "lint takes a text, not NoneType"),
        (ddt.diagnose_text, "diagnose_text takes a text, not NoneType"),
    ],
)
def test_no_text(function: Callable[[object], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        function(None)


def test_a_list_of_cards_can_be_read() -> None:
    cards = ddt.fault_cards()
    assert isinstance(cards, list)
    (shown,) = [repr(card) for card in cards if card.id == "loop-ends-by-clock"]
    assert shown.startswith("<FaultCard loop-ends-by-clock: D.2.1 ")
    assert all("\n" not in repr(card) and len(repr(card)) < 200 for card in cards)
