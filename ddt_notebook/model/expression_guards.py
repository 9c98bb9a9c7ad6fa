"""Conditions inside expressions that decide about a call: ``x and f()``, ``f() if x else y``.

The ranks and the readers of their source must agree on which conditions these are, and which line
reports them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

#: Line and column of the beginning and of the end, as `ast` counts them.
Span = tuple[tuple[int, int], tuple[int, int]]
_HEADS = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Assert, ast.Match)


@dataclass(frozen=True, slots=True)
class ExpressionGuard:
    """A condition inside an expression.

    Attributes
    ----------
    node
        The expression: ``and``, ``or``, ``if … else``, or a comprehension.
    test
        The condition.
    held, failed
        The parts that run only if the condition holds, and only if it does not.
    """

    node: ast.expr
    test: ast.expr
    held: tuple[ast.expr, ...]
    failed: tuple[ast.expr, ...]

    def decided(self, at: Span | None) -> bool | None:
        """Whether the condition held, if a rank goes on at a place; None if it is not decided.

        Parameters
        ----------
        at
            The place; None for the next round of a comprehension, or the end of a function.
        """
        if at is not None:
            if any(_holds(part, at) for part in self.held):
                return True
            if any(_holds(part, at) for part in self.failed):
                return False
            if _holds(self.node, at) and at != _span(self.node):
                return None
        return not self.held

    def tests_at(self, at: Span) -> bool:
        """Whether a jump at a place belongs to the condition itself."""
        if not _holds(self.node, at):
            return False
        # Python 3.13 puts the jump of a comprehension at its element
        at_element = not isinstance(self.node, (ast.BoolOp, ast.IfExp)) and at == _span(
            self.held[0]
        )
        return at_element or not any(_holds(part, at) for part in (*self.held, *self.failed))


def expression_guards(tree: ast.Module) -> Iterator[ExpressionGuard]:
    """The conditions inside expressions that decide about a call, those outside first.

    Those on a line whose statement decides itself, such as an ``if``, are left out.
    """
    heads = {node.lineno for node in ast.walk(tree) if isinstance(node, _HEADS)}
    for node in ast.walk(tree):
        guard = _guard(node)
        if guard is not None and guard.test.lineno not in heads and guard.node.lineno not in heads:
            yield guard


def _guard(node: ast.AST) -> ExpressionGuard | None:
    match node:
        case ast.BoolOp(op=operator, values=values):
            first = next((i for i, value in enumerate(values) if i and _calls(value)), None)
            if first is None:
                return None
            test = values[0] if first == 1 else ast.BoolOp(operator, values[:first])
            ast.copy_location(test, values[0])
            parts = tuple(values[first:])
            held, failed = (parts, ()) if isinstance(operator, ast.And) else ((), parts)
            return ExpressionGuard(node, test, held, failed)
        case ast.IfExp(test=test, body=body, orelse=orelse) if _calls(body) or _calls(orelse):
            return ExpressionGuard(node, test, (body,), (orelse,))
        case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
            tests = [test for one in node.generators for test in one.ifs]
            if tests and _calls(elt):
                return ExpressionGuard(node, tests[0], (elt,), ())
    return None


def _calls(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def _span(node: ast.expr) -> Span:
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset), end


def _holds(outer: ast.expr, inner: Span) -> bool:
    span = _span(outer)
    return span[0] <= inner[0] and inner[1] <= span[1]
