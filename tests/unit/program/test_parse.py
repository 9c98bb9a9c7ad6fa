"""Cells and files become syntax trees with the line numbers that the user sees."""

from __future__ import annotations

import ast

import pytest

from ddt_notebook.model import Cell
from ddt_notebook.program.parse import Document, parse, without_cell_magic, without_magics


def test_a_cell_keeps_the_line_numbers_of_the_notebook() -> None:
    document = Document.of(Cell(number=3, source="x = 1\nif rank == 0:\n    y = 2", first_line=2))
    tree = parse(document)
    assert tree is not None
    assert [node.lineno for node in tree.body] == [2, 3]
    assert document.label(3) == "cell[3] line 3: if rank == 0:"
    assert document.line(1) == document.line(5) == ""


def test_a_file_is_a_document_too() -> None:
    document = Document("train.py", "import torch\n")
    assert parse(document) is not None
    assert document.label(1) == "train.py line 1: import torch"


@pytest.mark.parametrize(
    "line",
    ["%matplotlib inline", "!pip list", "out = !ls", "files, rest = %sx ls", "model?", "x.y??"],
)
def test_lines_that_only_ipython_understands_do_nothing(line: str) -> None:
    source = f"if ready:\n    {line}\nlast = 1"
    tree = parse(Document("cell[1]", source))
    assert tree is not None
    assert isinstance(tree.body[0], ast.If)
    assert isinstance(tree.body[0].body[0], ast.Pass)
    assert tree.body[1].lineno == 3


def test_timed_statements_are_kept() -> None:
    assert without_magics("%time dist.barrier()\n  %timeit f()") == "dist.barrier()\n  f()"


def test_a_percent_sign_at_the_start_of_a_line_may_be_an_operator() -> None:
    tree = parse(Document("cell[1]", "text = ('rank %d'\n    % rank)"))
    assert tree is not None
    assert len(tree.body) == 1


@pytest.mark.parametrize("source", ["def f(:", "x = \0", "(" * 5000])
def test_text_that_is_not_python_has_no_tree(source: str) -> None:
    assert parse(Document("cell[1]", source)) is None


def test_the_line_of_a_cell_magic_is_removed_once() -> None:
    assert without_cell_magic("%%ddt -r 0\nx = 1\n%%time") == "x = 1\n%%time"
    assert without_cell_magic("x = 1\n%%ddt\n") == "x = 1\n%%ddt\n"
