"""What is seen in a text: clues, exceptions and messages of fault cards, each with its line."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ddt_notebook import faults
from ddt_notebook.diagnosis import errors

from . import behaving, building, crashing, exceptions, failing, preparing, setting_up
from .clue import Clue, Kind
from .exceptions import Raised
from .lines import Line

CLUES: tuple[Clue, ...] = (
    *building.CLUES,
    *setting_up.CLUES,
    *preparing.CLUES,
    *failing.CLUES,
    *crashing.CLUES,
    *behaving.CLUES,
)
#: How strongly an exception of known meaning speaks, and one that could be anything.
_EXCEPTION = 2.0
_ANY_EXCEPTION = 0.6
#: How strongly the messages of fault cards speak, shared among the symptoms of these cards.
_CARD = 1.6
_SHOWN = 80
#: Clues of the other kind weigh less once the text says plainly what is wrong.
_EFFECT_BESIDE_ERROR = 0.4
_CONTEXT_BESIDE_OTHERS = 0.6
_STRONG = 2.0
#: In a log, what comes after the first error is often its consequence.
_LATER = 0.5
_OTHER_RANK = 0.3
_NEAR = 3
#: People complain; what a program prints in such words ("tokens/s") is seldom a complaint.
_COMPLAINT_OF_A_PROGRAM = 0.2
_PERSON = re.compile(
    r"\b(i|i'm|i've|my|me|we|our|why|how|what|please|help|problem|issue|question|bug|but|however)\b"
)
_ROOT_CAUSE = re.compile(
    r"root cause \(first observed failure\)[\s\S]{0,400}?rank *: (\d+)"
    r"[\s\S]{0,120}?exitcode *: -?\d+"
)
#: Lines after the exit code that belong to the same summary.
_SUMMARY = 3
#: Lines of forms for bug reports, of warnings that every run prints, and of the launcher that ends
#: the other ranks.
_FORM = re.compile(
    r"[Dd]id you (read|check|search)|If your question is about|[Dd]eprecat|FutureWarning"
    r"|^\s*\d+\. ?(Framework|Horovod|MPI|CUDA|NCCL|Python|Spark|Ray|OS|GCC|CMake)\b[\w /]*:"
    r"|[Pp]lease describe"
    r"|closing signal SIG|SIGTERM|exitcode *: -15"
    r"|^\s*-? ?\[[ x]\] I (have|acknowledge)"
)
#: Raised by launchers because a rank has failed.
_OF_LAUNCHER = frozenset({"ChildFailedError", "CalledProcessError", "ProcessExitedException"})
#: Numbers that differ from run to run; an exit code does not.
_NUMBER = re.compile(r"\d{3,}")


@dataclass(frozen=True, slots=True)
class Sight:
    """Something in the text that speaks for symptoms.

    Attributes
    ----------
    says, votes, cause, kind
        As in `Clue`.
    line, rank
        Where it was seen.
    words
        What was seen.
    weight
        Factor of the votes.
    raised
        The exception, if it is one.
    cards
        Ids of the fault cards that print these words.
    """

    says: str
    votes: Mapping[str, float] = field(hash=False)
    cause: str | None
    kind: Kind
    line: int
    rank: int | None
    words: str
    weight: float = 1.0
    raised: Raised | None = None
    cards: tuple[str, ...] = ()

    @property
    def strength(self) -> float:
        """The strongest vote as it counts."""
        return self.weight * max(self.votes.values())


@dataclass(frozen=True, slots=True)
class Text:
    """The lines of a text, joined in lower case for the search.

    Attributes
    ----------
    lines
        In their order.
    lower
        All of them in lower case.
    is_log
        Whether the order of lines is the order of events; a report in prose has none.
    """

    lines: list[Line]
    lower: str
    starts: list[int]
    is_log: bool

    @classmethod
    def of(cls, lines: list[Line]) -> Text:
        """Join lines."""
        starts, at = [], 0
        lowered = ["" if _FORM.search(line.text) else line.text.lower() for line in lines]
        for text in lowered:
            starts.append(at)
            at += len(text) + 1
        is_log = len(lines) > 25 or any(line.rank is not None for line in lines)
        return cls(lines, "\n".join(lowered), starts, is_log)

    def line_at(self, offset: int) -> Line:
        """The line that holds a position of `lower`."""
        return self.lines[bisect.bisect_right(self.starts, offset) - 1]


def look(text: Text) -> list[Sight]:
    """Everything in a text that speaks for a symptom, weighed against the rest."""
    if not text.lines:
        return []
    raised = exceptions.find(text.lines)
    seen = [*_clues(text), *_exceptions(raised), *_cards(text)]
    return _weighed(seen, text)


def _root_cause(text: Text) -> tuple[int, range] | None:
    """The rank that failed first as torchrun's summary names it, and the lines that say so."""
    match = _ROOT_CAUSE.search(text.lower)
    if match is None:
        return None
    first, last = text.line_at(match.start()).number, text.line_at(match.end()).number
    return int(match[1]), range(first, last + _SUMMARY)


