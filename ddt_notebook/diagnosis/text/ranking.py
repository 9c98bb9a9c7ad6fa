"""From what is seen in a text to symptoms, each with a probability."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ddt_notebook.symptoms import loader as taxonomy

from . import wording
from .lines import Line
from .matches import Sight, Text, look

#: How much the study's counts weigh: a text is more than a guess.
_PRIOR = 0.15
#: How much the words weigh where clues speak, and where none does.
_WORDS_BESIDE_CLUES = 0.1
_WORDS_ALONE = 0.6
_CLUE = 1.1
_TOLD = 0.7


@dataclass(frozen=True, slots=True)
class Ranked:
    """A symptom, how likely it is, and what speaks for it, the strongest first."""

    symptom: str
    probability: float
    sights: tuple[Sight, ...]


def rank(lines: list[Line]) -> list[Ranked]:
    """All symptoms, the most likely first."""
    text = Text.of(lines)
    seen = look(text)
    learnt = wording.parameters()
    found = ranked(scored(seen, wording.log_odds(text.lower)), seen, learnt["temperature"])
    return calibrated(found, learnt["calibration"]) if told(seen) else found


def told(seen: list[Sight]) -> bool:
    """Whether a text says more than the circumstances."""
    return any(sight.kind != "context" and sight.strength >= _TOLD for sight in seen)


def scored(seen: list[Sight], words: dict[str, float]) -> dict[str, float]:
    """The evidence for each symptom, as a logarithm."""
    clear = any(sight.kind != "context" and sight.strength >= _CLUE for sight in seen)
    part = _WORDS_BESIDE_CLUES if clear else _WORDS_ALONE
    unknown = min(words.values(), default=0.0)
    scores = {
        symptom.code: _PRIOR * math.log(symptom.faults) + part * words.get(symptom.code, unknown)
        for symptom in taxonomy.symptoms()
    }
    for sight in seen:
        for code, vote in sight.votes.items():
            scores[code] += sight.weight * vote
    return scores


def ranked(scores: dict[str, float], seen: list[Sight], temperature: float) -> list[Ranked]:
    """Scores as probabilities."""
    highest = max(scores.values())
    parts = {code: math.exp((score - highest) / temperature) for code, score in scores.items()}
    total = sum(parts.values())
    found = []
    for code in sorted(parts, key=lambda code: -parts[code]):
        votes = [sight for sight in seen if sight.votes.get(code, 0.0) > 0]
        votes.sort(key=lambda sight: (-sight.weight * sight.votes[code], sight.line))
        found.append(Ranked(code, parts[code] / total, tuple(votes)))
    return found


def calibrated(found: list[Ranked], calibration: dict[str, float]) -> list[Ranked]:
    """The probability of the first as often as it was right; the others share the rest."""
    first, *others = found
    raw = min(max(first.probability, 1e-6), 1 - 1e-6)
    odds = calibration["offset"] + calibration["slope"] * math.log(raw / (1 - raw))
    chance = 1 / (1 + math.exp(-odds))
    part = (1 - chance) / (1 - raw)
    rest = [replace(other, probability=part * other.probability) for other in others]
    return [replace(first, probability=chance), *rest]
