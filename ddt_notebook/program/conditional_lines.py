"""Finds conditions under which a program uses a part of a model, or returns no result."""

from __future__ import annotations

import ast

from ddt_notebook.model import Place, Position

from .nodes import is_constant
from .program import Program


def used_under(program: Program, attribute: str) -> Place | None:
    """The condition around every call of an attribute; None if there is a call without it."""
    calls = [one for one in program.calls(attribute) if isinstance(one.func, ast.Attribute)]
    found = {_condition(program, one) for one in calls}
    return found.pop() if len(found) == 1 else None


def returns_nothing(program: Program, function: str) -> tuple[Place, int] | None:
    """Where a function returns no result: the condition around the line, or it, and its number.

    None unless exactly one ``return`` of the program's functions of this name has no value.
    """
    found = [
        node
        for one in program.functions.get(function, [])
        for node in ast.walk(one)
        if isinstance(node, ast.Return) and (node.value is None or is_constant(node.value, None))
    ]
    if len(found) != 1:
        return None
    (node,) = found
    return _condition(program, node) or program.place(node), node.lineno


def condition_at(program: Program, line: Position) -> ast.If | None:
    """The innermost ``if`` around a line in its function."""
    statement = program.statement_at(line)
    return _around(program, statement) if statement is not None else None


def _condition(program: Program, node: ast.AST) -> Place | None:
    """The innermost ``if`` around a node in its function."""
    found = _around(program, node)
    return program.place(found) if found is not None else None


def _around(program: Program, node: ast.AST) -> ast.If | None:
    owners = (block.owner for block in program.blocks(node))
    return next((one for one in owners if isinstance(one, ast.If)), None)
