"""Finds the symptom of an exception from its type and text."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.messages import Message, messages
from ddt_notebook.model import Call, RankError
from ddt_notebook.model.finding import Confidence

from . import setup, training
from .origin import raised_by_library, raised_by_user
from .pattern import Meaning
from .reading import first_of_chain, is_peer_error, is_timeout

__all__ = ["Meaning", "classify", "first_of_chain", "is_peer_error", "is_timeout"]

PATTERNS = (*setup.PATTERNS, *training.PATTERNS)
_OTHER = Meaning("D.1.11", None)
#: Causes of many messages: an entry of the catalogue says more.
_BROAD = (None, "collective-arguments", "not-implemented", "device-error", "tensor-shapes")


def classify(error: RankError, call: Call | None = None) -> Meaning:
    """Return the symptom of an exception; ``D.1.11`` (others) if no pattern fits.

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
        patterns = tuple(pattern for pattern in PATTERNS if not pattern.text)
    else:
        patterns = PATTERNS
    foreign = raised_by_library(error)
    for pattern in patterns:
        if pattern.fits(error, call):
            origin: Confidence = "likely" if foreign and pattern.text else "certain"
            sure = pattern.confidence == "certain"
            entry = _in_catalogue(error) if pattern.cause in _BROAD else None
            if entry is not None and (entry.card is None or entry.card != pattern.cause):
                return _of_entry(entry, origin)
            return Meaning(pattern.symptom, pattern.cause, origin if sure else "likely")
    if not raised_by_user(error) and (entry := _in_catalogue(error)) is not None:
        return _of_entry(entry, "likely" if foreign else "certain")
    if call is not None and call.kind != "setup":
        return Meaning("D.1.1", "collective-arguments")
    return _OTHER


def _in_catalogue(error: RankError) -> Message | None:
    """Return the most specific entry for the text of an exception.

    An entry for what only follows from another failure is none: it is not the cause.
    """
    lower = f"{error.type}: {error.message}".lower()
    found = [
        entry
        for entry in messages()
        if entry.kind == "error" and not entry.votes and entry.find(lower)
    ]
    broader = frozenset().union(*(entry.over for entry in found))
    found = [entry for entry in found if entry.id not in broader]
    return min(found, key=lambda entry: entry.general, default=None)


def _of_entry(entry: Message, confidence: Confidence) -> Meaning:
    sure = confidence == "certain" and not entry.general and len(entry.symptoms) == 1
    return Meaning(entry.symptoms[0], entry.card, "certain" if sure else "likely", entry.id)
