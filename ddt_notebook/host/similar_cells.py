"""Tells whether a cell is another version of one that ran before."""

from __future__ import annotations

from difflib import SequenceMatcher

from ..model import Cell

#: The share of the earlier cell's lines that another version of it still has.
_KEPT = 0.6


def is_version_of(cell: Cell, earlier: Cell) -> bool:
    """Whether a cell is an earlier one, as it was or changed."""
    if cell.file or earlier.file:
        return cell.file == earlier.file
    before, lines = _lines(earlier), _lines(cell)
    matches = SequenceMatcher(None, before, lines, autojunk=False).get_matching_blocks()
    return sum(match.size for match in matches) >= _KEPT * len(before)


def _lines(cell: Cell) -> list[str]:
    return [line.strip() for line in cell.source.splitlines() if line.strip()]
