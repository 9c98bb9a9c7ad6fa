"""Loads the CSV files as typed, immutable objects."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from ddt_notebook.model.errors import DdtError
from ddt_notebook.spelling import similar_names

_STAGE_TITLES = {
    "A": "package build & import",
    "B": "communication setup",
    "C": "data & model preparation",
    "D": "training & evaluation",
}


class UnknownSymptom(DdtError, ValueError):
    """A code that is not in the taxonomy; the text names similar codes."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the four stages of a training job.

    Attributes
    ----------
    code
        ``"A"`` to ``"D"``.
    title
        Its name, such as ``"training & evaluation"``.
    faults, distributed_faults
        How many faults of the study occurred in it, and how many of them occur only in distributed
        training.
    """

    code: str
    title: str
    faults: int
    distributed_faults: int


@dataclass(frozen=True, slots=True)
class Symptom:
    """How a fault becomes visible.

    Attributes
    ----------
    code
        Its code, such as ``"D.2.1"``.
    title
        The study's name for it, such as ``"hang"``. Names repeat across stages; codes do not.
    stage, stage_title
        Letter and name of its stage.
    faults
        How many faults of the study showed it.
    distributed_faults
        How many of those occur only in distributed training. Fix patterns were labelled for these.
    """

    code: str
    title: str
    stage: str
    stage_title: str
    faults: int
    distributed_faults: int


@dataclass(frozen=True, slots=True)
class FixPattern:
    """A kind of change that repaired faults with one symptom.

    Attributes
    ----------
    pattern
        The study's name for it, such as ``"fix behavior logic"``.
    faults
        How many faults it repaired.
    share
        ``faults`` as a part of the symptom's ``distributed_faults``, 0 to 1. Some faults needed two
        kinds of change, so the shares of a symptom may add up to a little more than 1.
    """

    pattern: str
    faults: int
    share: float


@dataclass(frozen=True, slots=True)
class HowToTopic:
    """A topic that developers asked about, without a fault; ``sub_topic`` may be empty."""

    topic: str
    sub_topic: str
    questions: int


def stages() -> tuple[Stage, ...]:
    """The four stages, in the order in which a job passes them."""
    return tuple(
        Stage(
            code,
            title,
            sum(s.faults for s in symptoms() if s.stage == code),
            sum(s.distributed_faults for s in symptoms() if s.stage == code),
        )
        for code, title in _STAGE_TITLES.items()
    )


@functools.cache
def symptoms() -> tuple[Symptom, ...]:
    """All thirty symptoms, by stage and number."""
    return tuple(
        Symptom(
            code=row["code"],
            title=row["symptom"],
            stage=row["stage"],
            stage_title=_STAGE_TITLES[row["stage"]],
            faults=int(row["faults"]),
            distributed_faults=int(row["distributed_specific"]),
        )
        for row in _rows("symptoms.csv")
    )


def symptom(code: str) -> Symptom:
    """The symptom with this code; letter case and surrounding blanks do not matter.

    Raises
    ------
    UnknownSymptom
        If there is none.
    """
    wanted = code.strip().upper()
    by_code = {s.code: s for s in symptoms()}
    if wanted in by_code:
        return by_code[wanted]
    near = [known for known in by_code if wanted and known.startswith(f"{wanted}.")]
    near = near or similar_names(wanted, by_code, most=3)
    known = (
        f"near it: {', '.join(near)}" if near else f"codes run from A.1 to {symptoms()[-1].code}"
    )
    raise UnknownSymptom(f"no symptom has the code {code.strip()!r}; {known}")


def fixes(code: str) -> tuple[FixPattern, ...]:
    """The fix patterns of a symptom, most frequent first.

    Raises
    ------
    UnknownSymptom
        If the code is not in the taxonomy.
    """
    return _fixes_by_symptom()[symptom(code).code]


@functools.cache
def fix_patterns() -> frozenset[str]:
    """The names of all fix patterns, without ``"other"``."""
    return frozenset(p.pattern for s in symptoms() for p in fixes(s.code)) - {"other"}


@functools.cache
def howto_topics() -> tuple[HowToTopic, ...]:
    """What developers asked how to do."""
    return tuple(
        HowToTopic(row["topic"], row["sub_topic"], int(row["questions"]))
        for row in _rows("howto.csv")
    )


@functools.cache
def _fixes_by_symptom() -> dict[str, tuple[FixPattern, ...]]:
    found: dict[str, list[FixPattern]] = {s.code: [] for s in symptoms()}
    for row in _rows("fixes.csv"):
        faults = int(row["faults"])
        share = faults / symptom(row["code"]).distributed_faults
        found[row["code"]].append(FixPattern(row["fix_pattern"], faults, share))
    return {
        code: tuple(sorted(patterns, key=lambda p: -p.faults)) for code, patterns in found.items()
    }


def _rows(name: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
