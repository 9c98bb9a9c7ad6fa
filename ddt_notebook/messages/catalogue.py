"""Reads the entries of the catalogue, which are tables in the TOML files of this folder.

A table's name is the entry's id. Its keys are the fields of `Message`, with these differences:

``says``
    Regular expression on the text in lower case. Without it, the literal ``words`` are searched.
``words``
    Fragments of the message as its source has them; the tests look them up in the installed torch.
``fixes``
    Pairs of a fix pattern of the study and advice, the best first.
``over``
    The ids of more general entries that do not count where this one matches.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from .fragments import lines_with, searched

#: ``error``: the message names the cause; ``effect``: it reports what another failure caused, or
#: only that something failed; ``warning``: the run goes on after it; ``complaint``: a person
#: describes the problem, and nothing is raised.
Kind = Literal["error", "effect", "warning", "complaint"]
#: The file of the complaints.
_DESCRIPTIONS = "descriptions"


@dataclass(frozen=True, slots=True)
class Message:
    """A message, its cause, how to confirm it, and what to change.

    Attributes
    ----------
    id
        Lower-case words joined by hyphens.
    raiser
        Name of the file: who raises it.
    says
        Regular expression that is searched for in a text in lower case.
    symptoms
        Codes of the taxonomy, the most likely first.
    kind
        See `Kind`.
    general
        Whether the message is printed for many causes, so that any other message says more.
    means
        The cause, as a clause that can be the title of a finding.
    check
        What to look at to confirm it.
    fixes
        Pairs of the study's fix pattern and our advice, the best first.
    card
        The fault card of this cause, None without one.
    over
        More general entries that do not count if this one matches.
    words
        Fragments of the message as in its source; none for a complaint.
    older
        Whether only versions of torch before the pinned one raise it.
    source
        The file, and mostly the function, that raises it.
    thread
        A public discussion in which the cause was confirmed, None without one.
    cause_elsewhere
        Whether the message has no cause of its own, so that no thread can confirm one: it reports
        that something failed, and another line of the output names the cause.
    result_of
        The function of the user that gave no result; empty if it is about something else.
    example, unlike
        A text that matches, and texts with similar words that do not.
    fragments
        Each text that matches contains one of them; none if that is not known.
    within_line
        Whether no match goes over the end of a line, so that only lines with a fragment are
        searched.
    """

    id: str
    raiser: str
    says: str
    symptoms: tuple[str, ...]
    kind: Kind
    general: bool
    means: str
    check: str
    fixes: tuple[tuple[str, str], ...]
    card: str | None
    over: frozenset[str]
    words: tuple[str, ...]
    older: bool
    source: str
    thread: str | None
    cause_elsewhere: bool
    result_of: str
    example: str
    unlike: tuple[str, ...]
    fragments: tuple[str, ...] = ()
    within_line: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """What is searched for; compiled at its first use, because few texts need many entries."""
        return _compiled(self.says)

    def find(self, lower: str) -> re.Match[str] | None:
        """Return the first match in a text, which must be in lower case."""
        if not self.fragments:
            return self.pattern.search(lower)
        if not self.within_line:
            known = any(fragment in lower for fragment in self.fragments)
            return self.pattern.search(lower) if known else None
        for start, end in lines_with(self.fragments, lower):
            if match := self.pattern.search(lower, start, end):
                return match
        return None


@cache
def _compiled(says: str) -> re.Pattern[str]:
    return re.compile(says)


@cache
def messages() -> tuple[Message, ...]:
    """Return all entries, by file and in the order of each file."""
    folder = resources.files(__package__)
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(
        _message(name, file.name.removesuffix(".toml"), entry)
        for file in files
        for name, entry in tomllib.loads(file.read_text(encoding="utf-8")).items()
    )


def message(name: str) -> Message:
    """Return the entry with this id; raises `KeyError` if there is none."""
    return _by_id()[name]


@cache
def _by_id() -> dict[str, Message]:
    return {entry.id: entry for entry in messages()}


def _message(name: str, raiser: str, entry: dict[str, Any]) -> Message:
    words = tuple(entry.get("words", ()))
    says = entry.get("says") or "|".join(re.escape(fragment.lower()) for fragment in words)
    found, within_line = searched(says)
    return Message(
        id=name,
        raiser=raiser,
        says=says,
        symptoms=tuple(entry["symptoms"]),
        kind=entry.get("kind", "complaint" if raiser == _DESCRIPTIONS else "error"),
        general=entry.get("general", False),
        means=entry["means"],
        check=entry["check"],
        fixes=tuple((pattern, advice) for pattern, advice in entry["fixes"]),
        card=entry.get("card"),
        over=frozenset(entry.get("over", ())),
        words=words,
        older=entry.get("older", False),
        source=entry["source"],
        thread=entry.get("thread"),
        cause_elsewhere=entry.get("cause_elsewhere", False),
        result_of=entry.get("result_of", ""),
        example=entry["example"],
        unlike=tuple(entry["unlike"]),
        fragments=found,
        within_line=within_line,
    )
