"""Finds cards, symptoms and messages by words of a title, a description or an error message."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ddt_notebook.messages import Message, messages
from ddt_notebook.symptoms import loader as taxonomy

from .card import FaultCard
from .host_card import HostCard
from .loader import cards, host_cards

_WORD = re.compile(r"[a-z0-9_]+")
_ENDINGS = ("ing", "ed", "er", "es", "s", "e")
_SHORTEST_STEM = 3
_STOP = frozenset(
    "a an and are as at be but by do does for from get gets has have i in is it its my no not "
    "of on or so than that the their then there they this to too was what when which while who why "
    "with".split()
)
#: What users write for words of the study and the cards.
_SAID = {
    "hang": "stuck stall stalled freeze frozen blocked deadlock",
    "memory": "oom",
    "kill": "killed",
    "print": "printed prints log logs",
    "connect": "connection refused unreachable",
    "convergence": "converge converged nan diverge",
    "same": "duplicate duplicated identical",
    "efficiency": "slow slower performance throughput",
    "fault": "crash crashed",
}
#: The weight of a match in each text.
_WEIGHTS = {"name": 5.0, "messages": 4.0, "symptoms": 3.0, "sees": 2.0, "rest": 1.0}
#: Added for each further text in which a word occurs.
_MORE = 0.5
#: The weight of a title or message that contains the query verbatim, or that the query contains.
_VERBATIM = 12.0
#: The weight if the query contains a symptom's whole name.
_NAMED = 3.0
_SHORTEST_VERBATIM = 8
#: Hits below this part of the best score are left out.
_WORTH = 0.4
#: At least this part of the query's words, weighted by rarity, must occur.
_COVERED = 0.45


@dataclass(frozen=True, slots=True)
class Hit:
    """A card, a symptom or an error message that matches the words.

    Attributes
    ----------
    kind
        ``"symptom"`` of the taxonomy, ``"card"``, or ``"message"`` of the catalogue.
    name
        The symptom's code, or the id of the card or message.
    title
        Its title.
    score
        How well it matches; comparable within one search only.
    """

    kind: Literal["symptom", "card", "message"]
    name: str
    title: str
    score: float


@dataclass(frozen=True, slots=True)
class _Entry:
    hit: Hit
    words: Mapping[str, float]  # word to the weight of the best text in which it occurs
    exact: tuple[str, ...] = ()  # title and messages verbatim
    prior: float = 0.0  # decides between equal matches

    def match(self, ways: tuple[str, ...]) -> str | None:
        """The word among a word and its synonyms with the most weight; None if none occurs."""
        there = [word for word in ways if word in self.words]
        return max(there, key=lambda word: self.words[word], default=None)


def search(words: str, limit: int = 10) -> list[Hit]:
    """The cards and symptoms that match the words, best first; empty if there are none.

    Parameters
    ----------
    words
        The query, such as ``"ranks diverge"`` or ``"address already in use"``.
    limit
        The largest number of hits.
    """
    return _search(words, _entries(), limit)


def search_messages(words: str, limit: int = 8) -> list[Hit]:
    """The entries of the catalogue of messages that match the words, best first."""
    return _search(words, _of_catalogue(), limit)


@cache
def known_words() -> frozenset[str]:
    """The words of the names of all symptoms, cards and messages."""
    named = [*(symptom.title for symptom in taxonomy.symptoms()), *_SAID, *_SAID.values()]
    named += [*(card.id for card in cards()), *host_cards(), *(entry.id for entry in messages())]
    return frozenset(_WORD.findall(" ".join(named)))


def _search(words: str, entries: tuple[_Entry, ...], limit: int) -> list[Hit]:
    wanted = [(word, *_synonyms().get(word, ())) for word in _stems(words)]
    verbatim = " ".join(words.lower().split())
    rarity = _rarity(entries)
    rare = [max(rarity.get(word, 0.0) for word in ways) for ways in wanted]
    known = [part for part in rare if part]
    if not known:
        return []
    # A word that occurs nowhere, such as "thing", counts as much as the others on average.
    worth = [part or sum(known) / len(known) for part in rare]
    found = []
    for entry in entries:
        matches = [entry.match(ways) for ways in wanted]
        matched = [word for word in matches if word is not None]
        there = sum(part for part, word in zip(worth, matches, strict=True) if word is not None)
        covered = there / sum(worth)
        literal = any(_same(verbatim, text) for text in entry.exact)
        named = entry.hit.kind == "symptom" and entry.words.keys() <= set(matched)
        if not literal and covered < _COVERED:
            continue
        score = covered * sum(rarity[word] * entry.words[word] for word in matched)
        score += (_VERBATIM if literal else 0.0) + (_NAMED if named else 0.0)
        hit = entry.hit
        found.append(Hit(hit.kind, hit.name, hit.title, round(score + entry.prior, 3)))
    found.sort(key=lambda hit: (-hit.score, hit.name))
    return [hit for hit in found if hit.score >= _WORTH * found[0].score][:limit]


def _same(words: str, text: str) -> bool:
    shorter, longer = sorted((words, text), key=len)
    return len(shorter) >= _SHORTEST_VERBATIM and shorter in longer


@cache
def _entries() -> tuple[_Entry, ...]:
    most = max(symptom.faults for symptom in taxonomy.symptoms())
    symptoms = [
        _Entry(
            Hit("symptom", s.code, s.title, 0.0),
            dict.fromkeys(_stems(s.title), _WEIGHTS["name"]),
            prior=s.faults / most,
        )
        for s in taxonomy.symptoms()
        if s.title != "others"
    ]
    return (*symptoms, *map(_of_card, cards()), *map(_of_card, host_cards().values()))


@cache
def _of_catalogue() -> tuple[_Entry, ...]:
    return tuple(map(_of_message, messages()))


def _of_message(message: Message) -> _Entry:
    texts = {
        "name": [message.id.replace("-", " "), message.means],
        "messages": [message.example],
        "symptoms": [taxonomy.symptom(code).title for code in message.symptoms],
        "rest": [message.raiser, message.check, *(advice for _, advice in message.fixes)],
    }
    exact = (message.id.replace("-", " "), message.means, message.example)
    plain = tuple(" ".join(text.lower().split()) for text in exact)
    return _Entry(Hit("message", message.id, message.means, 0.0), _weights(texts), plain)


def _of_card(card: FaultCard | HostCard) -> _Entry:
    printed = (*card.gloo, *card.nccl) if isinstance(card, FaultCard) else ()
    texts = {  # the largest weight first
        "name": [card.id, card.title],
        "messages": printed,
        "symptoms": [taxonomy.symptom(code).title for code in card.symptoms],
        "sees": [card.sees],
        "rest": [card.why, card.cluster, *(advice.text for advice in card.fixes)],
    }
    exact = (card.title, card.id.replace("-", " "), *printed)
    plain = tuple(" ".join(text.lower().split()) for text in exact)
    return _Entry(Hit("card", card.id, card.title, 0.0), _weights(texts), plain)


def _weights(texts: Mapping[str, Iterable[str]]) -> dict[str, float]:
    """The weight of each word by the texts in which it occurs."""
    found: dict[str, float] = {}
    for name, parts in texts.items():
        for word in _stems(" ".join(parts)):
            found[word] = found.get(word, _WEIGHTS[name] - _MORE) + _MORE
    return found


def _rarity(entries: Iterable[_Entry]) -> dict[str, float]:
    """The weight of each word, small for one that occurs everywhere."""
    seen: dict[str, int] = {}
    number = 0
    for entry in entries:
        number += 1
        for word in entry.words:
            seen[word] = seen.get(word, 0) + 1
    return {word: math.log(1 + number / times) for word, times in seen.items()}


@cache
def _synonyms() -> dict[str, tuple[str, ...]]:
    """The synonyms of each word, which match in its place."""
    found: dict[str, list[str]] = {}
    for ours, theirs in _SAID.items():
        for word in _stems(theirs):
            found.setdefault(word, []).append(_stem(ours))
    return {word: tuple(ways) for word, ways in found.items()}


def _stems(text: str) -> list[str]:
    """The distinct words of a text, without stop words and endings."""
    found = _WORD.findall(text.lower())
    words = (word for word in found if word not in _STOP and not word.isdecimal())
    return list(dict.fromkeys(map(_stem, words)))


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        long_enough = len(word) - len(ending) >= _SHORTEST_STEM
        if word.endswith(ending) and long_enough and not word.endswith("ss"):
            return word.removesuffix(ending)
    return word
