"""What to change, for each cause: our advice beside the study's fix pattern and its frequency."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from ddt_notebook import faults
from ddt_notebook.model import Fact, Finding, Fix, Place
from ddt_notebook.model.finding import Confidence, Values
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


def fixes(
    symptom: str,
    cause: str | None,
    op: str = "the collective",
    rank: int = 0,
    *,
    case: str = "",
    slots: Mapping[str, str] | None = None,
) -> list[Fix]:
    """What to change, the one that fits the cause first.

    Parameters
    ----------
    op, rank
        What stands for ``{op}`` and ``{rank}`` in the advice.
    case, slots
        Where ``advice.toml`` knows more of a case of this cause: its name, and what else stands in
        the braces of its advice.
    """
    shares = {known.pattern: known.share for known in taxonomy.fixes(symptom)}
    if cause and cause in faults.card_ids():
        chosen = _of_card(cause)
    else:
        chosen = _advice()[f"{cause}/{case}" if case else cause or "exception"]
    filled = {"op": op, "rank": rank, **(slots or {})}
    return [
        Fix(pattern=pattern, advice=advice.format(**filled), share=shares.get(pattern, 0.0))
        for pattern, advice in chosen
    ]


def _of_card(cause: str) -> tuple[tuple[str, str], ...]:
    return tuple((advice.pattern, advice.text) for advice in faults.card(cause).fixes)


def causes() -> frozenset[str]:
    """Ids of all causes that findings can name."""
    own = (name for name in _advice() if "/" not in name)
    return frozenset(own) | frozenset(faults.card_ids())


def conclude(
    symptom: str,
    kind: str,
    *,
    cause: str | None = None,
    ranks: Iterable[int] = (),
    waiting: Iterable[int] = (),
    values: Values | None = None,
    places: Mapping[int, Place | None] | None = None,
    facts: Iterable[Fact] = (),
    confidence: Confidence = "certain",
    op: str = "the collective",
    case: str = "",
    slots: Mapping[str, str] | None = None,
) -> Finding:
    """A finding, with the name of its stage and what to change filled in.

    Parameters
    ----------
    kind
        What happened: an entry of `wording.TITLES`, which renders it from the other arguments.
    places
        Ranks whose line is not known are left out.
    facts
        Each an entry of `wording.FACTS`; what stands twice is left out.
    op, case, slots
        What the advice names; see `fixes`.
    """
    culprits = sorted(ranks)
    told: list[Fact] = []
    for fact in facts:
        if fact not in told:
            told.append(fact)
    return Finding(
        symptom=symptom,
        stage=taxonomy.symptom(symptom).stage_title,
        kind=kind,
        cause=cause,
        ranks=culprits,
        waiting=sorted(waiting),
        values=values or {},
        places={rank: place for rank, place in (places or {}).items() if place is not None},
        facts=told,
        confidence=confidence,
        fixes=fixes(symptom, cause, op, culprits[0] if culprits else 0, case=case, slots=slots),
    )
