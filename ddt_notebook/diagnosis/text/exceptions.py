"""Finds the exceptions in a text: tracebacks line by line, and quoted exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddt_notebook.model import Position, RankError
from ddt_notebook.model.user_code import is_user_code

from .lines import Line, by_rank

HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)(?:, in (.+))?')
_LAST = re.compile(r"((?:\w+\.)*\w+)(?:: (.*))?$")
_QUOTED = re.compile(
    r"\b([A-Z]\w{0,60}?(?:Error|Exception|Interrupt|Exit|StopIteration))(?:: ?(.*))?"
)
#: Lines of a message after the one with its type, and read characters of a line; chosen, not
#: measured. They bound the time that a text without line breaks takes.
_MESSAGE = 12
_LINE = 2000


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception and its place in the text.

    Attributes
    ----------
    error
        Type, message and stack.
    line
        Number of the line with its type.
    rank
        The rank that printed it, None if unknown.
    """

    error: RankError
    line: int
    rank: int | None


def find(lines: list[Line]) -> list[Raised]:
    """Return all exceptions in the order in which they are printed."""
    found: dict[int, Raised] = {}
    for own in by_rank(lines).values():
        for raised in _of_rank(own):
            found.setdefault(raised.line, raised)
    return [found[number] for number in sorted(found)]


def _of_rank(lines: list[Line]) -> Iterator[Raised]:
    index = 0
    while index < len(lines):
        text = lines[index].text
        if HEAD in text and text.rstrip().rstrip(":").endswith(")"):
            raised, index = _traceback(lines, index)
            if raised is not None:
                yield raised
            continue
        if match := _QUOTED.search(text):
            error = RankError(type=match[1].rpartition(".")[2], message=match[2] or "")
            yield Raised(error, lines[index].number, lines[index].rank)
        index += 1


def _traceback(lines: list[Line], start: int) -> tuple[Raised | None, int]:
    """Return the exception whose traceback begins here, and the index of the line after it."""
    indent = lines[start].text.find(HEAD)
    frames: list[Position] = []
    index = start + 1
    while index < len(lines):
        text = lines[index].text[indent:] if indent else lines[index].text
        if match := _FRAME.match(text):
            code = lines[index + 1].text.strip() if index + 1 < len(lines) else ""
            frames.append(
                Position(
                    file=match[1],
                    line=int(match[2]),
                    function=match[3] or "<module>",
                    code="" if _FRAME.match(code) else code,
                )
            )
        elif text.strip() and not text.startswith((" ", "\t")):
            break
        index += 1
    if index >= len(lines):
        return None, index
    text = lines[index].text[indent:] if indent else lines[index].text
    match = _LAST.match(text.strip()[:_LINE])
    if match is None or not match[1]:
        return None, index + 1
    message = [match[2] or ""]
    end = index + 1
    while end < len(lines) and end - index <= _MESSAGE and lines[end].text.startswith((" ", "\t")):
        message.append(lines[end].text)
        end += 1
    user = [frame for frame in frames if is_user_code(frame.file)]
    error = RankError(
        type=match[1].rpartition(".")[2],
        message="\n".join(message),
        where=user[-1] if user else None,
        frames=tuple(frames),
    )
    return Raised(error, lines[index].number, lines[index].rank), end