def _clues(text: Text) -> Iterator[Sight]:
    for clue in CLUES:
        if match := clue.find(text.lower):
            line = text.line_at(match.start())
            yield Sight(
                clue.says, clue.votes, clue.cause, clue.kind, line.number, line.rank, match[0]
            )


def _exceptions(found: list[Raised]) -> Iterator[Sight]:
    for number, raised in enumerate(found):
        if number and raised.error == found[number - 1].error:
            continue
        peer = errors.is_peer_error(raised.error)
        if raised.error.type in _OF_LAUNCHER:
            continue
        meaning = errors.classify(raised.error)
        symptom = "D.1.1" if peer else meaning.symptom
        known = meaning.cause is not None and not peer
        first = raised.error.message.partition("\n")[0]
        says = f"{raised.error.type}: {first}" if first else raised.error.type
        yield Sight(
            "" if peer else says,
            {symptom: _EXCEPTION if known else _ANY_EXCEPTION},
            meaning.cause if known else None,
            "effect" if peer else "error",
            raised.line,
            raised.rank,
            raised.error.type,
            raised=raised,
        )


@functools.cache
def _card_messages() -> dict[str, tuple[str, ...]]:
    """Each message of the cards, its numbers aside, to the ids of the cards that produce it."""
    found: dict[str, list[str]] = {}
    for card in faults.cards():
        for message in dict.fromkeys((*card.gloo, *card.nccl)):
            ids = found.setdefault(_plain(message), [])
            if card.id not in ids:
                ids.append(card.id)
    return {message: tuple(ids) for message, ids in found.items()}


def _plain(text: str) -> str:
    return _NUMBER.sub("0", text.lower())


@functools.cache
def _is_effect(message: str) -> bool:
    """Whether a message only says that another rank did not come, or went away."""
    return any(clue.kind == "effect" and clue.find(message) for clue in CLUES)


def _cards(text: Text) -> Iterator[Sight]:
    plain = _plain(text.lower)
    ids_of: dict[int, list[str]] = {}
    effects = set()
    for message, ids in _card_messages().items():
        at = plain.find(message)
        if at >= 0:
            index = plain.count("\n", 0, at)
            ids_of.setdefault(index, []).extend(ids)
            if _is_effect(message):
                effects.add(index)
    for index, several in ids_of.items():
        line = text.lines[index]
        ids = tuple(dict.fromkeys(several))
        only = len(ids) == 1 and index not in effects
        symptoms = [faults.card(name).symptom for name in ids]
        card = faults.card(ids[0])
        yield Sight(
            card.title if only else "",
            {code: _CARD * symptoms.count(code) / len(ids) for code in dict.fromkeys(symptoms)},
            card.id if only else None,
            "effect" if index in effects else "error",
            line.number,
            line.rank,
            line.text.strip()[:_SHOWN],
            cards=ids,
        )


def _of_launcher(sight: Sight, summary: range) -> bool:
    """Whether the launcher says it of the rank that failed first."""
    return sight.line in summary or sight.words.startswith("exitcode")


def _weighed(seen: list[Sight], text: Text) -> list[Sight]:
    told = [sight for sight in seen if sight.kind == "error" and sight.strength >= _STRONG]
    strong = bool(told) or any(
        sight.kind == "complaint" and sight.strength >= _STRONG for sight in seen
    )
    first = min((sight.line for sight in told), default=0)
    root = _root_cause(text)
    if root is not None:
        seen = [
            replace(sight, rank=root[0])
            if sight.rank is None and _of_launcher(sight, root[1])
            else sight
            for sight in seen
        ]
    at_root = root is not None and any(
        sight.rank == root[0] and sight.kind == "error" for sight in seen
    )
    printed = text.is_log and not _PERSON.search(text.lower)
    weighed = []
    for sight in seen:
        weight = 1.0
        if sight.kind == "effect" and told:
            weight *= _EFFECT_BESIDE_ERROR
        if sight.kind == "context" and strong:
            weight *= _CONTEXT_BESIDE_OTHERS
        if sight.kind == "complaint" and (sight.rank is not None or printed):
            weight *= _COMPLAINT_OF_A_PROGRAM
        if text.is_log and sight.kind == "error":
            if at_root and root is not None and sight.rank not in (root[0], None):
                weight *= _OTHER_RANK
            elif not at_root and sight.line > first + _NEAR:
                weight *= _LATER
        weighed.append(replace(sight, weight=weight))
    return weighed
