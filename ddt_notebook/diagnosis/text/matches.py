"""Finds what supports a symptom in a text: clues, exceptions and messages of fault cards."""

from __future__ import annotations

import bisect
import functools
import re
from collections import Counter
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
#: The votes of an exception with a known meaning and of one with any meaning. Halved or doubled,
#: they change the first symptom in none of the tests' texts and in one of 120 reports.
_EXCEPTION = 2.0
_ANY_EXCEPTION = 0.6
#: The vote of a message that fault cards quote, shared among their symptoms. It is below that of an
#: exception, whose whole message is known: with twice as much, three texts of the tests get another
#: first symptom.
_CARD = 1.6
#: The factor for probable consequences of another error: what a rank reports about its peers if an
#: error is clear; in a log, what comes after the first error or from another rank than the one that
#: failed first. The tests of logs need it below 1.
_CONSEQUENCE = 0.4
#: Number of characters of a line that are shown. Chosen, not measured.
_SHOWN = 80
#: A text is a log if more than this part of its lines repeat another line except for the digits.
_REPEATED = 0.5
#: The summary of torchrun, which names the rank that failed first.
_ROOT_CAUSE = re.compile(
    r"root cause \(first observed failure\)[\s\S]{0,400}?rank *: (\d+)"
    r"[\s\S]{0,120}?exitcode *: -?\d+"
)
#: After the exit code, torchrun prints two more lines: error_file and traceback.
_SUMMARY = 2
#: Lines without information about this run: forms for bug reports, warnings of every run, and the
#: launcher's lines when it ends the other ranks.
_FORM = re.compile(
    r"[Dd]id you (read|check|search)|If your question is about|[Dd]eprecat|FutureWarning"
    r"|^\s*\d+\. ?(Framework|Horovod|MPI|CUDA|NCCL|Python|Spark|Ray|OS|GCC|CMake)\b[\w /]*:"
    r"|[Pp]lease describe"
    r"|closing signal SIG|SIGTERM|exitcode *: -15"
    r"|^\s*-? ?\[[ x]\] I (have|acknowledge)"
)
#: Launchers raise these because a rank failed.
_OF_LAUNCHER = frozenset({"ChildFailedError", "CalledProcessError", "ProcessExitedException"})
_DIGITS = re.compile(r"\d+")
#: Numbers that differ between runs; an exit code does not.
_NUMBER = re.compile(r"\d{3,}")


@dataclass(frozen=True, slots=True)
class Match:
    """Something in the text that supports symptoms.

    Attributes
    ----------
    says, votes, cause, kind
        As in `Clue`.
    line, rank
        Its line and rank.
    words
        The words that match.
    weight
        Factor of the votes.
    raised
        The exception, if the match is one.
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
        """The strongest vote times the weight."""
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
        Whether programs printed the text, so that the order of lines is the order of events.
    """

    lines: list[Line]
    lower: str
    starts: list[int]
    is_log: bool

    @classmethod
    def of(cls, lines: list[Line]) -> Text:
        """Make a text from lines."""
        starts, at = [], 0
        lowered = ["" if _FORM.search(line.text) else line.text.lower() for line in lines]
        for text in lowered:
            starts.append(at)
            at += len(text) + 1
        return cls(lines, "\n".join(lowered), starts, _is_log(lines))

    def line_at(self, offset: int) -> Line:
        """Return the line that contains a position of `lower`."""
        return self.lines[bisect.bisect_right(self.starts, offset) - 1]


def _is_log(lines: list[Line]) -> bool:
    """Whether lines name ranks, or most lines are repeated with other numbers."""
    if any(line.rank is not None for line in lines):
        return True
    forms = Counter(_DIGITS.sub("0", line.text) for line in lines if line.text.strip())
    repeated = sum(times for times in forms.values() if times > 1)
    return repeated > _REPEATED * forms.total()


def find(text: Text) -> list[Match]:
    """Return everything in a text that supports a symptom, with its weight relative to the rest."""
    if not text.lines:
        return []
    raised = exceptions.find(text.lines)
    found = [*_clues(text), *_exceptions(raised), *_cards(text)]
    return _weighed(found, text)


def _root_cause(text: Text) -> tuple[int, range] | None:
    """Return the rank that failed first according to torchrun's summary, and its lines."""
    match = _ROOT_CAUSE.search(text.lower)
    if match is None:
        return None
    first, last = text.line_at(match.start()).number, text.line_at(match.end()).number
    return int(match[1]), range(first, last + _SUMMARY)


def _clues(text: Text) -> Iterator[Match]:
    for clue in CLUES:
        if match := clue.find(text.lower):
            line = text.line_at(match.start())
            yield Match(
                clue.says, clue.votes, clue.cause, clue.kind, line.number, line.rank, match[0]
            )


def _exceptions(found: list[Raised]) -> Iterator[Match]:
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
        yield Match(
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
    """Map each message of the cards, without numbers, to the ids of the cards that produce it."""
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
    """Whether a message only reports that another rank was missing or left."""
    return any(clue.kind == "effect" and clue.find(message) for clue in CLUES)


def _cards(text: Text) -> Iterator[Match]:
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
        yield Match(
            card.title if only else "",
            {code: _CARD * symptoms.count(code) / len(ids) for code in dict.fromkeys(symptoms)},
            card.id if only else None,
            "effect" if index in effects else "error",
            line.number,
            line.rank,
            line.text.strip()[:_SHOWN],
            cards=ids,
        )


def _of_launcher(match: Match, summary: range) -> bool:
    """Whether the launcher reports it about the rank that failed first."""
    return match.line in summary or match.words.startswith("exitcode")


def _weighed(found: list[Match], text: Text) -> list[Match]:
    plain = [match for match in found if match.kind == "error" and match.strength >= _EXCEPTION]
    first = min((match.line for match in plain), default=0)
    root = _root_cause(text)
    if root is not None:
        found = [
            replace(match, rank=root[0])
            if match.rank is None and _of_launcher(match, root[1])
            else match
            for match in found
        ]
    errors_of_root = root is not None and any(
        match.rank == root[0] and match.kind == "error" for match in found
    )

    def follows(match: Match) -> bool:
        if match.kind == "effect":
            return bool(plain)
        if match.kind != "error" or not text.is_log:
            return False
        if errors_of_root and root is not None:
            return match.rank not in (root[0], None)
        return match.line > first

    return [
        replace(match, weight=_CONSEQUENCE if follows(match) else 1.0)
        for match in found
        # A program that prints "tokens/s" does not complain about its speed; only people complain.
        if match.kind != "complaint" or match.rank is None
    ]
