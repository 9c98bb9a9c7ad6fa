"""Finds what supports a symptom in a text: messages, clues, exceptions and cards."""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ddt_notebook import faults
from ddt_notebook.diagnosis import errors
from ddt_notebook.messages import ClueKind, Message, clues, messages

from . import exceptions, learned, nearest
from .exceptions import Raised
from .lines import Line

#: The votes of an exception with a known meaning and of one with any meaning. Halved or doubled,
#: they change the first symptom in none of the tests' texts and in one of 120 reports.
_EXCEPTION = 2.0
_ANY_EXCEPTION = 0.6
#: The vote of a message that fault cards quote, shared among their symptoms. It is below that of an
#: exception, whose whole message is known: with twice as much, three texts of the tests get another
#: first symptom.
_CARD = 1.6
#: The vote of a card's message that is an entry of the catalogue, which votes itself.
_EXPLAINED_CARD = 0.3
#: The vote of a message of the catalogue for the first of its symptoms: of one that names the
#: cause, of one that follows from another failure, of a warning, after which a run goes on, and of
#: what a person describes.
_MESSAGE = {"error": 6.0, "effect": 4.0, "warning": 1.2, "complaint": 1.2}
#: The most for a message that is printed for many causes.
_GENERAL_MESSAGE = 3.0
#: Each further symptom of a message gets this much less.
_NEXT_SYMPTOM = 1.0
#: The number of characters before and after a known message that belong to it, within its line;
#: their words are not read again. Chosen, not measured.
_BEFORE, _AFTER = 80, 200
#: How many places of one message are examined; bounds the time that a long text takes.
_PLACES = 64
#: The votes of a text that speaks of training and of nothing that fails: what is reported without
#: an error, a hang or slowness is mostly a wrong value. Chosen, not measured.
_SILENT = {"D.2.4": 1.2, "D.2.2": 0.4, "D.2.5": 0.4}
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
#: An error in the words of a program.
_ERROR = re.compile(r"\berror\b ?:|exception")
#: A frame of a traceback. It and the line of code after it hold no person's words.
_FRAME = re.compile(r"\s*File \"[^\"]+\", line \d+")
_DIGITS = re.compile(r"\d+")
#: A log that has some words more often prints them itself. Chosen, not measured.
_PROGRESS = 5
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
    message
        The entry of the catalogue, if the match is one.
    near
        Whether the entry only shares terms with the text (see `nearest`).
    learned
        Whether it is what the words of the text say (see `learned`).
    """

    says: str
    votes: Mapping[str, float] = field(hash=False)
    cause: str | None
    kind: ClueKind
    line: int
    rank: int | None
    words: str
    weight: float = 1.0
    raised: Raised | None = None
    cards: tuple[str, ...] = ()
    message: Message | None = None
    near: bool = False
    learned: bool = False

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
    code
        Positions of the frames of tracebacks and of their lines of code: no person's words.
    """

    lines: list[Line]
    lower: str
    starts: list[int]
    is_log: bool
    code: list[tuple[int, int]]

    @classmethod
    def of(cls, lines: list[Line]) -> Text:
        """Make a text from lines."""
        starts, at = [], 0
        lowered = ["" if _FORM.search(line.text) else line.text.lower() for line in lines]
        for text in lowered:
            starts.append(at)
            at += len(text) + 1
        return cls(lines, "\n".join(lowered), starts, _is_log(lines), _code(lines, starts))

    def line_at(self, offset: int) -> Line:
        """Return the line that contains a position of `lower`."""
        return self.lines[bisect.bisect_right(self.starts, offset) - 1]


