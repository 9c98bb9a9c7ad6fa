"""Finds where a program makes the mean of a loop of what it then reduces."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.model import Place, Position

from .nodes import LoopNode, argument, called_name, in_scope, key, keys_in
from .program import Program
from .tree import Tree


def mean_of_a_loop(program: Program, where: Position, op: str) -> Place | None:
    """The line that divides, by the rounds of a loop, what the collective at a line reduces.

    It may divide what each round adds, or the sum of them. None if nothing does so in that scope.
    """
    tree = program.tree_at(where)
    calls = [call for call in program.calls_at(where) if called_name(call) == op]
    given = key(argument(calls[0], 0, "tensor")) if calls else None
    if tree is None or given is None:
        return None
    scope = tree.function_at(where.line) or tree.module
    nodes = (node for child in ast.iter_child_nodes(scope) for node in in_scope(child))
    before = [node for node in nodes if getattr(node, "lineno", where.line) < where.line]
    for node in reversed(before):
        found = _division(tree, node, given, before)
        if found is not None:
            return program.place(found, "changes")
    return None


def _division(tree: Tree, node: ast.AST, given: str, before: list[ast.AST]) -> ast.stmt | None:
    """Where a statement that changes the given name divides by the rounds of a loop."""
    match node:
        case ast.AugAssign(op=ast.Div(), value=divisor) if key(node.target) == given:
            return node if _counts(divisor, before) else None
        case ast.Assign(targets=[target], value=ast.BinOp(op=ast.Div(), right=divisor)) if (
            key(target) == given
        ):
            return node if _counts(divisor, before) else None
        case ast.AugAssign(op=ast.Add(), value=added) if key(node.target) == given:
            loop = next((p for p in _owners(tree, node) if isinstance(p, LoopNode)), None)
            if not isinstance(loop, ast.For):
                return None
            values: list[ast.stmt] = [node, *_bound_in(loop, keys_in(added))]
            for value in values:
                for one in ast.walk(value):
                    if isinstance(one, ast.BinOp | ast.AugAssign) and isinstance(one.op, ast.Div):
                        divisor = one.right if isinstance(one, ast.BinOp) else one.value
                        if _counts(divisor, [loop]):
                            return value
    return None


def _bound_in(loop: ast.For, names: set[str]) -> Iterator[ast.stmt]:
    """The assignments in a loop to one of these names."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(key(target) in names for target in targets):
                yield node


def _counts(divisor: ast.expr, nodes: list[ast.AST]) -> bool:
    """Whether an expression is the number of rounds of one of these loops."""
    name = key(divisor)
    for loop in nodes:
        if not isinstance(loop, ast.For):
            continue
        match loop.iter:
            case ast.Call(func=ast.Name(id="range"), args=[*_, last]):
                if name is not None and name in (key(last), ast.unparse(last)):
                    return True
        match divisor:
            case ast.Call(func=ast.Name(id="len"), args=[counted]):
                if key(counted) is not None and key(counted) in keys_in(loop.iter):
                    return True
        rounds = (
            key(node.target)
            for node in ast.walk(loop)
            if isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
        )
        if name is not None and name in rounds:
            return True
    return False


def _owners(tree: Tree, node: ast.AST) -> Iterator[ast.AST]:
    parent = tree.parents.get(node)
    while parent is not None:
        yield parent
        parent = tree.parents.get(parent)
