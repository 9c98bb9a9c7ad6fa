"""Lines of the cells that show a fault of training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.diagnosis.cells import syntax
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Place

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_WITHOUT_GRADIENTS = ("no_grad", "inference_mode")


def module_calls(context: Context) -> list[Place]:
    """The lines that train what is inside a wrapper: ``ddp.module(x)``.

    Those of this cell come first. Of earlier ones, only what is in functions may have run again.
    """
    found = []
    for cell in (context.snapshot.cell, *context.snapshot.earlier_cells):
        tree = syntax.parse(cell)
        if tree is None:
            continue
        this = cell is context.snapshot.cell
        roots = [tree] if this else [n for n in tree.body if isinstance(n, _DEFINITIONS)]
        for node in (one for root in roots for one in _with_gradients(root)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr == "module":
                found.append(context.sources.place(cell.number, node.lineno, "called"))
    return found


def _with_gradients(node: ast.AST) -> Iterator[ast.AST]:
    """What is within a node, less what stands in ``torch.no_grad()``."""
    for child in ast.iter_child_nodes(node):
        heads: list[ast.expr] = []
        if isinstance(child, (ast.With, ast.AsyncWith)):
            heads = [item.context_expr for item in child.items]
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            heads = child.decorator_list
        if not any(word in ast.unparse(head) for head in heads for word in _WITHOUT_GRADIENTS):
            yield child
            yield from _with_gradients(child)
