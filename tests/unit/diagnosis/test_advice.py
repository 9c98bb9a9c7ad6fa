"""What to change, for each cause."""

from __future__ import annotations

from ddt_notebook.diagnosis import advice
from ddt_notebook.diagnosis.errors import patterns
from ddt_notebook.symptoms import loader as taxonomy


def test_every_cause_of_an_error_has_advice_from_the_study():
    for pattern in (*patterns.BY_TEXT_AND_PLACE, *patterns.BY_TYPE, *patterns.BROAD):
        if pattern.cause is None:
            continue
        assert pattern.cause in advice.causes()
        fixes = advice.fixes(pattern.symptom, pattern.cause)
        known = {fix.pattern for fix in taxonomy.fixes(pattern.symptom)}
        assert any(fix.pattern in known for fix in fixes), (pattern, fixes)


def test_patterns_are_those_of_the_study():
    known = {fix.pattern for s in taxonomy.symptoms() for fix in taxonomy.fixes(s.code)}
    used = {fix.pattern for cause in advice.causes() for fix in advice.fixes("D.1.11", cause)}
    assert used <= known
