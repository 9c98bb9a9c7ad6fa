"""Finds tensors that a class keeps as plain attributes, which ``to()`` does not move."""

from __future__ import annotations

import ast

from ddt_notebook.model import Place, Position

from .program import Program

#: Functions of ``torch`` that make a tensor on the CPU unless a device is given.
_MAKES = frozenset(
    "arange empty eye full linspace logspace ones rand randint randn randperm tensor tril triu "
    "zeros from_numpy as_tensor Tensor FloatTensor".split()
)


def plain_attribute(program: Program, place: Position) -> tuple[Place, str] | None:
    """The line that makes the tensor that a line reads from ``self``, and the attribute's name.

    None if the line reads no attribute to which a method assigns a new tensor without a device.
    """
    statement = program.statement_at(place)
    if statement is None:
        return None
    blocks = program.tree_of(statement).blocks(statement)
    kind = next((block.owner for block in blocks if isinstance(block.owner, ast.ClassDef)), None)
    if kind is None:
        return None
    read = {name for node in ast.walk(statement) if (name := _own(node))}
    assigned = [node for node in ast.walk(kind) if isinstance(node, ast.Assign)]
    for node in assigned:
        found = {name for target in node.targets if (name := _own(target))} & read
        if found and _is_new(node.value) and not any(_moves(one, found) for one in assigned):
            return program.place(node), f"self.{min(found)}"
    return None


def _own(node: ast.AST) -> str:
    """The name in ``self.name``; empty for any other node."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _moves(node: ast.Assign, names: set[str]) -> bool:
    """Whether an assignment moves an attribute to a device."""
    value = ast.unparse(node.value)
    moved = any(word in value for word in ("device", ".to(", ".cuda("))
    return moved and any(_own(target) in names for target in node.targets)


def _is_new(value: ast.expr) -> bool:
    """Whether an expression makes a tensor without naming a device."""
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
