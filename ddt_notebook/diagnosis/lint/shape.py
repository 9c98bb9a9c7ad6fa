"""What is asked of a piece of syntax again and again, once for each rank."""

from __future__ import annotations

import ast
from functools import lru_cache

_KEPT = 4096  #: pieces of syntax that are remembered


@lru_cache(_KEPT)
def written(node: ast.AST) -> str:
    """The source of a piece of syntax."""
    return ast.unparse(node)


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
def assigned(loop: ast.For | ast.AsyncFor | ast.While) -> frozenset[str]:
    """The names that the body of a loop assigns to."""
    return frozenset(
        inner.id
        for statement in loop.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    )
