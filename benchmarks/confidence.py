"""Fits how often a first finding is right to what it rests on, and measures whether that holds.

``python -m benchmarks.confidence`` diagnoses each report in ``benchmarks/reports`` with words that
were learnt from the other files, and without entries that were written from it. It fits the weights
of the evidence on all files but one, predicts for the findings of that one how often they are
right, and prints for each confidence how often they are. ``--write`` fits them to all files and
writes ``diagnosis/text/confidence.json``. Run it after ``python -m benchmarks.words --write``.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias
from unittest import mock

from sklearn.linear_model import LogisticRegression

from ddt_notebook.diagnosis.text import confidence, diagnose_text, learned

from . import words
from .advice import CALIBRATED, without_own_entries
from .common import ROOT

KEPT = ROOT / "ddt_notebook" / "diagnosis" / "text" / "confidence.json"
NAMES = [field.name for field in fields(confidence.Evidence)]
Evidences: TypeAlias = list[confidence.Evidence]
_BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.01)


@dataclass(frozen=True)
class Answer:
    """A first finding: its report's file, what it rests on, and whether it is right."""

    file: str
    evidence: confidence.Evidence
    may_be_certain: bool
    right: bool


def answers() -> list[Answer]:
    """The first findings of all reports."""
    found: list[Answer] = []
    for name, model in words.trained_on_others().items():
        for report in words.reports()[name]:
            rests: Evidences = []

            def recorded(*args: Any, to: Evidences = rests, **more: Any) -> confidence.Evidence:
                to.append(_EVIDENCE(*args, **more))
                return to[-1]

            with (
                mock.patch.object(learned, "model", lambda model=model: model),
                mock.patch.object(confidence, "evidence", recorded),
                # Each finding whose evidence may be certain is then called so.
                mock.patch.object(confidence, "CERTAIN", 0.0),
                without_own_entries(name, report),
            ):
                findings = diagnose_text(report["text"]).findings
            if findings:
                first = findings[0]
                right = first.symptom in report["symptoms"]
                found.append(Answer(name, rests[-1], first.confidence == "certain", right))
    return found


_EVIDENCE = confidence.evidence


def fit(chosen: Sequence[Answer]) -> dict[str, float]:
    """The weights of the evidence of these findings."""
    model = LogisticRegression(max_iter=1000).fit(
        [[float(getattr(one.evidence, name)) for name in NAMES] for one in chosen],
        [one.right for one in chosen],
    )
    weights = dict(zip(NAMES, model.coef_[0], strict=True)) | {"offset": model.intercept_[0]}
    return {name: round(float(weight), 2) for name, weight in weights.items()}


def left_out(every: Sequence[Answer]) -> list[tuple[Answer, float]]:
    """Each finding with the chance that weights fitted to the other files give it."""
    found = []
    for file in dict.fromkeys(one.file for one in every):
        weights = fit([one for one in every if one.file != file])
        with mock.patch.object(confidence, "weights", lambda weights=weights: weights):
            found += [(one, confidence.chance(one.evidence)) for one in every if one.file == file]
    return found


def level(one: Answer, chance: float) -> str:
    """The confidence of a finding."""
    if one.may_be_certain and chance >= confidence.CERTAIN:
        return "certain"
    return "likely" if chance >= confidence.LIKELY else "possible"


def main() -> int:
    every = answers()
    rows = left_out(every)
    print(f"{len(rows)} first findings, each with weights fitted to other files")
    for low, high in itertools.pairwise(_BINS):
        inside = [(one.right, chance) for one, chance in rows if low <= chance < high]
        if inside:
            said = statistics.mean(chance for _, chance in inside)
            right = statistics.mean(right for right, _ in inside)
            print(f"  {low:4.2f}: {len(inside):4}, said {said:4.0%}, right {right:4.0%}")
    held = True
    for name in ("certain", "likely", "possible"):
        own = [one.right for one, chance in rows if level(one, chance) == name]
        right = 100 * statistics.mean(own)
        held &= right >= CALIBRATED.get(name, 0)
        print(f"  of {len(own)} called {name}, right: {right:.0f} %")
    weights = fit(every)
    print(weights)
    if "--write" in sys.argv[1:]:
        KEPT.write_text(json.dumps(weights, indent=1) + "\n", encoding="utf-8")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
