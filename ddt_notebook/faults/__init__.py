"""The fault cards. Each has the symptom, the cause, a broken cell, a fixed cell and the changes.

Lessons, tests, explanations and rules read the cards. A card is a module in the folder of its
stage, has its id as its name, and defines ``CARD``.
"""

from .card import Advice, Expected, FaultCard, InvalidCard, Reference
from .loader import UnknownCard, card, card_ids, cards

__all__ = [
    "Advice",
    "Expected",
    "FaultCard",
    "InvalidCard",
    "Reference",
    "UnknownCard",
    "card",
    "card_ids",
    "cards",
]
