"""What to change, for each cause: our advice beside the study's fix pattern and its frequency."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources

from ddt_notebook import faults
from ddt_notebook.model import Finding, Fix
from ddt_notebook.model.finding import Confidence
from ddt_notebook.symptoms import loader as taxonomy

#: Causes of exceptions that the study has no class for: what is wrong, they say themselves.
NAME_NOT_DEFINED, SYNTAX = "name-not-defined", "syntax"


@cache
def _advice() -> dict[str, tuple[tuple[str, str], ...]]:
    """Cause -> (pattern, advice), the one that fits first."""
    text = resources.files(__package__).joinpath("advice.toml").read_text(encoding="utf-8")
    return {
        cause: tuple((fix["pattern"], fix["advice"]) for fix in fixes)
        for cause, fixes in tomllib.loads(text).items()
    }


def fixes(symptom: str, cause: str | None, op: str = "the collective", rank: int = 0) -> list[Fix]:
    """What to change, the one that fits the cause first."""
    shares = {known.pattern: known.share for known in taxonomy.fixes(symptom)}
    chosen = (
        _of_card(cause) if cause and cause in faults.card_ids() else _advice()[cause or "exception"]
    )
    return [
        Fix(pattern=pattern, advice=advice.format(op=op, rank=rank), share=shares.get(pattern, 0.0))
        for pattern, advice in chosen
    ]


def _of_card(cause: str) -> tuple[tuple[str, str], ...]:
    return tuple((advice.pattern, advice.text) for advice in faults.card(cause).fixes)


def causes() -> frozenset[str]:
    """Ids of all causes that findings can name."""
    return frozenset(_advice()) | frozenset(faults.card_ids())


def conclude(
    symptom: str,
    title: str,
    *,
    cause: str | None = None,
    ranks: Iterable[int] = (),
    waiting: Iterable[int] = (),
    where: dict[int, str] | None = None,
    evidence: Iterable[str] = (),
    confidence: Confidence = "certain",
    op: str = "the collective",
) -> Finding:
    """A finding, with the name of its stage and what to change filled in."""
    culprits = sorted(ranks)
    return Finding(
        symptom=symptom,
        stage=taxonomy.symptom(symptom).stage_title,
        title=title,
        cause=cause,
        ranks=culprits,
        waiting=sorted(waiting),
        where=where or {},
        evidence=list(dict.fromkeys(evidence)),
        confidence=confidence,
        fixes=fixes(symptom, cause, op, culprits[0] if culprits else 0),
    )
