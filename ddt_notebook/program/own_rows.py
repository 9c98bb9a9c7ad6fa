"""Finds where a program divides what it has reduced by the rows of a tensor of its own."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ddt_notebook.model import Place, Position

from .nodes import source_of
from .program import Program
from .tree import Tree


def divided_by_rows(
    program: Program, where: Position, tensors: Collection[str]
) -> tuple[str, Place] | None:
    """By the rows of which tensor the one reduced at a line is divided, and the line of that.

    None if the function divides or multiplies it in another way, too, other than as a part of a
    weighted sum such as a moving average.
    """
    tree = program.tree_at(where)
    call = tree.statement_at(where.line) if tree is not None else None
    function = tree.function_at(where.line) if tree is not None else None
    if tree is None or not isinstance(call, ast.Expr) or not isinstance(call.value, ast.Call):
        return None
    given = call.value.args[0] if call.value.args else None
    if not isinstance(given, ast.Name) or function is None:
        return None
    scaled = sorted(
        (
            node
            for node in ast.walk(function)
            if isinstance(node, ast.BinOp | ast.AugAssign | ast.Call)
            and _scales(node, given.id)
            and node.lineno > where.line
        ),
        key=lambda node: (node.lineno, node.col_offset),
    )
    if not scaled or not all(_is_in_sum(tree, one) for one in scaled[1:]):
        return None
    node = scaled[0]
    divisor = node.right if isinstance(node, ast.BinOp) else getattr(node, "value", None)
    divides = isinstance(getattr(node, "op", None), ast.Div)
    if not divides or divisor is None or isinstance(tree.parents.get(node), ast.BinOp):
        return None
    rows = {text.format(name): name for name in tensors for text in _ROWS}
    statement = tree.statement_of(node)
    if source_of(divisor) not in rows or not isinstance(statement, ast.Assign | ast.AugAssign):
        return None
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not all(_is(target, given.id) for target in targets):
        return None  # what becomes of another variable is not followed
    return rows[source_of(divisor)], program.place(statement, "reads")


_ROWS = ("len({})", "{}.shape[0]", "{}.size(0)", "{}.size()[0]")
_SCALING = frozenset({"div", "div_", "mul", "mul_", "true_divide"})


def _scales(node: ast.BinOp | ast.AugAssign | ast.Call, name: str) -> bool:
    if isinstance(node, ast.Call):
        method = node.func
        held = isinstance(method, ast.Attribute) and _is(method.value, name)
        return held and isinstance(method, ast.Attribute) and method.attr in _SCALING
    if not isinstance(node.op, ast.Div | ast.Mult):
        return False
    if isinstance(node, ast.AugAssign):
        return _is(node.target, name)
    return _is(node.left, name) or _is(node.right, name)


def _is_in_sum(tree: Tree, node: ast.AST) -> bool:
    parent = tree.parents.get(node)
    multiplies = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return multiplies and isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add)


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
