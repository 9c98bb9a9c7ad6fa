"""Which views of a run show a fault, as its fault card lists them."""

from __future__ import annotations

import functools
from collections import Counter

from .loader import card, card_ids, cards

#: A view shows a symptom if it shows at least one in this many of the symptom's faults. This
#: excludes views that show only a few of them; chosen by looking at all symptoms.
_ONE_IN = 3


def of_card(name: str) -> tuple[str, ...]:
    """Names of the views that show a fault, the best one first.

    Parameters
    ----------
    name
        Id of a fault card; there are no views for an id that no card has.
    """
    return card(name).views if name in card_ids() else ()


@functools.cache
def of_symptom(code: str) -> tuple[str, ...]:
    """Names of the views that show at least a third of the faults with a symptom.

    Parameters
    ----------
    code
        A code such as ``"D.2.1"``.

    Returns
    -------
    tuple of str
        The view that shows most faults comes first.
    """
    shown = [card.views for card in cards() if code in card.symptoms]
    faults = Counter(view for views in shown for view in views)
    return tuple(view for view, count in faults.most_common() if _ONE_IN * count >= len(shown))
