"""A small statistical model of words beside the clues: what it says where no clue speaks.

The weights are those of a logistic regression on words of reports that carry the study's labels.
``benchmarks/text_model.py`` makes the file anew.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections import Counter
from importlib import resources
from typing import Any

_WORD = re.compile(r"[a-z_]{3,}")
#: Words read of a text: a report has fewer, and of a log only the beginning is prose.
_WORDS = 4000


def words(text: str) -> list[str]:
    """The words of a text, and each pair of neighbours."""
    plain = _WORD.findall(text.lower())[:_WORDS]
    return plain + [f"{first} {second}" for first, second in itertools.pairwise(plain)]


@functools.cache
def parameters() -> dict[str, Any]:
    """What was learnt: weights of words, and the temperature of the ranking."""
    path = resources.files(__package__).joinpath("weights.json")
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def log_odds(text: str) -> dict[str, float]:
    """For each symptom that the model knows, the logarithm of its probability."""
    return evaluate(parameters(), text)


def evaluate(learnt: dict[str, Any], text: str) -> dict[str, float]:
    """As `log_odds`, with other parameters."""
    vocabulary, codes = learnt["words"], learnt["symptoms"]
    counts = Counter(word for word in words(text) if word in vocabulary)
    values = {
        word: (1 + math.log(number)) * vocabulary[word]["idf"] for word, number in counts.items()
    }
    norm = math.sqrt(sum(value * value for value in values.values())) or 1.0
    scores = list(learnt["intercept"])
    for word, value in values.items():
        for index, weight in vocabulary[word]["weights"].items():
            scores[int(index)] += value / norm * weight
    highest = max(scores)
    total = highest + math.log(sum(math.exp(score - highest) for score in scores))
    return {code: score - total for code, score in zip(codes, scores, strict=True)}
