"""A finding beside the parsed cell, and what a rewrite makes of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Cell, Finding, Place, Snapshot


@dataclass(frozen=True, slots=True)
class Correction:
    """A cell without the fault of a finding.

    Attributes
    ----------
    source
        The whole cell.
    says
        What was changed, lower case, no full stop.
    """

    source: str
    says: str


@dataclass(frozen=True)
class Fault:
    """A finding beside the parsed cell; line numbers are those of the notebook."""

    finding: Finding
    snapshot: Snapshot
    tree: ast.Module

    @property
    def cell(self) -> Cell:
        return self.snapshot.cell

    @cached_property
    def text(self) -> list[str]:
        return self.cell.source.split("\n")

    def lines_of(self, ranks: list[int]) -> set[int]:
        """The lines of this cell among the places of ranks."""
        places = (self.finding.places.get(rank) for rank in ranks)
        return self._in_cell(places)

    def lines_of_facts(self, *kinds: str) -> set[int]:
        """The lines of this cell that facts of some kinds name."""
        return self._in_cell(fact.place for fact in self.finding.facts if fact.kind in kinds)

    def _in_cell(self, places: Iterable[Place | None]) -> set[int]:
        number = self.cell.number
        return {place.line for place in places if place is not None and place.cell == number}

    def slice(self, first: int, last: int) -> list[str]:
        """The text from one line to another, both included."""
        start = self.cell.first_line
        return self.text[first - start : last - start + 1]

    def with_lines(self, first: int, last: int, new: list[str]) -> str:
        """The source with the lines from ``first`` to ``last`` replaced."""
        start = self.cell.first_line
        return "\n".join([*self.text[: first - start], *new, *self.text[last - start + 1 :]])

    def insert(self, before: ast.stmt, line: str) -> str:
        """The source with a line in front of a statement, indented like it."""
        (own,) = self.slice(before.lineno, before.lineno)
        indentation = own[: len(own) - len(own.lstrip())]
        return self.with_lines(before.lineno, before.lineno, [indentation + line, own])

    def replaced(self, spans: Iterable[tuple[ast.expr, str]], says: str) -> Correction:
        """The source with expressions replaced, each by a text of one line."""
        lines = list(self.text)
        ordered = sorted(spans, key=lambda span: (-span[0].lineno, -span[0].col_offset))
        for node, new in ordered:
            first = node.lineno - self.cell.first_line
            last = (node.end_lineno or node.lineno) - self.cell.first_line
            before = lines[first].encode()[: node.col_offset].decode()  # columns count bytes
            after = lines[last].encode()[node.end_col_offset :].decode()
            lines[first : last + 1] = [before + new + after]
        return Correction("\n".join(lines), says)


Scope = ast.Module | ast.FunctionDef


def scopes(tree: ast.Module) -> Iterator[Scope]:
    """The cell, then its functions."""
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def own(scope: Scope) -> Iterator[ast.stmt]:
    """The statements of a scope, in blocks, too, but not in functions and classes of its own."""
    waiting = list(scope.body)
    while waiting:
        statement = waiting.pop(0)
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = list(ast.iter_child_nodes(statement))
            waiting += [child for child in inner if isinstance(child, ast.stmt)]


def assigned_calls(scope: Scope) -> list[tuple[str, ast.Call]]:
    """``name = call(…)`` of a scope."""
    return [
        (statement.targets[0].id, statement.value)
        for statement in own(scope)
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.targets[0], ast.Name)
    ]
