"""Questions about a single node of a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

_KEPT = 4096  #: nodes whose answers are remembered


@lru_cache(_KEPT)
def source_of(node: ast.AST) -> str:
    """The source of a node, in the spelling of `ast.unparse`."""
    return ast.unparse(node)


def dotted_name(node: ast.AST) -> str:
    """``"torch.cuda.set_device"`` for such an expression; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def last_name(node: ast.AST | None) -> str:
    """``"step"`` for ``optimizer.step`` and for ``trainers[0].step``; empty if there is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def root_name(node: ast.AST) -> str:
    """``"torch"`` for ``torch.rand(3).to(device)[0]``; empty if it does not begin with a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def called_name(node: ast.AST) -> str:
    """The last part of the name of what a call calls; empty if the node is not a call."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def decorators(node: ast.AST) -> set[str]:
    """The last parts of the names of a function's decorators, called or not."""
    found = getattr(node, "decorator_list", [])
    return {called_name(one) or last_name(one) for one in found}


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """All calls inside a node."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def names_in(node: ast.AST) -> Iterator[str]:
    """All names inside a node: of variables, attributes, arguments and keywords."""
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def occurs_in(node: ast.AST, expression: str) -> bool:
    """Whether an expression occurs inside a node."""
    return any(
        isinstance(inner, ast.expr) and source_of(inner) == expression for inner in ast.walk(node)
    )


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument of a call; None if it is not given."""
    return next((given.value for given in node.keywords if given.arg == name), None)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Whether an expression is this constant."""
    return isinstance(node, ast.Constant) and (type(node.value), node.value) == (type(value), value)


@lru_cache(_KEPT)
def is_generator(node: ast.AST) -> bool:
    """Whether a function yields."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        inner = pending.pop()
        if isinstance(inner, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(inner)
    return False


@lru_cache(_KEPT)
def assigned_in(loop: ast.For | ast.AsyncFor | ast.While) -> frozenset[str]:
    """The names that the body of a loop assigns to."""
    return frozenset(
        inner.id
        for statement in loop.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    )
