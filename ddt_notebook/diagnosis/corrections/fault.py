"""A finding with the parsed cell, and the result of a rewrite."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Cell, Finding, Place, Snapshot
from ddt_notebook.program.program import Program
from ddt_notebook.program.tree import Tree


@dataclass(frozen=True, slots=True)
class Correction:
    """A cell in which the fault of a finding is corrected.

    Attributes
    ----------
    source
        The whole cell.
    says
        What was changed, in lower case and without a full stop.
    """

    source: str
    says: str


@dataclass(frozen=True)
class Fault:
    """A finding with the parsed cell; line numbers are those of the notebook.

    Attributes
    ----------
    finding, snapshot
        The finding, and the run in which it was found.
    tree
        The cell that ran.
    """

    finding: Finding
    snapshot: Snapshot
    tree: Tree

    @property
    def cell(self) -> Cell:
        return self.snapshot.cell

    @cached_property
    def text(self) -> list[str]:
        return self.cell.source.split("\n")

    @cached_property
    def program(self) -> Program:
        """The cells up to and including the one that ran."""
        return Program.of(self.snapshot)

    def calls(self, name: str | None = None, lines: Container[int] | None = None) -> list[ast.Call]:
        """Return the calls in the cell, only those of a function or on certain lines if given."""
        calls = self.tree.of_kind(ast.Call) if name is None else self.tree.calls.get(name, [])
        return [call for call in calls if lines is None or call.lineno in lines]

    def lines_of(self, ranks: list[int]) -> set[int]:
        """Return the lines of this cell among the places of ranks."""
        places = (self.finding.places.get(rank) for rank in ranks)
        return self._in_cell(places)

    def lines_of_facts(self, *kinds: str) -> set[int]:
        """Return the lines of this cell that facts of some kinds name."""
        return self._in_cell(fact.place for fact in self.finding.facts if fact.kind in kinds)

    def _in_cell(self, places: Iterable[Place | None]) -> set[int]:
        name = self.cell.name
        return {place.line for place in places if place is not None and place.file == name}

    def slice(self, first: int, last: int) -> list[str]:
        """Return the lines from ``first`` to ``last``, both included."""
        start = self.cell.first_line
        return self.text[first - start : last - start + 1]

    def with_lines(self, first: int, last: int, new: list[str]) -> str:
        """Return the source with the lines from ``first`` to ``last`` replaced."""
        start = self.cell.first_line
        return "\n".join([*self.text[: first - start], *new, *self.text[last - start + 1 :]])

    def insert(self, before: ast.stmt, line: str) -> str:
        """Return the source with a line inserted before a statement, with the same indentation."""
        (own,) = self.slice(before.lineno, before.lineno)
        indentation = own[: len(own) - len(own.lstrip())]
        return self.with_lines(before.lineno, before.lineno, [indentation + line, own])

    def replaced(self, spans: Iterable[tuple[ast.expr, str]], says: str) -> Correction:
        """Return the source with expressions replaced, each by a text of one line."""
        lines = list(self.text)
        ordered = sorted(spans, key=lambda span: (-span[0].lineno, -span[0].col_offset))
        for node, new in ordered:
            first = node.lineno - self.cell.first_line
            last = (node.end_lineno or node.lineno) - self.cell.first_line
            before = lines[first].encode()[: node.col_offset].decode()  # columns count bytes
            after = lines[last].encode()[node.end_col_offset :].decode()
            lines[first : last + 1] = [before + new + after]
        return Correction("\n".join(lines), says)
