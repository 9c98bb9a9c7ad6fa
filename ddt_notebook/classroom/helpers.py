"""Which other cells of a notebook a graded cell needs, by the names that they define.

They and the graded cell become one program, which is run and judged as if it stood in one cell: a
helper cell can do nothing that the graded cell could not do itself.
"""

from __future__ import annotations

import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddt_notebook.program.parse import without_cell_magic

#: Characters of a cell that is looked at: a person wrote it.
_LONGEST = 50_000
_UNDEFINED = re.compile(r"NameError: name '(\w+)' is not defined")


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A cell of a notebook.

    Attributes
    ----------
    number
        Counts the code cells of the notebook from 1.
    source
        With or without the line of its magic.
    """

    number: int
    source: str


@dataclass(frozen=True, slots=True)
class Program:
    """Several cells as one.

    Attributes
    ----------
    source
        All of them, without the lines of their magics.
    cells
        What it was made of, in order.
    """

    source: str
    cells: tuple[CodeCell, ...]

    def cell_at(self, line: int) -> CodeCell:
        """The cell that a line of the program, counted from 1, stands in."""
        for cell in self.cells[:-1]:
            line -= _body(cell).count("\n") + 1
            if line < 1:
                return cell
        return self.cells[-1]


def undefined_in(message: str) -> str:
    """The name that was not defined, if that is what an exception says; else empty."""
    found = _UNDEFINED.match(message)
    return found[1] if found else ""


def defining(name: str, cells: Sequence[CodeCell]) -> CodeCell | None:
    """The last of some cells that defines a name, None if none does."""
    return next((cell for cell in reversed(cells) if name in _names(cell).bound), None)


def program(answer: CodeCell, above: Sequence[CodeCell], missing: str) -> Program:
    """A cell after those above it that it needs, for a name that is missing and for others.

    Parameters
    ----------
    answer
        The graded cell.
    above
        The cells above it that may run, in order.
    missing
        The name for want of which it failed.
    """
    wanted = _names(answer).free | {missing}
    needed = [answer]
    for cell in reversed(above):
        names = _names(cell)
        if names.bound & wanted:
            needed.insert(0, cell)
            wanted = (wanted - names.bound) | names.free
    return Program("\n".join(_body(cell) for cell in needed), tuple(needed))


@dataclass(frozen=True, slots=True)
class _Names:
    """What a cell defines, and what it uses without defining it."""

    bound: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def _names(cell: CodeCell) -> _Names:
    """Empty for what is not Python: it runs nowhere."""
    from IPython.core.inputtransformer2 import TransformerManager

    body = _body(cell)
    if body.lstrip().startswith("%%") or len(body) > _LONGEST:
        return _Names()
    try:
        plain = TransformerManager().transform_cell(body)  # type: ignore[no-untyped-call]
        top = symtable.symtable(plain, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Names()
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    for table in _below(top):
        for symbol in table.get_symbols():
            if symbol.is_global():
                (bound if symbol.is_assigned() else used).add(symbol.get_name())
    return _Names(frozenset(bound), frozenset(used - bound))


def _below(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _below(child)


def _body(cell: CodeCell) -> str:
    return without_cell_magic(cell.source).rstrip("\n")
