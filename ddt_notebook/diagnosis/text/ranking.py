"""Ranks the symptoms by the matches in a text, and gives each a probability.

Votes are logarithms of odds. A softmax turns their sums into probabilities. The constants were
fitted to 120 reports with labels of the study, which are not in the repository.
``python -m benchmarks.text_diagnosis REPORTS.jsonl`` fits them again.
`confidence` returns how often the first symptom is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddt_notebook.symptoms import loader as taxonomy

from .matches import Match

#: Weight of the logarithm of a symptom's frequency in the study, relative to the votes. Any value
#: from 0 to 0.3 gives the same accuracy; with 1, which ignores that reports are not drawn like the
#: study's, the first symptom is right in 71 instead of 73 of 100 reports.
_PRIOR = 0.15
#: The softmax divides the sums by this. The least cross-entropy between 0.5 and 5 is at 0.8.
TEMPERATURE = 0.8
#: A weaker vote does not decide. The limit is above the vote for an exception of unknown meaning,
#: which occurs in many logs of healthy runs.
_SPECIFIC = 0.7


@dataclass(frozen=True, slots=True)
class Ranked:
    """A symptom with its probability.

    Attributes
    ----------
    symptom
        Its code.
    probability
        0 to 1.
    matches
        The matches that support it, the strongest first.
    """

    symptom: str
    probability: float
    matches: tuple[Match, ...]


def rank(matches: list[Match]) -> list[Ranked]:
    """Return all symptoms, the most likely first."""
    return ranked(scored(matches), matches, TEMPERATURE)


def rank_near(matches: list[Match], words: list[Match]) -> list[Ranked]:
    """Return the symptoms of entries that are near to a text, the most likely first.

    Parameters
    ----------
    matches
        The entries that are near.
    words
        What the words of the text say.
    """
    shares: dict[str, float] = {}
    for match in matches:
        shares |= match.votes
    odds = {
        code: share * math.exp(sum(match.votes[code] for match in words))
        for code, share in shares.items()
    }
    total = sum(odds.values())
    return [
        Ranked(code, odds[code] / total, tuple(match for match in matches if code in match.votes))
        for code in sorted(odds, key=lambda code: -odds[code])
    ]


def is_specific(matches: list[Match]) -> bool:
    """Whether a text shows more than what was being done."""
    return any(match.kind != "context" and match.strength >= _SPECIFIC for match in matches)


def scored(matches: list[Match]) -> dict[str, float]:
    """Return the sum of the votes for each symptom."""
    scores = {symptom.code: _PRIOR * math.log(symptom.faults) for symptom in taxonomy.symptoms()}
    for match in matches:
        for code, vote in match.votes.items():
            scores[code] += match.weight * vote
    return scores


def ranked(scores: dict[str, float], matches: list[Match], temperature: float) -> list[Ranked]:
    """Return the symptoms with the probabilities that a softmax gives them."""
    highest = max(scores.values())
    parts = {code: math.exp((score - highest) / temperature) for code, score in scores.items()}
    total = sum(parts.values())
    found = []
    for code in sorted(parts, key=lambda code: -parts[code]):
        votes = [match for match in matches if match.votes.get(code, 0.0) > 0]
        votes.sort(key=lambda match: (-match.weight * match.votes[code], match.line))
        found.append(Ranked(code, parts[code] / total, tuple(votes)))
    return found
