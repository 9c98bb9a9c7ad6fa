"""Finds the described problems whose words are nearest to a text in which nothing is known.

The patterns of the catalogue recognise a problem in the words that people were seen to use. Other
words for it still share terms with what the catalogue says about it: its cause, what confirms it
and what to change. BM25 compares them; it counts rare terms for more than common ones.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from dataclasses import dataclass

from ddt_notebook.messages import Message

#: The parameters of BM25: how soon a term that is repeated counts for no more, and how much less a
#: term counts in a long entry. Other values give the same within 3 of 100 (see `_NEAR`).
_SATURATION, _LENGTH = 1.2, 0.5
#: How often the terms of the cause count, which says most.
_MEANS = 2
#: The number of entries that vote on the symptom.
_VOTERS = 8
#: An entry is near if it has this score and shares so many rare terms with a text of so many words.
#: Chosen on the 123 described problems in ``benchmarks/reports`` of which entries were written,
#: each without the entries that match it: 102 are near to another one, by which the symptom is
#: right in 54 and the stage in 102. Of 787 look-alikes of the catalogue, 2 are near to an entry.
_NEAR, _RARE_TERMS, _WORDS = 6.0, 2, 12
#: The same for an entry whose advice is only added to that of a finding: it need not name a
#: symptom. With (6, 2), advice names the cause in 2 of 100 unseen reports less.
_NEAR_ADVICE, _RARE_IN_ADVICE = 4.0, 1
#: A term is rare if it is in at most about an eighth of the entries: the logarithm that BM25 uses.
_RARE = 2.0
_WORD = re.compile(r"[a-z][a-z0-9]+")
#: Words of every subject. In so few entries many of them are rare, and would decide.
_EVERYDAY = frozenset(
    """
    about after again all almost already also although always am an and another any are as at
    because been before being between both but by came can cannot come could did do does doing done
    down each either else even ever every few for from get gets getting give given gives go goes got
    had has have having he her here him his how however if in instead into is it its itself just
    keep know less like longer look made make makes many may maybe me meant might more most much
    must my need never no nor not nothing now of off often on once one only or other others our out
    over own please put quite rather really same see seem seems seen several shall she should since
    so some something still such take than that the their them then there these they thing this
    those though through thus to together too try under until up upon us use used using very want
    was way we well were what when where whether which while who whole whose why will with within
    without would yet you your
    """.split()
)
#: The signs of a regular expression.
_SIGNS = re.compile(r"\\[a-zA-Z]|\[[^\]]*\]|\{[^}]*\}|[()|?*+\\^$<>!=:.]")
_ENDINGS = ("ing", "ies", "es", "ed", "s")
#: The shortest stem that is left by taking off an ending.
_STEM = 3


@dataclass(frozen=True, slots=True)
class Near:
    """An entry of the catalogue near to a text.

    Attributes
    ----------
    entry
        The entry.
    score
        By BM25.
    word
        The rarest word of the text that is also in the entry.
    """

    entry: Message
    score: float
    word: str


def find(lower: str, entries: tuple[Message, ...]) -> list[Near]:
    """Return those of the entries that are near to a text in lower case, the nearest first."""
    return _found(lower, entries, _NEAR, _RARE_TERMS)[:_VOTERS]


def advisers(lower: str, entries: tuple[Message, ...]) -> list[Message]:
    """Return the entries whose advice may fit a text in lower case, the nearest first."""
    found = _found(lower, entries, _NEAR_ADVICE, _RARE_IN_ADVICE)
    return [near.entry for near in found]


def _found(lower: str, entries: tuple[Message, ...], least: float, rare: int) -> list[Near]:
    if len(_WORD.findall(lower)) < _WORDS:
        return []
    index = _index(entries)
    asked = {stem(word): word for word in reversed(subject_words(lower))}
    found = []
    for entry, counts, length in index.entries:
        shared = asked.keys() & counts.keys()
        if sum(index.rarity[term] >= _RARE for term in shared) < rare:
            continue
        score = sum(
            index.rarity[term]
            * counts[term]
            * (_SATURATION + 1)
            / (counts[term] + _SATURATION * (1 - _LENGTH + _LENGTH * length))
            for term in shared
        )
        if score >= least:
            rarest = max(shared, key=lambda term: (index.rarity[term], term))
            found.append(Near(entry, score, asked[rarest]))
    found.sort(key=lambda near: (-near.score, near.entry.id))
    return found


def votes(near: list[Near]) -> dict[str, float]:
    """Return the share of each symptom in the votes of these entries."""
    found: dict[str, float] = {}
    for place, one in enumerate(near, start=1):
        for number, code in enumerate(one.entry.symptoms, start=1):
            found[code] = found.get(code, 0.0) + one.score**2 / (place * number)
    total = sum(found.values())
    return {code: share / total for code, share in found.items()}


def subject_words(lower: str) -> list[str]:
    """Return the words of a text in lower case without those of every subject, in order."""
    return [word for word in _WORD.findall(lower) if word not in _EVERYDAY]


def stem(word: str) -> str:
    """Return a word without the ending of a plural or of a form of a verb."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM and word[-2:] != "ss":
            return word[: -len(ending)]
    return word


@dataclass(frozen=True, slots=True)
class _Index:
    """The described problems with the counts of their terms and their relative lengths."""

    entries: tuple[tuple[Message, Counter[str], float], ...]
    rarity: dict[str, float]


@functools.lru_cache(maxsize=1)
def _index(entries: tuple[Message, ...]) -> _Index:
    described = [entry for entry in entries if entry.kind == "complaint"]
    counts = [Counter(map(stem, subject_words(_said(entry).lower()))) for entry in described]
    mean = sum(own.total() for own in counts) / len(counts)
    within = Counter(term for own in counts for term in own)
    number = len(described)
    return _Index(
        tuple(
            (entry, own, own.total() / mean) for entry, own in zip(described, counts, strict=True)
        ),
        {
            term: math.log(1 + (number - times + 0.5) / (times + 0.5))
            for term, times in within.items()
        },
    )


def _said(entry: Message) -> str:
    advice = (text for _, text in entry.fixes)
    # The pattern has the words in which people were seen to put it.
    words = _SIGNS.sub(" ", entry.pattern.pattern)
    return " ".join([*[entry.means] * _MEANS, entry.check, entry.example, *advice, words])
