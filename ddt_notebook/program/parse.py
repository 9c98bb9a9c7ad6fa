"""The documents of a program and their syntax trees."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from dataclasses import dataclass

from ddt_notebook.model import Cell

#: Lines that only IPython understands: ``%time x``, ``!ls``, ``out = !ls``, ``model?``.
_MAGIC_LINE = re.compile(r"^(\s*)(?:[%!?]|\w[\w, ]*=\s*[%!]).*$|^(\s*)[\w.]+\?{1,2}\s*$")
#: Line magics that run the Python statement after them.
_TIMED = re.compile(r"^(\s*)%(?:time|timeit)\s+(.*)$")
_EXERCISE = re.compile(r"#\s*exercise:\s*([\w-]+)")
_OUR_MAGIC = re.compile(r"\s*%%ddt\w*\b[^\n]*\n?")


@dataclass(frozen=True, slots=True)
class Document:
    """A cell or a file of a program.

    Attributes
    ----------
    name
        ``"cell[3]"``, or the path of a file: the same as in `ddt_notebook.model.Position`.
    source
        The text.
    first_line
        The line number of its first line, as the notebook shows it: 2 below a cell magic.
    """

    name: str
    source: str
    first_line: int = 1

    @classmethod
    def of(cls, cell: Cell) -> Document:
        """The document of a cell or a script."""
        return cls(cell.name, cell.source, cell.first_line)

    def line(self, number: int) -> str:
        """The text of a line; empty if there is no such line."""
        lines = _lines(self.source)
        at = number - self.first_line
        return lines[at] if 0 <= at < len(lines) else ""

    def label(self, number: int) -> str:
        """``cell[3] line 4: if rank == 0:``."""
        return f"{self.name} line {number}: {self.line(number).strip()}"


@functools.lru_cache(maxsize=256)
def _lines(source: str) -> tuple[str, ...]:
    return tuple(source.splitlines())


def without_cell_magic(source: str) -> str:
    """A cell's source without its line ``%%ddt`` or ``%%ddt_debug``, if it begins with one."""
    magic = _OUR_MAGIC.match(source)
    return source[magic.end() :] if magic else source


def exercise_of(source: str) -> str:
    """The exercise that a cell's first line names, below its magic; empty if it names none."""
    found = _EXERCISE.match(without_cell_magic(source).lstrip())
    return found[1] if found else ""


def without_magics(source: str) -> str:
    """The source with the lines that only IPython understands replaced by ``pass``.

    The number of lines stays the same. Statements after ``%time`` and ``%timeit`` are kept.
    """
    lines = []
    for line in source.split("\n"):
        timed = _TIMED.match(line)
        if line.startswith("%%"):
            lines.append("pass")
        elif timed:
            lines.append(timed[1] + timed[2])
        else:
            magic = _MAGIC_LINE.match(line)
            lines.append((magic[1] or magic[2] or "") + "pass" if magic else line)
    return "\n".join(lines)


def syntax_tree(source: str) -> tuple[ast.Module, str]:
    """The syntax tree of a source, and the text that was parsed.

    The text is the source itself if it is Python, else the source without magics. Raises
    `SyntaxError` if neither is Python, `ValueError` for null bytes and `RecursionError` for
    expressions that are nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return ast.parse(source), source
        except SyntaxError:
            text = without_magics(source)
            return ast.parse(text), text


@functools.lru_cache(maxsize=256)
def parse(document: Document) -> ast.Module | None:
    """The syntax tree of a document with the document's own line numbers; None if it is not Python.

    The tree is cached, so callers must not change it.
    """
    try:
        tree, _ = syntax_tree(document.source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return ast.increment_lineno(tree, document.first_line - 1)
