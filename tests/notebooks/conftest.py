"""Notebooks as the tests read them."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@functools.cache
def read(path: Path) -> NotebookNode:
    """A notebook, valid by its format."""
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    return book


def prose(book: NotebookNode) -> str:
    """All markdown of a notebook."""
    return "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")


def sections(book: NotebookNode) -> dict[str, list[NotebookNode]]:
    """The cells below each heading of the second level, which may stand in their middle."""
    found: dict[str, list[NotebookNode]] = {"": []}
    name = ""
    for cell in book.cells:
        if cell.cell_type != "markdown":
            found[name].append(cell)
            continue
        pieces = re.split(
            r"^## (.+)$", FENCE.sub(_without_headings, cell.source), flags=re.MULTILINE
        )
        for piece, heading in zip(pieces[::2], ["", *pieces[1::2]], strict=True):
            name = heading.strip() or name
            found.setdefault(name, [])
            if piece.strip():
                found[name].append(nbformat.v4.new_markdown_cell(piece))
    return found


def _without_headings(fence: re.Match[str]) -> str:
    return re.sub(r"^#", "\u200b#", fence[0], flags=re.MULTILINE)


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of notebooks."""
    return root / "notebooks"
