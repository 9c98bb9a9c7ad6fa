"""Finds known names that are similar to a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: The smallest similarity of two names, between 0 and 1 (``difflib.SequenceMatcher.ratio``). One
#: letter that is wrong, or two that are swapped, in a name of five gives exactly this.
_SIMILAR = 0.8


def similar_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are similar to a name; upper and lower case count as equal.

    Parameters
    ----------
    name
        The name that is not known.
    known
        The names that exist.
    most
        The largest number of names to return.

    Returns
    -------
    list of str
        The most similar first; empty if none is similar.
    """
    spelt: dict[str, str] = {}
    for other in known:
        spelt.setdefault(other.casefold(), other)
    near = difflib.get_close_matches(name.casefold(), spelt, n=most, cutoff=_SIMILAR)
    return [spelt[other] for other in near]
