"""Finds where a program takes the order in which a set holds its items.

That order depends on the hashes of the items, and those of texts are others in each process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.model import Place

from .nodes import called_name
from .program import Program

_MAKES_SET = frozenset({"set", "frozenset", "union", "intersection", "difference"})
#: Calls that keep the order of what they are given.
_KEEPS = frozenset({"list", "tuple", "enumerate"})


def orders_of_sets(program: Program) -> Iterator[Place]:
    """The lines at which a list, a tuple, or numbers are made from a set that is not sorted."""
    told: set[Place] = set()
    for node in program.nodes:
        match node:
            case ast.Call(args=[given, *_]) if called_name(node) in _KEEPS:
                taken = [given]
            case ast.ListComp(generators=loops) | ast.DictComp(generators=loops):
                taken = [loop.iter for loop in loops]
            case _:
                continue
        if any(_is_set(program, one) for one in taken):
            place = program.place(node)
            if place not in told:
                told.add(place)
                yield place


def _is_set(program: Program, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        bound = program.conditions.bindings(node.id)
        return bool(bound) and all(_makes_set(one, node.id) for one in bound)
    return _makes_set(node)


def _makes_set(node: ast.expr, name: str = "") -> bool:
    """Whether an expression is a set, perhaps one joined with that of a name."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call():
            return called_name(node) in _MAKES_SET
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.Sub(), left=left, right=right):
            sides = [one for one in (left, right) if not _is_name(one, name)]
            return all(map(_makes_set, sides))
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
