"""A clue: words of a text, and what they speak for."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .vocabulary import expand

#: ``error``: says what is wrong; ``effect``: what other ranks print when one has failed;
#: ``context``: what was being done; ``complaint``: what somebody reports in their own words.
Kind = Literal["error", "effect", "context", "complaint"]


@dataclass(frozen=True, slots=True)
class Clue:
    """A pattern, and how strongly it speaks for each symptom.

    Attributes
    ----------
    says
        What the text tells, as the title of a finding; empty if that is no title.
    pattern
        Regular expression over the text in lower case. Alternatives of the whole pattern are
        separated by line breaks; `vocabulary` explains what stands in ``<>``.
    votes
        Code of a symptom to the logarithm of the odds for it.
    cause
        Id of a cause that the words tell, if they tell one.
    kind
        See `Kind`.
    apart
        The pattern counts only where this one is not on the same line.
    """

    says: str
    pattern: str
    votes: Mapping[str, float] = field(hash=False)
    cause: str | None = None
    kind: Kind = "error"
    apart: str = ""

    def find(self, text: str) -> re.Match[str] | None:
        """The first place in a text in lower case."""
        found = [match for branch in _branches(self.pattern) if (match := branch.search(text))]
        for match in sorted(found, key=lambda m: m.start()):
            if not self.apart or not _branches(self.apart)[0].search(line_of(text, match)):
                return match
        return None


@functools.cache
def _branches(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Each alternative for itself: one that begins with plain letters is found much faster."""
    return tuple(re.compile(expand(line)) for line in pattern.split("\n") if line)


def line_of(text: str, match: re.Match[str]) -> str:
    """The line in which a match begins."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.start())
    return text[start:] if end < 0 else text[start:end]
