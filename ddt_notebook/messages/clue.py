"""Clues: words in a text that support symptoms without saying what a message means.

They are the tables in ``clues/*.toml``, by the stage that they speak of. A clue has `patterns`, one
on a line, which may contain abbreviations that `expand` replaces:

``<hang>``
    A group of words in ``clues/groups.toml``, which reports use with the same meaning.
``<40>``
    At most 40 characters of the same line.
``<40.>``
    At most 40 characters of the same sentence.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

from .fragments import searched

#: ``error``: the text names the error; ``effect``: a rank reports that another one failed or is
#: missing; ``context``: what was being done; ``complaint``: a person describes the problem.
ClueKind = Literal["error", "effect", "context", "complaint"]
_GROUPS = "groups.toml"


@dataclass(frozen=True, slots=True)
class Clue:
    """Patterns, and how strongly they support each symptom.

    Attributes
    ----------
    says
        The meaning of the text as the title of a finding; empty if the words make no title.
    patterns
        Regular expressions for the text in lower case, one on a line.
    votes
        Maps the code of a symptom to the logarithm of the odds that the words give it.
    cause
        Id of the cause that the words name, None without one.
    kind
        See `ClueKind`.
    apart
        A match does not count if this pattern matches the same line.
    """

    says: str
    patterns: str
    votes: Mapping[str, float] = field(hash=False)
    cause: str | None = None
    kind: ClueKind = "error"
    apart: str = ""

    def find(self, text: str, known: Sequence[tuple[int, int]] = ()) -> re.Match[str] | None:
        """Return the first match in a text, which must be in lower case.

        Parameters
        ----------
        known
            Positions in the text whose meaning is known; a match that begins there does not count.
        """
        found = [
            match
            for branch, needed in _branches(self.patterns)
            if not needed or any(part in text for part in needed)
            if (match := _outside(branch, text, known))
        ]
        for match in sorted(found, key=lambda m: m.start()):
            if not self.apart or not _branches(self.apart)[0][0].search(line_of(text, match)):
                return match
        return None


@functools.cache
def clues() -> tuple[Clue, ...]:
    """Return all clues, by file and in the order of each file."""
    files = sorted(_folder().iterdir(), key=lambda file: file.name)
    return tuple(
        Clue(**table)
        for file in files
        if file.name.endswith(".toml") and file.name != _GROUPS
        for table in tomllib.loads(file.read_text(encoding="utf-8"))["clue"]
    )


def _folder() -> Traversable:
    return resources.files(__package__).joinpath("clues")


def _outside(
    pattern: re.Pattern[str], text: str, known: Sequence[tuple[int, int]]
) -> re.Match[str] | None:
    """Return the first match that does not begin in one of the known parts of the text."""
    match = pattern.search(text)
    while match is not None:
        start = match.start()
        end = max((end for first, end in known if first <= start < end), default=None)
        if end is None:
            return match
        match = pattern.search(text, end)
    return None


@functools.cache
def _branches(patterns: str) -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Return each pattern, and texts of which each of its matches contains one."""
    expanded = [expand(line) for line in patterns.split("\n") if line]
    return tuple((re.compile(line), searched(line)[0]) for line in expanded)


def line_of(text: str, match: re.Match[str]) -> str:
    """Return the line in which a match begins."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.start())
    return text[start:] if end < 0 else text[start:end]


_NAME = re.compile(r"<([a-z ]+)>")
_GAP = re.compile(r"<(\d+)(\.?)>")
#: An unlimited repetition before a gap takes quadratic time on a long word. It is not needed,
#: because the gap matches the rest of the word.
_WORD_BEFORE_GAP = re.compile(r"\\w\*(?=[^()|]?<\d)")
_REST_OF_WORD = re.compile(r"\\w\*")


@functools.cache
def _groups() -> Mapping[str, str]:
    """Return the pattern of each group; a group may name those before it."""
    found: dict[str, str] = {}
    text = _folder().joinpath(_GROUPS).read_text(encoding="utf-8")
    for name, pattern in tomllib.loads(text).items():
        found[name] = _named(pattern, found)
    return found


def _named(pattern: str, groups: Mapping[str, str]) -> str:
    return _NAME.sub(lambda match: groups.get(match[1], match[0]), pattern)


def expand(pattern: str) -> str:
    """Return the regular expression for a pattern; unknown names in ``<>`` are kept."""
    named = _named(pattern, _groups())
    plain = _REST_OF_WORD.sub(r"\\w{0,20}", _WORD_BEFORE_GAP.sub("", named))
    return _GAP.sub(lambda match: rf"[^\n{match[2]}]{{0,{match[1]}}}", plain)
