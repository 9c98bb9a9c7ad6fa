"""Finds the lines that write into a parameter in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.model import Place

from .nodes import dotted_name
from .program import Program

#: What leads to the same memory as a tensor.
_VIEWS = ("data", "detach")
#: Methods in place that change no element.
_SETTINGS = frozenset({"requires_grad_", "share_memory_"})
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
    path = parameter.split(".")
    found = {}
    for node in program.nodes:
        if not isinstance(node, (ast.Call, ast.Assign, ast.AugAssign)):
            continue
        if not _writes(node, path[-2:]) and not _writes_each(program, node, path[:-1]):
            continue
        place = program.place(node, "changes")
        if not _BEFORE & {*program.functions_around(place)[:1]}:
            found[place.file, place.line] = place
    return list(found.values())


def _writes(node: ast.Call | ast.stmt, wanted: list[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)):
            changes = method.endswith("_") and not method.endswith("__")
            return changes and method not in _SETTINGS and _is(owner, wanted)
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
            return _is_part(target) and _is(target, wanted)
    return False


def _writes_each(program: Program, node: ast.Call | ast.stmt, modules: list[str]) -> bool:
    """Whether a statement writes into what a loop goes through: the parameters of a module."""
    return any(
        _owner_of_parameters(iterable).rpartition(".")[2] in modules
        and _writes(node, [dotted_name(target)])
        for block in program.blocks(node)
        if isinstance(block.owner, (ast.For, ast.AsyncFor))
        for target, iterable in _in_parallel(block.owner.target, block.owner.iter)
    )


def _in_parallel(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a loop gives a name to, and from what, also of several that ``zip`` puts together."""
    match target, iterable:
        case ast.Tuple(elts=names), ast.Call(func=ast.Name(id="zip"), args=sources):
            for name, source in zip(names, sources, strict=False):
                yield from _in_parallel(name, source)
        case ast.Tuple(elts=[_, ast.Name() as name]), ast.Call(
            func=ast.Attribute(attr="named_parameters")
        ):
            yield name, iterable
        case ast.Name(), _:
            yield target, iterable


def _owner_of_parameters(iterable: ast.expr) -> str:
    """The module through whose parameters an expression goes; empty for anything else."""
    match iterable:
        case ast.Call(
            func=ast.Attribute(value=owner, attr="parameters" | "named_parameters"), args=[]
        ):
            return dotted_name(owner)
    return ""


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
                return _last_names(node, len(wanted)) == wanted


def _last_names(node: ast.expr, count: int) -> list[str]:
    """The last parts of a name, also of an object that a call returns: ``unwrap(model).head``."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < count:
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and len(names) < count:
        names.append(node.id)
    return names[::-1]
