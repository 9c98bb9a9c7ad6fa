"""Loops: followed round by round where they are short, and once where they are not."""

from __future__ import annotations

import ast
from collections.abc import Callable

from . import builtin, names
from .functions import scoped
from .shape import assigned, written
from .statements import Statements
from .trace import Leave, Rounds
from .values import (
    ANYTHING,
    LOCAL,
    NO_MARKS,
    OTHER,
    RANK,
    UNKNOWN,
    Class,
    Foreign,
    Function,
    Items,
    Object,
    Scope,
    Symbol,
    Value,
)

_UNROLLED = 2_000  #: Statements that are followed before loops are no longer unrolled.
_ROUNDS = 16  #: A loop of at most so many rounds is followed round by round.


class Loops(Statements):
    """Follows loops."""

    def _do_for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> str:
        many = self.eval(node.iter, scope)
        items = builtin.iterate(many)
        for inner in ast.walk(node.target):
            if isinstance(inner, ast.Name) and inner.id in names.RANKS:
                many = many.marked(OTHER)  # a rank, but not this one's own
        if items is not None and len(items) <= _ROUNDS and self.steps < _UNROLLED:
            with self.aside() as calls:
                ended = self._round_by_round(node, items, many.marks, scope)
            self.out += scoped(calls, node.lineno, "break")
            return ended
        self.note("loop", node, many)
        rounds = self.rounds_of(many)
        element = Value(UNKNOWN, many.marks & {LOCAL, OTHER})
        if isinstance(many.value, Foreign):
            element = self.batch_of(many.value)

        def body() -> str:
            self.assign(node.target, element, scope)
            if isinstance(node.target, ast.Tuple) and "enumerate(" in written(node.iter):
                # The count is the same on every rank, whatever the data.
                self.assign(node.target.elts[0], ANYTHING, scope)
            return self.block(node.body, scope)

        marks = many.marks & {RANK} if isinstance(many.value, (range, Items)) else NO_MARKS
        return self._rounds(node, marks, body, scope, rounds)

    _do_asyncfor = _do_for

    def _round_by_round(
        self,
        node: ast.For | ast.AsyncFor,
        items: list[Value],
        marks: frozenset[str],
        scope: Scope,
    ) -> str:
        for one in items:
            self.assign(node.target, one, scope)
            with self.aside() as calls:
                with self.within(node.lineno, 0, marks, loop=len(items) > 1):
                    ended = self.block(node.body, scope)
            self.out += scoped(calls, node.lineno, "continue")
            if ended == "break":
                return ""
            if ended in ("return", "raise"):
                return ended
        return self.block(node.orelse, scope)

    def _do_while(self, node: ast.While, scope: Scope) -> str:
        self._forget(node, scope)
        test = self.see(node.test, scope)
        if builtin.truth(test) is False:
            return ""
        marks = test.marks
        endless = builtin.truth(test) is True and not test.marks

        def body() -> str:
            ended = self.block(node.body, scope)
            nonlocal marks
            marks |= self.see(node.test, scope).marks
            return ended

        self.note("loop", node, test)
        return self._rounds(node, lambda: NO_MARKS if endless else marks, body, scope, None)

    def _rounds(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        marks: frozenset[str] | Callable[[], frozenset[str]],
        body: Callable[[], str],
        scope: Scope,
        rounds: object,
    ) -> str:
        """A loop whose rounds are not followed one by one."""
        self._forget(node, scope)
        around = marks if isinstance(marks, frozenset) else NO_MARKS
        with self.aside() as calls:
            with self.within(node.lineno, 0, around, loop=True, sure=False):
                ended = body()
            if ended:
                calls.append(Leave(ended, node.lineno))
        depends = marks if isinstance(marks, frozenset) else marks()
        known = rounds if isinstance(rounds, int) else None
        self.out.append(Rounds(node.lineno, depends, tuple(calls), known))
        self.block(node.orelse, scope)
        return ""

    @staticmethod
    def _forget(loop: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
        """What a loop assigns is not known after its first round."""
        for name in assigned(loop):
            known = scope.names.get(name)
            if known is not None and _changes(known.value):
                scope.names[name] = Value(UNKNOWN, known.marks)


def _changes(value: object) -> bool:
    """Whether an assignment in a loop makes it unknown: a model stays a model."""
    return not isinstance(value, (Symbol, Function, Class, Foreign, Object))
