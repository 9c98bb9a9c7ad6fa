"""The fault cards. Each has the symptom, the cause, a broken cell, a fixed cell and the changes.

Lessons, tests, explanations and rules read the cards. A card is a module in the folder of its
stage, has its id as its name, and defines ``CARD``. Faults that need several hosts are in the
folder ``hosts``.
"""

from .card import Advice, Expected, FaultCard, InvalidCard, Reference
from .host_card import HostCard
from .loader import UnknownCard, advice_of, card, card_ids, cards, host_cards, page_ids
from .stand_ins import stand_in

__all__ = [
    "Advice",
    "Expected",
    "FaultCard",
    "HostCard",
    "InvalidCard",
    "Reference",
    "UnknownCard",
    "advice_of",
    "card",
    "card_ids",
    "cards",
    "host_cards",
    "page_ids",
    "stand_in",
]