def _code(lines: list[Line], starts: list[int]) -> list[tuple[int, int]]:
    """Return the positions of the frames of tracebacks and of their lines of code."""
    found = []
    after_frame = False
    for line, start in zip(lines, starts, strict=True):
        frame = _FRAME.match(line.text) is not None
        if frame or after_frame:
            found.append((start, start + len(line.text)))
        after_frame = frame
    return found


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
    known = _messages(text)
    spans = [
        _span(text, again)
        for entry, _ in known
        if entry.kind != "complaint"
        for again in _all(entry, text)
    ]
    # The words of a printed message are not a description by a person.
    no_words = [*spans, *text.code]
    known = [(entry, match) for entry, match in known if not _described_in(entry, match, no_words)]
    found = [
        *(_of_message(text, entry, match, raised) for entry, match in known),
        *_clues(text, spans),
        *_exceptions([one for one in raised if not _covers(spans, text, one)]),
        *_cards(text, spans),
    ]
    return _weighed([*found, *_by_elimination(found)], text)


def nearest_to(text: Text) -> list[Match]:
    """Return the entries of the catalogue near to a text, each with its share of the votes."""
    near = nearest.find(text.lower, messages())
    shares = nearest.votes(near)
    found = []
    for one in near:
        line = text.line_at(text.lower.index(one.word))
        found.append(
            Match(
                one.entry.means,
                {code: shares[code] for code in one.entry.symptoms},
                None,
                "context",
                line.number,
                line.rank,
                one.word,
                message=one.entry,
                near=True,
            )
        )
    return found


def by_words(text: Text, found: list[Match]) -> list[Match]:
    """Return what the words of a person's text say about its symptom; nothing for a log.

    Parameters
    ----------
    found
        What is known of the text; neither known messages nor lines of code are read again.
    """
    if text.is_log:
        return []
    rest = unexplained(text, [match.message for match in found if match.message is not None])
    votes, word = learned.votes(rest, raises_first(text, found))
    if not votes:
        return []
    line = text.line_at(rest.index(word))
    return [Match("", votes, None, "context", line.number, line.rank, word, learned=True)]


def unexplained(text: Text, known: Iterable[Message]) -> str:
    """Return a text in lower case with spaces for known messages and for lines of code."""
    spans = [*text.code]
    for entry in dict.fromkeys(known):
        if entry.kind != "complaint":
            spans += [_span(text, again) for again in _all(entry, text)]
    rest = text.lower
    for start, end in spans:
        rest = rest[:start] + " " * (end - start) + rest[end:]
    return rest


def raises(text: Text) -> bool:
    """Whether a rank printed an error, and not only the launcher about a rank."""
    own = (one for one in exceptions.find(text.lines) if one.error.type not in _OF_LAUNCHER)
    return any(own) or _ERROR.search(text.lower) is not None


def raises_first(text: Text, found: list[Match]) -> bool:
    """Whether a rank printed an error that does not follow from the end of another rank."""
    return raises(text) and not any(match.kind == "effect" for match in found)


def advisers(text: Text, found: list[Match]) -> list[Message]:
    """Return the entries near to a person's text in which no message names the cause."""
    named = any(
        match.message is not None
        and match.message.kind in ("error", "effect")
        and not match.message.general
        for match in found
    )
    return [] if text.is_log or named else nearest.advisers(text.lower, messages())


def _by_elimination(found: list[Match]) -> Iterator[Match]:
    """Yield a vote for wrong results if a text about training has no error, hang or slowness."""
    if found and all(match.kind == "context" and match.message is None for match in found):
        for match in found:
            if "D.2.4" in match.votes:
                yield replace(match, votes=_SILENT)
                return


def _messages(text: Text) -> list[tuple[Message, re.Match[str]]]:
    """Return the entries of the catalogue that the text contains, without the more general ones."""
    found = [(entry, match) for entry in messages() if (match := entry.find(text.lower))]
    general = frozenset().union(*(entry.over for entry, _ in found))
    return [(entry, match) for entry, match in found if entry.id not in general]


def _of_message(text: Text, entry: Message, match: re.Match[str], raised: list[Raised]) -> Match:
    strength = _MESSAGE[entry.kind]
    if entry.general:
        strength = min(strength, _GENERAL_MESSAGE)
    line = text.line_at(match.start())
    return Match(
        entry.means,
        {
            code: max(strength - _NEXT_SYMPTOM * place, _NEXT_SYMPTOM / 2)
            for place, code in enumerate(entry.symptoms)
        },
        entry.card,
        "context" if entry.kind == "warning" else entry.kind,
        line.number,
        line.rank,
        match[0],
        raised=next((one for one in raised if one.line == line.number), None),
        message=entry,
    )


