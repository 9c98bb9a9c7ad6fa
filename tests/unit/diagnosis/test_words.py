from __future__ import annotations

import pytest

from ddt_notebook.diagnosis import advice, errors, words
from ddt_notebook.symptoms import loader as taxonomy


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([1], "rank 1"),
        ([0, 1], "ranks 0, 1"),
        ([0, 2, 3], "ranks 0, 2, 3"),
        ([3, 2, 1, 0], "ranks 0-3"),
        ([0, 1, 2, 5, 7, 8, 9], "ranks 0-2, 5, 7-9"),
    ],
)
def test_ranks(ranks: list[int], text: str):
    assert words.ranks_text(ranks) == text


def test_numbers():
    assert words.seconds(2.13) == "2.1 s"
    assert words.seconds(12.3) == "12 s"
    assert words.count(1, "group") == "1 group"
    assert words.count(2000, "call") == "2,000 calls"
    assert words.listing(["a", "b", "c"]) == "a, b and c"


def test_every_cause_of_an_error_has_advice_from_the_study():
    for pattern in errors.PATTERNS:
        if pattern.cause is None:
            continue
        assert pattern.cause in advice.causes()
        first = advice.fixes(pattern.symptom, pattern.cause)[0]
        known = {fix.pattern for fix in taxonomy.fixes(pattern.symptom)}
        assert first.pattern in known, (pattern, first)


def test_patterns_are_those_of_the_study():
    known = {fix.pattern for s in taxonomy.symptoms() for fix in taxonomy.fixes(s.code)}
    used = {fix.pattern for cause in advice.causes() for fix in advice.fixes("D.1.11", cause)}
    assert used <= known
