"""Tables: in columns for a terminal, and as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import text, words

_GAP = 2
_NARROWEST = 12


def columns(
    rows: Sequence[Sequence[str]],
    head: Sequence[str],
    right: Sequence[int] = (),
    *,
    indent: int = 2,
) -> list[str]:
    """Lines of at most 80 columns: what does not fit is shortened in the middle.

    Parameters
    ----------
    rows, head
        The cells and the titles of the columns.
    right
        Numbers of the columns that are aligned right.
    indent
        Blanks before each line.
    """
    cells = [[words.middle(cell, text.WIDTH) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    while indent + sum(widths) + _GAP * (len(widths) - 1) > text.WIDTH:
        widest = max(range(len(widths)), key=lambda at: widths[at])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    lines = []
    for row in cells:
        shown = [words.middle(cell, width) for cell, width in zip(row, widths, strict=True)]
        padded = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(shown, widths, strict=True))
        ]
        lines.append(f"{' ' * indent}{(' ' * _GAP).join(padded)}".rstrip())
    return lines


def frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """A pandas DataFrame; imports pandas on first use."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns))
