"""Finds the symptom of an exception from its type and text."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.messages import Message, messages
from ddt_notebook.model import Call, RankError
from ddt_notebook.model.finding import Confidence

from .origin import raised_by_library, raised_by_user
from .pattern import Meaning, Pattern
from .patterns import BROAD, BY_TEXT_AND_PLACE, BY_TYPE
from .reading import first_of_chain, is_peer_error, is_timeout

__all__ = ["Meaning", "classify", "first_of_chain", "is_peer_error", "is_timeout"]

_OTHER = Meaning("D.1.11", None)


def classify(error: RankError, call: Call | None = None) -> Meaning:
    """Return the symptom of an exception; ``D.1.11`` (others) if nothing fits.

    Parameters
    ----------
    call
        The ``torch.distributed`` call in which it was raised, if any.
    """
    if raised_by_user(error):
        # The user wrote this text and may use PyTorch's words for something else.
        first = first_of_chain(error)
        meaning = classify(first) if first is not None and not is_peer_error(first) else _OTHER
        if meaning.cause is not None:
            return replace(meaning, confidence="likely")
        # these need no text: they look at the files on the stack, or at the type
        placed = tuple(one for one in BY_TEXT_AND_PLACE if one.files and not one.text)
        typed = tuple(one for one in (*placed, *BY_TYPE, *BROAD) if not one.text)
        # a collective of TensorFlow runs a graph, which may call a function of the user
        elsewhere = call is not None and call.is_graph and call.where != error.where
        return _first(typed, error, call, "certain") or _otherwise(None if elsewhere else call)
    origin: Confidence = "likely" if raised_by_library(error) else "certain"
    entry = _in_catalogue(error)
    said = _of_entry(entry, origin) if entry is not None else None
    return (
        _first(BY_TEXT_AND_PLACE, error, call, origin)
        or (said if entry is not None and not entry.general else None)
        or _first(BY_TYPE, error, call, origin)
        or said
        or _first(BROAD, error, call, origin)
        or _otherwise(call)
    )


def _otherwise(call: Call | None) -> Meaning:
    # a graph of TensorFlow computes much besides its collectives
    inside = call is not None and call.kind != "setup" and not call.is_graph
    return Meaning("D.1.1", "collective-arguments") if inside else _OTHER


def _first(
    patterns: tuple[Pattern, ...], error: RankError, call: Call | None, origin: Confidence
) -> Meaning | None:
    """Return what the first of the patterns that fits means."""
    for pattern in patterns:
        if pattern.fits(error, call):
            sure = pattern.confidence == "certain" and (origin == "certain" or not pattern.text)
            return Meaning(pattern.symptom, pattern.cause, "certain" if sure else "likely")
    return None


def _in_catalogue(error: RankError) -> Message | None:
    """Return the most specific entry for the text of an exception.

    An entry for what only follows from another failure is none: it is not the cause.
    """
    lower = f"{error.type}: {error.message}".lower()
    found = [entry for entry in messages() if entry.kind == "error" and entry.find(lower)]
    broader = frozenset().union(*(entry.over for entry in found))
    found = [entry for entry in found if entry.id not in broader]
    return min(found, key=lambda entry: entry.general, default=None)


def _of_entry(entry: Message, confidence: Confidence) -> Meaning:
    one_cause = entry.card is not None or (not entry.general and len(entry.symptoms) == 1)
    sure = confidence == "certain" and one_cause
    return Meaning(entry.symptoms[0], entry.card, "certain" if sure else "likely", entry.id)
