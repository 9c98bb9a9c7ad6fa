"""Tensors that a class of the cells keeps as plain attributes: nothing moves or trains them."""

from __future__ import annotations

import ast

from ddt_notebook.model import Place, Position, RankError

from .cells import syntax
from .context import Context

_MAKES = frozenset(
    "arange empty eye full linspace logspace ones rand randint randn randperm tensor tril triu "
    "zeros from_numpy as_tensor Tensor FloatTensor".split()
)


def plain_tensor(context: Context, error: RankError) -> tuple[Place, str] | None:
    """The line that keeps a tensor which the failing line uses: its label, and the attribute.

    None if that line reads no attribute that a method assigned a new tensor without a device.
    """
    for frame in reversed(error.frames or ((error.where,) if error.where else ())):
        if frame.cell is None:
            continue
        statement = context.sources.statement(frame)
        kind = _class_around(context, frame)
        if statement is None or kind is None:
            continue
        read = {name for node in ast.walk(statement) if (name := _own(node))}
        assigned = [node for node in ast.walk(kind) if isinstance(node, ast.Assign)]
        for node in assigned:
            names = {name for target in node.targets if (name := _own(target))} & read
            if _is_new(node.value) and names and not any(_moves(o, names) for o in assigned):
                place = context.sources.place(frame.cell, node.lineno)
                return place, f"self.{min(names)}"
    return None


def _class_around(context: Context, place: Position) -> ast.ClassDef | None:
    """The innermost class in which a line stands."""
    snapshot = context.snapshot
    cells = [c for c in (snapshot.cell, *snapshot.earlier_cells) if c.number == place.cell]
    tree = syntax.parse(cells[0]) if cells else None
    around = syntax.enclosing(tree, place.line) if tree is not None else iter(())
    classes = [node for node, _ in around if isinstance(node, ast.ClassDef)]
    return classes[-1] if classes else None


def _own(node: ast.AST) -> str:
    """The name in ``self.name``, else empty."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return node.attr if own and node.value.id == "self" else ""  # type: ignore[attr-defined]


def _moves(node: ast.Assign, names: set[str]) -> bool:
    """Whether an assignment puts an attribute on a device after all."""
    value = ast.unparse(node.value)
    moved = any(word in value for word in ("device", ".to(", ".cuda("))
    return moved and any(_own(target) in names for target in node.targets)


def _is_new(value: ast.expr) -> bool:
    """Whether an expression makes a tensor, and says nothing of a device."""
    if "device" in ast.unparse(value) or ".cuda(" in ast.unparse(value):
        return False
    while isinstance(value, ast.BinOp):
        value = value.left if isinstance(value.left, (ast.Call, ast.BinOp)) else value.right
    function = value.func if isinstance(value, ast.Call) else None
    while isinstance(function, ast.Attribute):
        if isinstance(function.value, ast.Name) and function.value.id == "torch":
            return function.attr in _MAKES
        if not isinstance(function.value, ast.Call):
            return False
        function = function.value.func  # torch.ones(3).float()
    return False
