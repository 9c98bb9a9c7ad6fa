"""Makes text of ranks, files and users safe to show, and bounds its length.

Each view passes what it did not write itself through one of these functions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

#: The longest line of foreign text (code, messages, evidence) that a view shows whole.
LINE_LIMIT = 400
#: The longest block of foreign text (a traceback) that a view shows whole.
BLOCK_LIMIT = 20_000

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: Letters that reverse the direction of text, so that code could look like other code.
_MARKS = (0x200E, 0x200F, 0x061C)
_DIRECTION = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), *_MARKS])
#: Control characters, halves of letters, and separators at which terminals may break a line.
_NOT_TEXT = frozenset({"Cc", "Cs", "Zl", "Zp"})


def clean(text: str) -> str:
    """Foreign text without terminal codes; other control characters become visible."""
    text = _ANSI.sub("", text).translate(_DIRECTION)
    if text.isprintable():
        return text
    return "".join(
        chr(0x2400 + ord(letter))
        if ord(letter) < 32 and letter not in "\n\t"
        else "�"
        if unicodedata.category(letter) in _NOT_TEXT and letter not in "\n\t"
        else letter
        for letter in text
    )


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Foreign text as one line of bounded length."""
    return bounded(" ".join(clean(text[: 4 * limit + 1000]).split()), limit, len(text))


def block(text: str, limit: int = BLOCK_LIMIT) -> str:
    """Foreign text of several lines, bounded; it keeps the end, which matters in a traceback."""
    if len(text) > limit:
        head, tail = limit // 4, limit - limit // 4
        left_out = f"\n… {len(text) - limit:,} characters left out …\n"
        text = text[:head] + left_out + text[-tail:]
    return "\n".join(bounded(line, 2 * LINE_LIMIT) for line in clean(text).splitlines())


def bounded(text: str, limit: int, length: int | None = None) -> str:
    """Cut a text at ``limit`` and say how much is missing (of ``length``, if it was cut before)."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({max(length or 0, len(text)) - limit:,} more characters)"


def middle(text: str, limit: int = 32) -> str:
    """A name of bounded length that keeps its beginning and its end."""
    text = " ".join(
        clean(text[: 2 * limit] + text[-2 * limit :] if len(text) > 4 * limit else text).split()
    )
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[-(limit - 1 - head) :]}"


def listing(items: Iterable[str], limit: int = 4, between: str = ", ") -> str:
    """The first few different items: ``cpu, cuda:0 and 2 more``."""
    unique = list(dict.fromkeys(items))
    shown = between.join(middle(item, 60) for item in unique[:limit])
    return f"{shown} and {len(unique) - limit} more" if len(unique) > limit else shown
