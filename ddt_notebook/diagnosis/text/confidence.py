"""How often a first finding that rests on such evidence is right.

A message with one meaning names the symptom almost always. Words that a person used do so less
often, and seldom if the text also has an error that nothing explains. The weights in
``confidence.json`` are those of a logistic regression from this evidence to whether the finding
was right. ``python -m benchmarks.confidence`` fits them to the reports in ``benchmarks/reports``,
each diagnosed with words that were learnt from other files, and prints how often such findings are
right.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

from ddt_notebook.symptoms import loader as taxonomy

if TYPE_CHECKING:
    from .matches import Match
    from .ranking import Ranked

#: A finding is certain, or likely, from this chance of being right on. The limits are those that
#: ``benchmarks/advice.py`` holds, and for likely 5 points more: texts from elsewhere are harder.
CERTAIN, LIKELY = 0.95, 0.8
#: A weaker vote is no evidence of its own.
_EVIDENCE = 1.0
_LEAST, _MOST = 0.001, 0.999
#: The symptom of a stage for what has no name in the study.
_RESTS = ("others",)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a first finding rests on.

    Attributes
    ----------
    odds
        Logarithm of the odds that the votes give it.
    one_meaning
        Whether a message of the catalogue with this symptom only is among it.
    several_meanings
        Whether a message with several symptoms is among it.
    words_only
        Whether nothing is among it but what was being done and single words.
    near
        Whether it is the nearest entry to a text in which nothing is known.
    unexplained
        Whether a rank printed an error, and the catalogue has no message in the text.
    lead
        The vote of the learnt words for the symptom less that for the best other one.
    """

    odds: float
    one_meaning: float
    several_meanings: float
    words_only: float
    near: float
    unexplained: float
    lead: float


def evidence(ranked: Ranked, found: Sequence[Match], *, raises: bool) -> Evidence:
    """Return what the first of the ranked symptoms rests on.

    Parameters
    ----------
    ranked
        The first symptom.
    found
        All that was found in the text.
    raises
        Whether a rank printed an error.
    """
    code = ranked.symptom
    strong = [
        match
        for match in ranked.matches
        if match.kind != "context" and match.weight * match.votes[code] >= _EVIDENCE
    ]
    printed = [match for match in strong if match.message and match.kind in ("error", "effect")]
    known = any(match.message and match.kind in ("error", "effect") for match in found)
    near = any(match.near for match in ranked.matches)
    words = next((match.votes for match in found if match.learned), None)
    chance = min(max(ranked.probability, _LEAST), _MOST)
    return Evidence(
        odds=math.log(chance / (1 - chance)),
        one_meaning=any(is_proof(match, code) for match in printed),
        several_meanings=any(not is_proof(match, code) for match in printed),
        words_only=not strong and not near,
        near=near,
        unexplained=raises and not known,
        lead=_lead(code, words) if words else 0.0,
    )


def _lead(code: str, votes: Mapping[str, float]) -> float:
    return votes[code] - max(vote for other, vote in votes.items() if other != code)


def is_proof(match: Match, symptom: str) -> bool:
    """Whether a match alone shows the symptom: an error that means one thing only.

    A message shows nothing for certain if it belongs to several symptoms, or to the rest of a stage
    that has no name.
    """
    if match.kind != "error" or match.weight < 1.0 or taxonomy.symptom(symptom).title in _RESTS:
        return False
    entry = match.message
    return entry is None or (not entry.general and entry.symptoms == (symptom,))


def chance(of: Evidence) -> float:
    """Return how often findings on such evidence are right."""
    by = weights()
    odds = by["offset"] + sum(by[name] * float(getattr(of, name)) for name in Evidence.__slots__)
    return 1 / (1 + math.exp(-odds))


def calibrated(ranked: Sequence[Ranked], of: Evidence) -> list[Ranked]:
    """Replace the first probability by how often it is right; the others share the rest."""
    first, *others = ranked
    own = chance(of)
    part = (1 - own) / max(1 - first.probability, 1e-9)
    return [
        replace(first, probability=own),
        *(replace(one, probability=part * one.probability) for one in others),
    ]


@functools.cache
def weights() -> dict[str, float]:
    """Return the weights that are part of the package."""
    file = resources.files(__package__).joinpath("confidence.json")
    kept: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return kept
