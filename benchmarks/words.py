"""Trains the weights of words from the reports, and measures what they gain.

``python -m benchmarks.words`` leaves out one file of reports at a time, trains on the others, and
prints how often the diagnosis of the reports in it is right without and with the weights; entries
that were written from a report do not count for it. ``half_n.toml`` is never trained on.
``--write`` trains on all other files and writes ``diagnosis/text/words.json``.
"""

from __future__ import annotations

import functools
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import numpy as np
import numpy.typing as npt

from ddt_notebook.diagnosis.text import learned, matches
from ddt_notebook.diagnosis.text.lines import separate
from ddt_notebook.diagnosis.text.nearest import stem, subject_words
from ddt_notebook.symptoms import loader as taxonomy

from .advice import FOLDER, Report, Rows, judge, shares, without_own_entries
from .common import ROOT

KEPT = ROOT / "ddt_notebook" / "diagnosis" / "text" / "words.json"
#: Never trained on.
APART = "half_n"
#: A word counts if so many reports have it. With 3 instead of 4, or with pairs of words, the first
#: symptom of left-out reports is right as often or less.
_REPORTS = 4
#: The weight of the sum of squares, and how the loss is made small.
_PENALTY, _ROUNDS, _STEP, _MOMENTUM = 3e-4, 250, 2.0, 0.9
#: For the symptoms of reports with an error: reports assumed to be like all others, and the most
#: that an error says for or against one.
_UNSEEN, _MOST = 5.0, 3.0

Labels: TypeAlias = npt.NDArray[np.float64]


def reports() -> dict[str, list[Report]]:
    """The reports of each file, by its name."""
    return {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))["report"]
        for path in sorted(FOLDER.glob("*.toml"))
    }


@functools.cache
def _read(text: str) -> tuple[frozenset[str], bool]:
    """The words of a text outside of known messages, and whether a rank printed an error."""
    lines = matches.Text.of(separate(enumerate(text.splitlines(), start=1)))
    found = matches.find(lines)
    rest = matches.unexplained(lines, [one.message for one in found if one.message is not None])
    return frozenset(map(stem, subject_words(rest))), matches.raises_first(lines, found)


def train(chosen: Sequence[Report]) -> learned.Model:
    """Return the weights that fit these reports."""
    codes = [symptom.code for symptom in taxonomy.symptoms()]
    has = [_read(one["text"])[0] for one in chosen]
    times = Counter(word for words in has for word in words)
    words = sorted(word for word, number in times.items() if number >= _REPORTS)
    rarity = np.log(len(chosen) / np.array([times[word] for word in words]))
    x = np.array([[word in own for word in words] for own in has]) * rarity
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    y = np.zeros((len(chosen), len(codes)))
    for row, one in zip(y, chosen, strict=True):
        # Of several symptoms that are right, the first one is the most likely.
        for number, code in enumerate(one["symptoms"], start=1):
            row[codes.index(code)] = 1 / number
        row /= row.sum()
    weights = np.zeros((len(words), len(codes)))
    bias = np.log(y.mean(axis=0) + 1e-3)
    speed = np.zeros_like(weights)
    for _ in range(_ROUNDS):
        sums = x @ weights + bias
        likely = np.exp(sums - sums.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        wrong = likely - y
        speed = _MOMENTUM * speed - _STEP * (x.T @ wrong / len(chosen) + _PENALTY * weights)
        weights += speed
        bias -= 0.5 * wrong.mean(axis=0)
    whole = np.rint(weights * learned.SCALE).astype(int)
    return learned.Model(
        tuple(codes),
        tuple(round(float(one), 2) for one in bias),
        {word: round(float(one), 2) for word, one in zip(words, rarity, strict=True)},
        {word: tuple(map(int, row)) for word, row in zip(words, whole, strict=True)},
        _with_errors(y, [_read(one["text"])[1] for one in chosen]),
    )


def _with_errors(labels: Labels, raised: list[bool]) -> tuple[float, ...]:
    """How much likelier each symptom is among the reports in which a rank printed an error."""
    own, every = labels[raised], labels.mean(axis=0)
    share = (own.sum(axis=0) + _UNSEEN * every) / (len(own) + _UNSEEN)
    likelier = np.log((share + 1e-9) / (every + 1e-9))
    return tuple(round(float(one), 2) for one in np.clip(likelier, -_MOST, _MOST))


def written(model: learned.Model) -> str:
    """The weights as JSON, one word on a line."""
    lines = [
        f"  {json.dumps(word)}: {json.dumps([model.rarity[word], *own], separators=(',', ':'))}"
        for word, own in model.weights.items()
    ]
    head = f'"codes": {json.dumps(model.codes)},\n"bias": {json.dumps(model.bias)},\n'
    head += f'"raised": {json.dumps(model.raised)},\n'
    return "{\n" + head + '"words": {\n' + ",\n".join(lines) + "\n}\n}\n"


def trained_on_others() -> dict[str, learned.Model]:
    """For each file, the weights that fit the reports of the other ones."""
    every = reports()
    return {
        name: train(
            [one for other, many in every.items() if other not in (name, APART) for one in many]
        )
        for name in every
    }


def left_out() -> tuple[Rows, Rows]:
    """The verdicts without and with the weights, each trained on the other files."""
    every = reports()
    before: Rows = []
    after: Rows = []
    for name, trained in trained_on_others().items():
        for rows, model in ((before, _NONE), (after, trained)):
            with mock.patch.object(learned, "model", lambda model=model: model):
                for one in every[name]:
                    with without_own_entries(name, one):
                        rows.append(({**one, "file": name}, judge(one)))
    return before, after


_NONE = learned.Model((), (), {}, {}, ())


def main() -> int:
    if "--write" in sys.argv[1:]:
        chosen = [one for name, many in reports().items() if name != APART for one in many]
        KEPT.write_text(written(train(chosen)), encoding="utf-8")
        print(f"{KEPT.name}: {len(chosen)} reports, {Path(KEPT).stat().st_size / 1000:.0f} kB")
        return 0
    for title, rows in zip(("without", "with"), left_out(), strict=True):
        print(f"{title} the weights, {len(rows)} reports")
        for name, share in shares(rows).items():
            print(f"  {name:18} {share:5.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
