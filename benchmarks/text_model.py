"""Make the weights of the text model anew from labelled reports.

``python -m benchmarks.text_model REPORTS.jsonl [WEIGHTS.json]``: each line of the file is a report
with ``title``, ``text`` and ``symptoms``. Only plain words that stand in several reports are kept,
and only their weights leave this program, nothing of the reports.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ddt_notebook.diagnosis.text import lines, ranking, wording
from ddt_notebook.diagnosis.text import matches as sights

OUT = Path(wording.__file__).with_name("weights.json")
#: A word has to stand in so many reports.
REPORTS = 3
STRENGTH = 10.0
SMALLEST = 0.08
TEMPERATURES = np.arange(0.8, 4.01, 0.1)
#: The clues were written with some of these reports at hand: on others they are less right, by
#: so much of the logarithm of the odds.
CAUTION = 0.4
FOLDS = 5

Report = dict[str, Any]


def load(path: str | Path) -> list[Report]:
    """The reports, with title and text joined as ``whole``."""
    found = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    for report in found:
        report["whole"] = f"{report['title']}\n{report['text']}"
    return found


def fit(reports: list[Report]) -> dict[str, Any]:
    """Weights of words, in the form that the product reads."""
    vectors = TfidfVectorizer(
        tokenizer=wording.words, token_pattern=None, lowercase=False, min_df=REPORTS,
        sublinear_tf=True,
    )  # fmt: skip
    matrix = vectors.fit_transform([report["whole"] for report in reports])
    model = LogisticRegression(C=STRENGTH, max_iter=1000)
    model.fit(matrix, [report["symptoms"][0] for report in reports])
    vocabulary = {}
    for word, column in sorted(vectors.vocabulary_.items()):
        weights = {
            str(row): round(float(weight), 2)
            for row, weight in enumerate(model.coef_[:, column])
            if abs(weight) >= SMALLEST
        }
        if weights:
            idf = round(float(vectors.idf_[column]), 2)
            vocabulary[word] = {"idf": idf, "weights": weights}
    return {
        "symptoms": list(model.classes_),
        "intercept": [round(float(value), 2) for value in model.intercept_],
        "words": vocabulary,
        "temperature": 1.0,
        "calibration": {"offset": 0.0, "slope": 1.0},
    }


def held_out(reports: list[Report], seed: int = 0) -> list[dict[str, float]]:
    """The score of every symptom for each report, by a model that has not seen it."""
    order = np.random.default_rng(seed).permutation(len(reports))
    scores: dict[int, dict[str, float]] = {}
    for fold in range(FOLDS):
        test = set(order[fold::FOLDS].tolist())
        learnt = fit([report for index, report in enumerate(reports) if index not in test])
        for index in test:
            scores[index] = score(reports[index], learnt)
    return [scores[index] for index in range(len(reports))]


def score(report: Report, learnt: dict[str, Any]) -> dict[str, float]:
    """As the product scores it, with other weights."""
    text = sights.Text.of(lines.separate(enumerate(report["whole"].split("\n"), start=1)))
    return ranking.scored(sights.look(text), wording.evaluate(learnt, text.lower))


def temperature(reports: list[Report], scores: list[dict[str, float]]) -> float:
    """What makes the probabilities fit: the least surprise at the labels."""

    def surprise(value: float) -> float:
        total = 0.0
        for report, found in zip(reports, scores, strict=True):
            ranked = ranking.ranked(found, [], value)
            chance = sum(r.probability for r in ranked if r.symptom in report["symptoms"])
            total -= math.log(max(chance, 1e-9))
        return total

    return round(float(min(TEMPERATURES, key=surprise)), 2)


def calibration(
    reports: list[Report], scores: list[dict[str, float]], heat: float
) -> dict[str, float]:
    """From the probability of the first symptom to how often it was right."""
    firsts = [ranking.ranked(found, [], heat)[0] for found in scores]
    odds = [[math.log(r.probability / (1 - r.probability + 1e-9))] for r in firsts]
    right = [r.symptom in report["symptoms"] for r, report in zip(firsts, reports, strict=True)]
    model = LogisticRegression().fit(odds, right)
    offset = float(model.intercept_[0]) - CAUTION
    return {"offset": round(offset, 2), "slope": round(float(model.coef_[0, 0]), 2)}


def main() -> int:
    reports = load(sys.argv[1])
    learnt = fit(reports)
    scores = held_out(reports)
    learnt["temperature"] = temperature(reports, scores)
    learnt["calibration"] = calibration(reports, scores, learnt["temperature"])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    out.write_text(json.dumps(learnt, separators=(",", ":"), sort_keys=True) + "\n")
    print(f"{out}: {len(learnt['words'])} words, {out.stat().st_size / 1000:.0f} kB, "
          f"temperature {learnt['temperature']}, {learnt['calibration']}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
