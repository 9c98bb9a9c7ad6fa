"""A change of a cell, line by line: the sign in front marks a removed or added line."""

from __future__ import annotations

import difflib

from . import html, safe
from .html import Markup

#: Unchanged lines around a change.
CONTEXT = 2


def lines(before: str, after: str, context: int = CONTEXT) -> list[str]:
    """``- old``, ``+ new`` and ``  kept``; ``…`` where unchanged lines are left out."""
    found: list[str] = []
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), n=context, lineterm="")
    for number, line in enumerate(changes):
        if number < 2:  # the names of the files
            continue
        if line.startswith("@@"):
            if found:
                found.append("…")
        else:
            found.append(f"{line[0]} {line[1:]}".rstrip())
    return found


def as_text(before: str, after: str, indent: str = "    ") -> list[str]:
    """The change for a terminal."""
    return [indent + safe.clean(safe.bounded(line, 200)) for line in lines(before, after)]


def as_html(before: str, after: str, context: int = CONTEXT) -> Markup:
    """The change for a notebook: changed lines are bold, and their edges have colours."""
    rows = []
    for line in lines(before, after, context):
        shown = html.escape(safe.bounded(line, 2 * safe.LINE_LIMIT) or " ")
        if line.startswith(("+", "-")):
            edge = html.COLOURS["ok" if line.startswith("+") else "error"]
            style = f"border-left:3px solid {edge};padding-left:6px"
            rows.append(html.tag("div", html.tag("b", shown), style=style))
        else:
            rows.append(html.tag("div", shown, style="padding-left:9px"))
    style = (
        "font-family:monospace;font-size:0.95em;white-space:pre;line-height:1.35;"
        f"margin:2px 0 6px 0;padding:4px 8px;overflow-x:auto;"
        f"border-left:2px solid {html.COLOURS['line']}"
    )
    return html.tag("div", *rows, style=style, role="pre")
