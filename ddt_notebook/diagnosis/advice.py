"""What to change, for each cause: our advice with the study's fix pattern and its frequency."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources

from ddt_notebook import faults, messages
from ddt_notebook.model import Fact, Finding, Fix, Place
from ddt_notebook.model.finding import Confidence, Values
from ddt_notebook.symptoms import loader as taxonomy

#: Causes of exceptions for which the study has no class; their message names what is wrong.
NAME_NOT_DEFINED, SYNTAX = "name-not-defined", "syntax"
#: Number of pieces of advice up to which a card adds to those of a message. Chosen, not measured.
_MOST = 4


@cache
def _advice() -> dict[str, tuple[tuple[str, str], ...]]:
    """Cause -> (pattern, advice), the best fit first."""
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
    message: str | None = None,
) -> list[Fix]:
    """Return what to change; the fix that fits the cause best comes first.

    Parameters
    ----------
    op, rank
        What replaces ``{op}`` and ``{rank}`` in the advice.
    case, slots
        If ``advice.toml`` has an entry for a special case of this cause: the name of the case, and
        what replaces the other names in braces.
    message
        Id of an entry of the catalogue of messages, whose advice comes first; the card of the cause
        adds other ways.
    """
    shares = {known.pattern: known.share for known in taxonomy.fixes(symptom)}
    of_card = tuple((one.pattern, one.text) for one in faults.advice_of(cause or ""))
    of_message = messages.message(message).fixes if message is not None else ()
    chosen: tuple[tuple[str, str], ...]
    if of_message:
        # Other ways out of the same cause; of the same way the message says more.
        said = {pattern for pattern, _ in of_message}
        more = tuple(one for one in of_card if one[0] not in said)
        chosen = more[: max(0, _MOST - len(of_message))]
    else:
        name = "/".join(filter(None, [cause or "exception", case]))
        of_case = _advice().get(name, ()) if case else ()
        chosen = of_case or of_card or _advice()[name]
    filled = {"op": op, "rank": rank, **(slots or {})}
    texts = [*of_message, *((pattern, text.format(**filled)) for pattern, text in chosen)]
    return [
        Fix(pattern=pattern, advice=text, share=shares.get(pattern, 0.0)) for pattern, text in texts
    ]


def in_framework(finding: Finding, framework: str) -> Finding:
    """Return a finding with the card and the changes that hold in a framework."""
    cause = faults.stand_in(finding.cause or "", framework)
    if cause is None:
        return finding
    return replace(finding, cause=cause, fixes=fixes(finding.symptom, cause))


def causes() -> frozenset[str]:
    """Return the ids of all causes that findings can name."""
    own = (name for name in _advice() if "/" not in name)
    return frozenset(own) | frozenset(faults.page_ids())


def to_confirm(entry: messages.Message) -> Fact:
    """Return what to look at to confirm the cause that an entry of the catalogue names."""
    return Fact(kind="to-confirm", values={"check": entry.check, "message": entry.id})


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
    message: str | None = None,
) -> Finding:
    """Make a finding, with the name of its stage and what to change.

    Parameters
    ----------
    kind
        What happened: a key of `wording.TITLES`, whose entry renders it from the other arguments.
    places
        Ranks whose line is unknown are left out.
    facts
        The kind of each is a key of `wording.FACTS`. Repeated facts are left out.
    op, case, slots, message
        What the advice names; see `fixes`.
    """
    culprits = sorted(ranks)
    unique: list[Fact] = []
    if message is not None:
        facts = [*facts, to_confirm(messages.message(message))]
    for fact in facts:
        if fact not in unique:
            unique.append(fact)
    return Finding(
        symptom=symptom,
        stage=taxonomy.symptom(symptom).stage_title,
        kind=kind,
        cause=cause,
        ranks=culprits,
        waiting=sorted(waiting),
        values=values or {},
        places={rank: place for rank, place in (places or {}).items() if place is not None},
        facts=unique,
        confidence=confidence,
        fixes=fixes(
            symptom,
            cause,
            op,
            culprits[0] if culprits else 0,
            case=case,
            slots=slots,
            message=message,
        ),
    )
