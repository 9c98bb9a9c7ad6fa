"""The weights of words are those that the reports give, and they gain on reports left out."""

from __future__ import annotations

from benchmarks import words
from ddt_notebook.diagnosis.text import learned


def test_the_weights_of_the_package_are_trained_on_all_reports_but_those_kept_apart():
    reports = words.reports()
    trained = words.train(
        [one for name, many in reports.items() if name != words.APART for one in many]
    )
    kept = learned.model()
    assert kept.codes == trained.codes
    assert kept.weights.keys() == trained.weights.keys()
    # Linear algebra rounds differently on another processor.
    for word, weights in trained.weights.items():
        assert max(abs(a - b) for a, b in zip(weights, kept.weights[word], strict=True)) <= 1, word


def test_the_weights_tell_the_symptoms_of_reports_that_they_were_not_trained_on():
    """Guessing the most frequent symptom would be right in a fifth of them."""
    own = words.reports()[words.APART]
    right = 0
    for report in own:
        votes, _ = learned.votes(report["text"].lower())
        right += max(votes, key=lambda code: votes[code]) in report["symptoms"]
    assert right > len(own) / 2
