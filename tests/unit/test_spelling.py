"""Names that are probably misspelt."""

from __future__ import annotations

import pytest

from ddt_notebook.spelling import similar_names


@pytest.mark.parametrize(
    ("name", "known", "similar"),
    [
        ("losss", ["model", "loss"], ["loss"]),
        ("lsso", ["model", "loss"], []),
        ("aplha", ["alpha", "beta"], ["alpha"]),
        ("Own-Clok", ["own-clock", "shared-slice"], ["own-clock"]),
        ("model", ["Model_2", "modell", "x"], ["modell", "Model_2"]),
        ("x", [], []),
    ],
)
def test_names_with_one_slip_are_similar(name: str, known: list[str], similar: list[str]) -> None:
    assert similar_names(name, known, most=3) == similar
