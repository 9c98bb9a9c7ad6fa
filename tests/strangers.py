"""Strings that a stranger could put into a run, a file or a log, and runs full of them."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from ddt_notebook.model import FormatError, Snapshot

from .fixtures.cases import FOLDER

#: Each is harmless as text. ``pwn()`` is a function of the page in the browser's test.
CORPUS = {
    "script": "<script>pwn(1)</script>",
    "image": "<img src=x onerror=pwn(2)>",
    "end of an attribute": "\"' onmouseover=pwn(3) x='",
    "end of a style sheet": "</style></pre></table></details><svg onload=pwn(4)>",
    "link": '<a href="javascript:pwn(5)">click</a>',
    "Markdown": "[click](javascript:pwn(6)) ![x](x'onerror='pwn(6)) `</span><iframe srcdoc=x>`",
    "entities": "&lt;script&gt;pwn(7)&lt;/script&gt; &#60;img src=x onerror=pwn(7)&#62;",
    "comment": "<!--><script>pwn(8)</script>--><![CDATA[<script>pwn(8)</script>]]>",
    "template": "{{pwn(9)}} ${pwn(9)} %s %(name)s {0.__class__}",
    "colour": "\x1b[31mred\x1b[2J\x1b[H",
    "title of the terminal": "\x1b]0;owned\x07",
    "link of the terminal": "\x1b]8;;http://evil.invalid\x1b\\text\x1b]8;;\x1b\\",
    "clipboard of the terminal": "\x1b]52;c;cm0gLXJm\x07",
    "control codes of eight bits": "\x9b31m\x9d0;owned\x9c\x90q\x9c",
    "unfinished control sequences": "\x1b\x1b[m[31m \x1b]0;a\x1b]52;c;b \x1bP+q\x1b",
    "over the line": "safe\rEVIL\x08\x08\x7f\x00\x0b\x0c\x85\u2028\u2029",
    "direction": "\u202egnp.exe\u202c \u2066x\u2069 \u200f\u200e\u061c",
    "half a letter": "\ud800\udfff",
    "long": "y" * 20_000 + "<script>pwn(10)</script>",
}

#: Marks that change the direction of what follows.
DIRECTION = {chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
DIRECTION |= {"\u200e", "\u200f", "\u061c"}


def unsafe(text: str) -> set[str]:
    """What a terminal would obey in a text."""
    return {
        letter
        for letter in set(text)
        if letter in DIRECTION
        or letter in "\u2028\u2029"
        or (unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t")
    }


def infected(plain: Any, stranger: str) -> Snapshot:
    """A saved run with a string behind every text in it that may be any text.

    Equal texts stay equal, so what belonged together still does.
    """
    fixed: set[str] = set()
    names = _names(plain)
    for name in sorted(names):
        try:
            Snapshot.from_json(_with(plain, stranger[:1000], names - {name}))
        except FormatError:
            fixed.add(name)
    return Snapshot.from_json(_with(plain, stranger, fixed))


def _names(plain: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(plain, dict):
        for name, item in plain.items():
            found |= ({name} if _is_text(item) else set()) | _names(item)
    elif isinstance(plain, list):
        for item in plain:
            found |= _names(item)
    return found


def _is_text(item: Any) -> bool:
    while isinstance(item, list) and item:
        item = item[0]
    return isinstance(item, str)


def _with(plain: Any, stranger: str, fixed: set[str], name: str = "") -> Any:
    if isinstance(plain, dict):
        return {key: _with(item, stranger, fixed, key) for key, item in plain.items()}
    if isinstance(plain, list):
        return [_with(item, stranger, fixed, name) for item in plain]
    if isinstance(plain, str) and name not in fixed:
        return plain + stranger
    return plain


def texts_in(value: Any) -> list[str]:
    """All strings in plain data."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts_in(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in texts_in(item)]
    return []


def plain_of(path: Any) -> Any:
    """The content of a saved run."""
    return json.loads(path.read_text(encoding="utf-8"))


#: Saved runs that together have something to show in every view.
_RUNS = ("one-rank-skips-all-reduce", "died-by-sigkill", "evaluations-that-count-each-sample-once")


def runs() -> list[tuple[str, Any]]:
    """Saved runs with their names."""
    return [(name, plain_of(FOLDER / f"{name}.ddt.json")) for name in _RUNS]
