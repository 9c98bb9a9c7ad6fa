"""One card for each fault: what one sees, why, a broken cell, a fixed one, and what to change.

Lessons, tests, explanations and rules all read the cards. A card is one module in the folder of
its stage, named like its id, that defines ``CARD``.
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
