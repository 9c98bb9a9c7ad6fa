"""The flags of a view: sentences above its table that name what is wrong or odd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import html, safe, terminal, words
from .html import Markup

#: Flags shown; the rest is counted.
SHOWN = 8

_SYMBOLS = {"error": "✖", "warning": "▲", "hint": "?"}


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that is wrong or worth checking.

    Attributes
    ----------
    kind
        ``"error"``: it is wrong. ``"warning"``: it is likely to be. ``"hint"``: it may be intended.
    text
        One sentence: what was seen, and what to do.
    """

    kind: Literal["error", "warning", "hint"]
    text: str


def ordered(flags: Sequence[Flag]) -> list[Flag]:
    """The most severe first, each once."""
    return sorted(dict.fromkeys(flags), key=lambda flag: list(_SYMBOLS).index(flag.kind))


def to_text(flags: Sequence[Flag], healthy: str) -> list[str]:
    """Lines for a terminal; ``healthy`` is the line for a view without flags."""
    if not flags:
        return terminal.wrap("", f"ok · {healthy}")
    lines = []
    for flag in flags[:SHOWN]:
        first, *rest = terminal.wrap("", safe.one_line(flag.text, 600))
        lines += [f"{_SYMBOLS[flag.kind]} {first[2:]}", *rest]
    return lines + ([f"  and {_more(flags)}"] if len(flags) > SHOWN else [])


def as_lines(flags: Sequence[Flag], healthy: str, limit: int = 3) -> list[str]:
    """One line for each of the most severe flags, such as above a figure."""
    if not flags:
        return [f"ok · {safe.one_line(healthy, 300)}"]
    lines = [f"{_SYMBOLS[f.kind]} {safe.one_line(f.text, 300)}" for f in flags[:limit]]
    return lines + ([f"and {len(flags) - limit} more"] if len(flags) > limit else [])


def to_html(flags: Sequence[Flag], healthy: str) -> list[Markup]:
    """Lines for a notebook."""
    if not flags:
        return [html.line(html.chip("✓", "ok", "ok"), f" {healthy}")]
    lines = [
        html.line(html.chip(_SYMBOLS[f.kind], f.kind, f.kind), f" {safe.one_line(f.text, 600)}")
        for f in flags[:SHOWN]
    ]
    return lines + ([html.line(f"and {_more(flags)}")] if len(flags) > SHOWN else [])


def _more(flags: Sequence[Flag]) -> str:
    return f"{words.count(len(flags) - SHOWN, 'more')} of this kind"
