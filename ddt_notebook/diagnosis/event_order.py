"""Tells between which branch events a rank ran a statement.

Calls of functions are no events. That a function ran inside another one is known from their
returns, and from the names that the source of the outer one calls.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from ddt_notebook.model.branches import BranchOutcome
from ddt_notebook.program.nodes import FunctionNode, called_name, calls_in
from ddt_notebook.program.nodes import end as end_line
from ddt_notebook.program.program import Program

#: Events of a function that it leaves with.
_ENDS = ("return", "raised")


class EventOrder:
    """Orders the statements and the events of one run.

    Parameters
    ----------
    program
        What the ranks ran.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._files: dict[ast.AST, str] = {}
        self._calls: dict[str, frozenset[str]] = {}
        self._inside: dict[str, frozenset[str]] = {}
        self._lines: dict[tuple[ast.AST, str], tuple[int, ...]] = {}

    def is_of(self, event: BranchOutcome, function: ast.AST) -> bool:
        """Whether an event belongs to the code of a function or of a module.

        The code of a lambda or a comprehension in it, too.
        """
        if function not in self._files:
            self._files[function] = self._program.tree_of(function).document.name
        if event.file != self._files[function]:
            return False
        if not isinstance(function, FunctionNode):
            return event.function == "<module>"
        last = function.end_lineno or function.lineno
        named = event.function == function.name or _is_anonymous(event)
        return named and function.lineno <= event.line <= last

    def ends(self, event: BranchOutcome, function: ast.AST) -> bool:
        """Whether a run of the function ended with an event."""
        return event.kind in _ENDS and self.is_of(event, function) and not _is_anonymous(event)

    def begin(self, function: ast.AST, events: Sequence[BranchOutcome], end: int) -> int:
        """The first event that can belong to the last run of a function before an event.

        Parameters
        ----------
        function
            The function; its end may be the event before ``end``, or it still runs.
        """
        inside = self._called(function)
        at = end - 1
        if at >= 0 and self.ends(events[at], function):
            at -= 1
        while at >= 0:
            event = events[at]
            if self.ends(event, function):
                break
            if not self.is_of(event, function) and event.function not in inside:
                break
            at -= 1
        return at + 1

    def last_before(
        self,
        statement: ast.stmt,
        function: ast.AST,
        events: Sequence[BranchOutcome],
        begin: int,
        until: int,
    ) -> int:
        """How many events precede a statement that ran after ``begin`` events.

        Parameters
        ----------
        function
            The function that contains it.
        until
            The number of events to look at.
        """
        found = begin
        for at in range(begin, until):
            event = events[at]
            if self.is_of(event, function):
                if self.ends(event, function) or event.line >= statement.lineno:
                    break
                found = at + 1
                continue
            lines = self._lines_that_call(function, event.function)
            if not lines:
                continue
            if max(lines) <= end_line(statement):
                found = at + 1
            elif min(lines) > end_line(statement):
                break
        return found

    def _called(self, function: ast.AST) -> frozenset[str]:
        """The names of the functions that run within one, as far as names show it."""
        names = {called_name(call) for call in calls_in(function)} - {""}
        return frozenset(names.union(*map(self._within, names)))

    def _within(self, name: str) -> frozenset[str]:
        """The names of the functions that run within those of a name, or its constructor."""
        if name not in self._inside:
            found: set[str] = set()
            ahead = set(self._calls_of(name))
            while ahead:
                one = ahead.pop()
                found.add(one)
                ahead |= self._calls_of(one) - found
            self._inside[name] = frozenset(found)
        return self._inside[name]

    def _calls_of(self, name: str) -> frozenset[str]:
        if name not in self._calls:
            functions = self._program.functions.get(name, ())
            found = {called_name(call) for one in functions for call in calls_in(one)}
            if name in self._classes:
                found.add("__init__")
            self._calls[name] = frozenset(found - {""})
        return self._calls[name]

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset(
            node.name for node in self._program.nodes if isinstance(node, ast.ClassDef)
        )

    def _lines_that_call(self, function: ast.AST, name: str) -> tuple[int, ...]:
        """The last lines of the calls in a function within which a function of that name runs."""
        if (function, name) not in self._lines:
            self._lines[function, name] = tuple(
                call.end_lineno or call.lineno
                for call in calls_in(function)
                if name == called_name(call) or name in self._within(called_name(call))
            )
        return self._lines[function, name]


def _is_anonymous(event: BranchOutcome) -> bool:
    """Whether an event belongs to a lambda or a comprehension."""
    return event.function.startswith("<") and event.function != "<module>"
