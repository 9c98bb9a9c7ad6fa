"""The weights of words are those that the reports give; the confidence is what they deserve."""

from __future__ import annotations

from benchmarks import words
from benchmarks.advice import CALIBRATED, judge
from ddt_notebook.diagnosis.text import learned


def test_the_weights_of_the_package_are_trained_on_all_reports_but_those_kept_apart():
    reports = words.reports()
    trained = words.train(
        [one for name, many in reports.items() if name != words.APART for one in many]
    )
    kept = learned.model()
    assert kept.codes == trained.codes
    # Words of known messages do not count, so an entry that was added since changes a few.
    both = kept.weights.keys() & trained.weights.keys()
    assert len(both) > 0.95 * len(kept.weights.keys() | trained.weights.keys())
    # Linear algebra rounds differently on another processor.
    near = [
        max(abs(a - b) for a, b in zip(trained.weights[word], kept.weights[word], strict=True)) <= 1
        for word in both
    ]
    assert sum(near) > 0.8 * len(near)
    assert max(abs(a - b) for a, b in zip(trained.raised, kept.raised, strict=True)) < 0.2


def test_the_weights_tell_the_symptoms_of_reports_that_they_were_not_trained_on():
    """Guessing the most frequent symptom would be right in a fifth of them."""
    own = words.reports()[words.APART]
    right = 0
    for report in own:
        votes, _ = learned.votes(report["text"].lower())
        right += max(votes, key=lambda code: votes[code]) in report["symptoms"]
    assert right > len(own) / 2


def test_confident_answers_are_right_as_often_as_promised():
    own = [judge(report) for report in words.reports()[words.APART]]
    for name, least in CALIBRATED.items():
        called = [verdict["first"] for verdict in own if verdict[name]]
        assert len(called) > 2
        assert 100 * sum(called) / len(called) >= least
