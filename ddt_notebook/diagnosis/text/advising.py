"""Finds what to change: for the cause, the versions that a text shows, and the framework."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from ddt_notebook.diagnosis import advice
from ddt_notebook.messages import Message
from ddt_notebook.model import Fix
from ddt_notebook.symptoms import loader as taxonomy

#: Number of pieces of advice that are shown. Chosen, not measured.
_FIXES = 4
#: Number of these that the message itself gives before the advice for its framework.
_OF_MESSAGES = 2
#: Number of these that entries near to the text give. With 1 or 3 instead of 2, advice names the
#: cause in as many or fewer of the reports that no entry was written from.
_OF_NEAR = 2
_GENERAL = "general"


@dataclass(frozen=True, slots=True)
class _Message:
    """Advice for a message that a change of version explains."""

    says: re.Pattern[str]
    symptoms: frozenset[str]
    frameworks: frozenset[str]
    pattern: str
    advice: str


def fixes(
    symptom: str,
    cause: str | None,
    messages: Sequence[Message],
    frameworks: Sequence[str],
    lower: str,
    rank: int,
    near: Sequence[Message] = (),
) -> list[Fix]:
    """Return what to change, the best first.

    First come fixes for the messages in the text, for messages that a change of version explains
    and for the cause; then the study's patterns for the symptom by their share, in the words of the
    text's framework.

    Parameters
    ----------
    symptom, cause
        Code of the symptom, and the cause if it is known.
    messages
        Entries of the catalogue that the text contains, the strongest first.
    frameworks
        Those that the text names, the outermost first.
    lower
        The text in lower case.
    rank
        The rank that caused the fault.
    near
        Entries near to the text, the nearest first. The first advice of those in the symptom's
        stage comes last, in place of more general advice.
    """
    known = _known(symptom, cause, messages, frameworks, lower, rank)
    added: list[Fix] = []
    for entry in near:
        pattern, text = entry.fixes[0]
        of_stage = any(code[0] == symptom[0] for code in entry.symptoms)
        said = {fix.advice for fix in [*known[: _FIXES - _OF_NEAR], *added]}
        if of_stage and text not in said:
            added.append(
                Fix(pattern=pattern, advice=text, share=_shares(symptom).get(pattern, 0.0))
            )
        if len(added) == _OF_NEAR:
            break
    return [*known[: _FIXES - len(added)], *added]


def _known(
    symptom: str,
    cause: str | None,
    messages: Sequence[Message],
    frameworks: Sequence[str],
    lower: str,
    rank: int,
) -> list[Fix]:
    """Return the advice for the messages, the cause and the symptom."""
    shares = _shares(symptom)
    chosen = advice.fixes(symptom, cause, rank=rank) if cause else []
    by_version = [
        Fix(pattern=message.pattern, advice=message.advice, share=shares.get(message.pattern, 0.0))
        for message in _messages(symptom, frameworks, lower)
    ]
    of_messages = [
        Fix(pattern=pattern, advice=text, share=shares.get(pattern, 0.0))
        for message in messages
        for pattern, text in message.fixes
    ]
    first = [*by_version, *chosen]
    known = {fix.pattern for fix in first}
    if of_messages:
        of_framework = [fix for fix, own in _by_pattern(symptom, frameworks, shares) if own]
        best, more = of_messages[:_OF_MESSAGES], of_messages[_OF_MESSAGES:]
        return [*by_version, *best, *of_framework[:1], *more, *chosen][:_FIXES]
    rest = [
        fix
        for fix, own in _by_pattern(symptom, frameworks, shares)
        if own or fix.pattern not in known
    ]
    return [*first, *sorted(rest, key=lambda fix: -fix.share)][:_FIXES]


def _shares(symptom: str) -> dict[str, float]:
    return {pattern.pattern: pattern.share for pattern in taxonomy.fixes(symptom)}


def _messages(symptom: str, frameworks: Sequence[str], lower: str) -> Iterator[_Message]:
    for message in _versions():
        named = not message.frameworks or not message.frameworks.isdisjoint(frameworks)
        if symptom in message.symptoms and named and message.says.search(lower):
            yield message


def _by_pattern(
    symptom: str, frameworks: Sequence[str], shares: dict[str, float]
) -> Iterator[tuple[Fix, bool]]:
    """Yield one fix for each pattern, and whether it is of a framework (the outermost first)."""
    seen: set[str] = set()
    names = [*frameworks]
    if "keras" in names and not {"tensorflow", "pytorch"} & {*names}:
        names.append("tensorflow")  # Keras ran on it for most of its history
    for name in (*names, _GENERAL):
        for entry in _table(name).get(symptom, []):
            pattern = entry["pattern"]
            if pattern not in seen:
                seen.add(pattern)
                share = shares.get(pattern, 0.0)
                yield Fix(pattern=pattern, advice=entry["advice"], share=share), name != _GENERAL


@functools.cache
def _table(framework: str) -> dict[str, list[dict[str, str]]]:
    """Return the advice for one framework, by symptom; empty if it has none."""
    file = resources.files(__package__).joinpath("advice", f"{framework}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


@functools.cache
def _versions() -> tuple[_Message, ...]:
    file = resources.files(__package__).joinpath("advice", "versions.toml")
    return tuple(
        _Message(
            re.compile(entry["says"]),
            frozenset(entry["symptoms"]),
            frozenset(entry.get("framework", ())),
            entry["pattern"],
            entry["advice"],
        )
        for entry in tomllib.loads(file.read_text(encoding="utf-8"))["message"]
    )