def _described_in(entry: Message, match: re.Match[str], known: list[tuple[int, int]]) -> bool:
    inside = any(first <= match.start() < end for first, end in known)
    return inside and entry.kind == "complaint"


def _all(entry: Message, text: Text) -> Iterator[re.Match[str]]:
    """Yield the first places at which a message is printed; each rank may print it."""
    return itertools.islice(entry.pattern.finditer(text.lower), _PLACES)


def _span(text: Text, match: re.Match[str]) -> tuple[int, int]:
    """Return the positions in the same line that belong to a message."""
    start = text.lower.rfind("\n", 0, match.start()) + 1
    end = text.lower.find("\n", match.end())
    end = len(text.lower) if end < 0 else end
    return max(start, match.start() - _BEFORE), min(end, match.end() + _AFTER)


def _covers(spans: list[tuple[int, int]], text: Text, raised: Raised) -> bool:
    """Whether the message of an exception is known."""
    at = next((n for n, line in enumerate(text.lines) if line.number == raised.line), None)
    if at is None:
        return False
    last = min(len(text.lines) - 1, at + raised.error.message.count("\n"))
    start, end = text.starts[at], text.starts[last] + len(text.lines[last].text)
    return any(first <= end and start <= final for first, final in spans)


def _root_cause(text: Text) -> tuple[int, range] | None:
    """Return the rank that failed first according to torchrun's summary, and its lines."""
    match = _ROOT_CAUSE.search(text.lower)
    if match is None:
        return None
    first, last = text.line_at(match.start()).number, text.line_at(match.end()).number
    return int(match[1]), range(first, last + _SUMMARY)


def _clues(text: Text, known: list[tuple[int, int]]) -> Iterator[Match]:
    """Yield the clues outside of messages whose meaning is known."""
    no_words = [*known, *text.code]
    for clue in clues():
        if match := clue.find(text.lower, no_words if clue.kind == "complaint" else known):
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
    return any(clue.kind == "effect" and clue.find(message) for clue in clues())


def _cards(text: Text, known: list[tuple[int, int]]) -> Iterator[Match]:
    """Yield the messages of cards; the catalogue has the meaning of those that are in it."""
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
        start, end = text.starts[index], text.starts[index] + len(line.text)
        explained = any(first <= end and start <= final for first, final in known)
        only = len(ids) == 1 and index not in effects and not explained
        vote = _EXPLAINED_CARD if explained else _CARD
        symptoms = [faults.card(name).symptom for name in ids]
        card = faults.card(ids[0])
        yield Match(
            card.title if only else "",
            {code: vote * symptoms.count(code) / len(ids) for code in dict.fromkeys(symptoms)},
            card.id if only else None,
            "effect" if index in effects or explained else "error",
            line.number,
            line.rank,
            line.text.strip()[:_SHOWN],
            cards=ids,
        )


def _of_launcher(match: Match, summary: range) -> bool:
    """Whether the launcher reports it about the rank that failed first."""
    return match.line in summary or "exitcode" in match.words


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
            # Words such as "NCCL error" are less clear than the message of a known consequence.
            clear = (one for one in plain if one.raised or one.strength >= _MESSAGE["effect"])
            return any(clear) if match.message else bool(plain)
        if match.kind != "error" or not text.is_log:
            return False
        if errors_of_root and root is not None:
            return match.rank not in (root[0], None)
        return match.line > first

    return [
        replace(match, weight=_CONSEQUENCE if follows(match) else 1.0)
        for match in found
        if match.kind != "complaint" or not _by_program(match, text)
    ]


def _by_program(match: Match, text: Text) -> bool:
    """Whether a program printed the words of a complaint.

    One that prints "tokens/s" does not complain about its speed; only people complain.
    """
    repeated = text.is_log and text.lower.count(match.words.lower()) > _PROGRESS
    return match.rank is not None or repeated
