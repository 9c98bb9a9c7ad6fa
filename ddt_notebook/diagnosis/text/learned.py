"""What the words of a text say about its symptom, learnt from reports whose cause is confirmed.

The catalogue and the clues recognise what somebody thought of. A report also has words that say
little each, such as "resume", "wandb" or "epoch"; together they tell apart what the patterns leave
open. The weights in ``words.json`` are those of a logistic regression, which
``python -m benchmarks.words`` trains on the reports in ``benchmarks/reports``; it prints what they
gain on reports that it was not trained on.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from .nearest import stem, subject_words

#: The share of these log-probabilities in the sum of the votes. With 0 instead of 0.8, the first
#: symptom is right in 84 instead of 89 of 100 reports that neither the weights nor entries know.
SHARE = 0.8
#: A smaller log-probability says no more against a symptom.
_LEAST = -6.0
#: Fewer known words say less: a single message is what the catalogue is for.
_WORDS = 9
#: Frameworks that 4 of the 624 reports are about. Of 120 reports of the study, most of which are
#: about them, the first symptom is right in 85 without these votes there, and in 83 with them.
_OTHERS = re.compile(r"\bhorovod|\bhvd\b|\bkeras\b|\btf\.|\btensorflow\.")
#: The weights are kept as integers.
SCALE = 10.0


@dataclass(frozen=True, slots=True)
class Model:
    """The weights.

    Attributes
    ----------
    codes
        The symptoms, in the order of the weights.
    bias
        The weight of each symptom for any text.
    rarity
        How rare a word is: the logarithm of the number of reports by those that have it.
    weights
        Of each word for each symptom, times `SCALE`.
    raised
        The vote for each symptom if a rank printed an error.
    """

    codes: tuple[str, ...]
    bias: tuple[float, ...]
    rarity: Mapping[str, float]
    weights: Mapping[str, tuple[int, ...]]
    raised: tuple[float, ...]


@functools.cache
def model() -> Model:
    """Return the weights that are part of the package."""
    file = resources.files(__package__).joinpath("words.json")
    kept = json.loads(file.read_text(encoding="utf-8"))
    return Model(
        tuple(kept["codes"]),
        tuple(kept["bias"]),
        {word: rarity for word, (rarity, *_) in kept["words"].items()},
        {word: tuple(weights) for word, (_, *weights) in kept["words"].items()},
        tuple(kept["raised"]),
    )


def votes(
    lower: str, raised: bool = False, weights: Model | None = None
) -> tuple[dict[str, float], str]:
    """Return a vote for each symptom, and the word that says most for the first of them.

    Parameters
    ----------
    lower
        A text in lower case. For one on TensorFlow or Horovod there are no votes.
    raised
        Whether a rank printed an error.
    weights
        Other weights than those of the package.
    """
    if _OTHERS.search(lower):
        return {}, ""
    by = weights or model()
    asked = {stem(word): word for word in reversed(subject_words(lower)) if stem(word) in by.rarity}
    if not asked:
        return {}, ""
    length = math.sqrt(sum(by.rarity[term] ** 2 for term in asked))
    parts = {
        term: [by.rarity[term] / length * weight / SCALE for weight in by.weights[term]]
        for term in asked
    }
    sums = [
        bias + sum(part[place] for part in parts.values()) for place, bias in enumerate(by.bias)
    ]
    highest = max(sums)
    total = highest + math.log(sum(math.exp(one - highest) for one in sums))
    first = sums.index(highest)
    telling = max(asked, key=lambda term: (parts[term][first], term))
    known = min(1.0, len(asked) / _WORDS)
    found = {
        code: known * (SHARE * (max(one - total, _LEAST) - _LEAST) + (error if raised else 0.0))
        for code, one, error in zip(by.codes, sums, by.raised, strict=True)
    }
    return found, asked[telling]
