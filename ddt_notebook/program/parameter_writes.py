"""Finds the lines that write into a parameter in place."""

from __future__ import annotations

import ast

from ddt_notebook.model import Place

from .nodes import dotted_name
from .program import Program

#: What leads to the same memory as a tensor.
_VIEWS = ("data", "detach")
#: What runs before a model is wrapped.
_BEFORE = frozenset({"__init__", "reset_parameters", "_init_weights", "init_weights"})


def written_in_place(program: Program, parameter: str) -> list[Place]:
    """The lines that write into a parameter, apart from those that initialise a new module.

    Parameters
    ----------
    parameter
        Its name with the modules that hold it: ``"model.quantize.embedding.weight"``. Of a longer
        name, the line has to name the last two parts.
    """
    wanted = parameter.split(".")[-2:]
    found = {}
    for node in program.nodes:
        if not isinstance(node, (ast.Call, ast.Assign, ast.AugAssign)) or not _writes(node, wanted):
            continue
        place = program.place(node, "changes")
        if not _BEFORE & {*program.functions_around(place)[:1]}:
            found[place.file, place.line] = place
    return list(found.values())


def _writes(node: ast.Call | ast.stmt, wanted: list[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)):
            return method.endswith("_") and not method.endswith("__") and _is(owner, wanted)
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
            return _is_part(target) and _is(target, wanted)
    return False


def _is_part(target: ast.expr) -> bool:
    """Whether an assignment to this changes a tensor, and gives no name to another one."""
    if isinstance(target, ast.Attribute):
        return target.attr in _VIEWS
    return isinstance(target, ast.Subscript)


def _is(node: ast.expr, wanted: list[str]) -> bool:
    """Whether an expression is a parameter, a part of it, or its data."""
    while True:
        match node:
            case ast.Subscript(value=inner):
                node = inner
            case ast.Attribute(value=inner, attr=name) if name in _VIEWS:
                node = inner
            case ast.Call(func=ast.Attribute(attr=name) as inner) if name in _VIEWS:
                node = inner
            case _:
                return dotted_name(node).split(".")[-len(wanted) :] == wanted
