"""Finds where a program keeps a running mean in an attribute, and where it computes with it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ddt_notebook.model import Place

from .nodes import called_name
from .own_buffers import is_read, mentions_own
from .program import Program

#: Functions and operations that divide.
_DIVIDES = frozenset({"div", "divide", "true_divide"})
_ROOTS = frozenset({"sqrt", "rsqrt"})


def normalisers(program: Program, names: Collection[str]) -> list[Place]:
    """The lines that set running values with which a program normalises.

    Such are a mean that it subtracts and a spread by which it then divides, or the root of a spread
    by which it only divides.

    Parameters
    ----------
    names
        Attributes that one object holds.
    """
    used = {
        name
        for tree in program.trees.values()
        for node in tree.nodes
        if isinstance(node, ast.BinOp | ast.Call)
        for name in _normalises(node, names)
    }
    return [place for name in names if name in used for place in _set(program, name)]


def moving_averages(program: Program, name: str) -> list[Place]:
    """The lines of a class that move an attribute of its own by a part of the way to a new value.

    There are none if the program only shows the attribute.
    """
    found = [
        program.place(statement, "changes")
        for tree in program.trees.values()
        for owner in tree.of_kind(ast.ClassDef)
        for statement in ast.walk(owner)
        if isinstance(statement, ast.Assign | ast.Expr) and _moves(statement, name)
    ]
    return found if found and is_read(program, name) else []


def _normalises(node: ast.BinOp | ast.Call, names: Collection[str]) -> set[str]:
    if isinstance(node, ast.BinOp):
        divides = isinstance(node.op, ast.Div) or (
            isinstance(node.op, ast.Mult) and _has_root(node.right)
        )
        above, below = (node.left, node.right) if divides else (None, None)
    elif called_name(node) in _DIVIDES and node.args:
        method = node.func.value if isinstance(node.func, ast.Attribute) else None
        above = node.args[0] if len(node.args) > 1 else method
        below = node.args[-1]
    else:
        return set()
    if above is None or below is None:
        return set()
    taken = {
        name
        for one in ast.walk(above)
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)
        for name in _attributes(one.right, names)
    }
    spread = _attributes(below, names)
    if taken and spread - taken:
        return taken | spread
    return spread if _has_root(below) else set()


def _has_root(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and called_name(one) in _ROOTS for one in ast.walk(node))


def _attributes(node: ast.AST, names: Collection[str]) -> set[str]:
    return {
        one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute) and one.attr in names
    }


def _set(program: Program, name: str) -> Iterator[Place]:
    """The statements that set an attribute to what is neither a constant nor made at the start."""
    for tree in program.trees.values():
        for statement in tree.nodes:
            if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
                continue
            if isinstance(statement, ast.Expr):
                sets = isinstance(statement.value, ast.Call) and _in_place(statement.value, name)
            else:
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                sets = any(
                    isinstance(one, ast.Attribute)
                    and one.attr == name
                    and isinstance(one.ctx, ast.Store)
                    for target in targets
                    for one in ast.walk(target)
                )
            if sets and not _at_start(tree.function_at(statement.lineno)):
                yield program.place(statement, "changes")


def _in_place(call: ast.Call, name: str) -> bool:
    node: ast.expr = call
    methods = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        methods.append(node.func.attr)
        node = node.func.value
    held = isinstance(node, ast.Attribute) and node.attr == name
    return held and any(method.endswith("_") for method in methods)


def _at_start(function: ast.AST | None) -> bool:
    return getattr(function, "name", "") in ("__init__", "__post_init__", "reset")


def _moves(statement: ast.Assign | ast.Expr, name: str) -> bool:
    if isinstance(statement, ast.Expr):
        call = statement.value
        if not isinstance(call, ast.Call) or not mentions_own(call.func, name):
            return False
        return "lerp_" in _methods(call) or {"mul_", "add_"} <= _methods(call)
    if not any(mentions_own(target, name) for target in statement.targets):
        return False
    if any(isinstance(target, ast.Subscript) for target in statement.targets):
        return False  # each rank may change its own entries
    return any(
        (isinstance(one, ast.Call) and called_name(one) == "lerp" and mentions_own(one, name))
        or (
            isinstance(one, ast.BinOp)
            and isinstance(one.op, ast.Add)
            and any(_is_scaled(side, name) for side in (one.left, one.right))
        )
        for one in ast.walk(statement.value)
    )


def _methods(call: ast.Call) -> set[str]:
    return {
        one.func.attr
        for one in ast.walk(call)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    }


def _is_scaled(node: ast.AST, name: str) -> bool:
    scales = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return scales and mentions_own(node, name)
