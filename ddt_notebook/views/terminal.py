"""Text for a terminal: width, colours, labelled paragraphs, and tables in columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from . import safe, words

#: Characters of a line.
WIDTH = 80
#: Blanks between columns.
GAP = 2
_NARROWEST = 12
_CODES = {"bold": "1", "red": "1;31", "yellow": "1;33", "green": "1;32", "blue": "1;34", "dim": "2"}


class Style:
    """Colours a text with ANSI codes, or leaves it as it is."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, name: str, text: str) -> str:
        """The text in a named style."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self._colour and text else text


def wrap(label: str, text: str, style: Style | None = None, width: int = WIDTH) -> list[str]:
    """A labelled paragraph; continuation lines begin below its first word."""
    indent = "  " if not label else " " * 7
    lines = textwrap.wrap(
        safe.clean(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    ) or [indent]
    if label:
        shown = f"{label:<4}"
        lines[0] = f"  {style('bold', shown) if style else shown} {lines[0][7:]}"
    return lines


def labelled(label: str, items: list[str], limit: int, style: Style | None = None) -> list[str]:
    """Paragraphs under one label; those beyond the limit are counted."""
    shown = [safe.one_line(item) for item in items[:limit]]
    if len(items) > limit:
        shown.append(f"and {words.count(len(items) - limit, 'more fact')}")
    return [
        line
        for number, item in enumerate(shown)
        for line in (wrap(" ", item) if number else wrap(label, item, style))
    ]


def columns(
    rows: Sequence[Sequence[str]],
    head: Sequence[str],
    right: Sequence[int] = (),
    *,
    indent: int = 2,
) -> list[str]:
    """Lines of at most 80 columns; longer content is shortened in the middle.

    Parameters
    ----------
    rows, head
        The cells and the titles of the columns.
    right
        Numbers of the columns that are aligned right.
    indent
        Blanks before each line.
    """
    cells = [[safe.middle(cell, WIDTH) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    while indent + sum(widths) + GAP * (len(widths) - 1) > WIDTH:
        widest = max(range(len(widths)), key=lambda at: widths[at])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    lines = []
    for row in cells:
        shown = [safe.middle(cell, width) for cell, width in zip(row, widths, strict=True)]
        padded = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(shown, widths, strict=True))
        ]
        lines.append(f"{' ' * indent}{(' ' * GAP).join(padded)}".rstrip())
    return lines


def aligned(rows: Sequence[Sequence[str]], limit: int = WIDTH) -> list[str]:
    """Rows in columns as wide as their content; rows beyond ``limit`` are counted.

    Unlike `columns`, it leaves foreign text as it is: the caller has cleaned it.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(safe.bounded(f"  {(' ' * GAP).join(cells)}".rstrip(), limit))
    return lines
