"""Which page answers a question: a symptom, a fault card, a list of hits, the taxonomy."""

from __future__ import annotations

import re

from .. import faults
from ..faults.search import search
from ..spelling import similar_names
from ..symptoms import loader as study
from .card import CardView
from .explanation import ExplanationView
from .hits import HitsView
from .taxonomy import TaxonomyView

Page = ExplanationView | CardView | HitsView | TaxonomyView

_CODE = re.compile(r"[A-D](\.\d+)*", re.IGNORECASE)
#: The best hit is shown at once if it is this much better than the next.
_CLEARLY = 1.8


def page(query: str = "") -> Page:
    """The page that answers a question.

    Parameters
    ----------
    query
        A code such as ``"D.2.1"``, the id of a card, or words; empty: the whole taxonomy.

    Raises
    ------
    UnknownSymptom
        If there is no such code, or nothing fits the words.
    """
    wanted = " ".join(query.split())
    if not wanted:
        return TaxonomyView()
    if _CODE.fullmatch(wanted):
        return symptom_page(wanted)
    if wanted.lower() in faults.card_ids():
        return card_page(wanted.lower())
    hits = search(wanted)
    near = similar_names(wanted, faults.card_ids())
    if near and " " not in wanted:  # a card, misspelt
        return card_page(near[0])
    if not hits:
        last = study.symptoms()[-1].code
        raise study.UnknownSymptom(
            f"nothing is known about {wanted!r}; codes run from A.1 to {last}, and words of a "
            "title or of an error message are searched for"
        )
    if len(hits) == 1 or hits[0].score > _CLEARLY * hits[1].score:
        best = hits[0]
        return symptom_page(best.name) if best.kind == "symptom" else card_page(best.name)
    return HitsView(wanted, hits)


def symptom_page(code: str) -> ExplanationView:
    """What the study knows of a symptom, and its cards; raises `UnknownSymptom`."""
    symptom = study.symptom(code)
    return ExplanationView(symptom, study.fixes(symptom.code), cards_of(symptom.code))


def card_page(name: str) -> CardView:
    """The page of a fault card."""
    card = faults.card(name)
    return CardView(card, [other for other in cards_of(card.symptom) if other.id != card.id])


def cards_of(code: str) -> list[faults.FaultCard]:
    """The faults that show a symptom; those for which it is the usual one come first."""
    found = [card for card in faults.cards() if code in card.symptoms]
    return sorted(found, key=lambda card: card.symptoms.index(code))
