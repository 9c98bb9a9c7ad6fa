"""How many ranks to assume, so that each condition on the rank holds on some but not on all."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .conditions import mentions_rank
from .nodes import called_name, keyword

_LEAST, _MOST = 2, 8


def world_size(nodes: Sequence[ast.AST]) -> int:
    """The smallest number of ranks such that all ranks that the source names exist.

    ``rank == 0`` needs two ranks. ``rank in (0, 1)`` needs three: it holds on both of two ranks.

    Parameters
    ----------
    nodes
        All nodes of the program, each statement before those inside it.
    """
    lists = _lists(nodes)
    formed = [node for node in nodes if called_name(node) == "init_process_group"]
    least = _LEAST
    if len(formed) == 1 and isinstance(formed[0], ast.Call):
        match keyword(formed[0], "world_size"):
            case ast.Constant(value=int(n)):
                return min(max(n, 1), _MOST)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id="world_size")], value=ast.Constant(value=int(n))):
                return min(max(n, 1), _MOST)
        least = max(least, _branches(node), _asked(node, lists))
    return min(least, _MOST)


def _asked(node: ast.AST, lists: dict[str, list[int]]) -> int:
    """How many ranks an expression needs."""
    match node:
        case ast.Compare(left=left, ops=signs, comparators=others):
            if not any(mentions_rank(side) for side in (left, *others)):
                return 0
            sides = zip([*signs, *signs], [*others, left], strict=False)
            parts = any(isinstance(n, (ast.Mod, ast.FloorDiv)) for n in ast.walk(node))
            return max(4 if parts else 0, *(_needed(sign, side, lists) for sign, side in sides))
        case ast.Subscript(value=(ast.List() | ast.Tuple()) as items, slice=index):
            return len(items.elts) if mentions_rank(index) else 0
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            return len(lists.get(f"[{name}]", [])) if mentions_rank(index) else 0
        case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv(), right=ast.Constant()):
            return 4 if mentions_rank(left) else 0
        case ast.Call(args=args, keywords=keywords):
            given = [k.value for k in keywords if k.arg in ("src", "dst")]
            if called_name(node) == "new_group":
                given += [*args, *(k.value for k in keywords if k.arg == "ranks")]
            return max((1 + max(_numbers(one, lists), default=0) for one in given), default=0)
    return 0


def _branches(node: ast.AST) -> int:
    """How many ranks are needed to reach the last branch of ``if … elif … else`` or ``match``."""
    if isinstance(node, ast.Match) and mentions_rank(node.subject):
        return min(len(node.cases), _MOST)
    many = 1
    while isinstance(node, ast.If) and mentions_rank(node.test) and node.orelse:
        many += 1
        node = node.orelse[0]
    return min(many, _MOST)


def _needed(sign: ast.cmpop, side: ast.expr, lists: dict[str, list[int]]) -> int:
    numbers = _numbers(side, lists)
    if not numbers:
        return _LEAST
    if isinstance(sign, (ast.In, ast.NotIn)):
        return max(*numbers, len(set(numbers))) + 1
    return max(numbers) + (2 if isinstance(sign, (ast.LtE, ast.Gt)) else 1)


def _numbers(node: ast.expr, lists: dict[str, list[int]]) -> list[int]:
    found = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and type(inner.value) is int and inner.value < _MOST:
            found.append(inner.value)
        elif isinstance(inner, ast.Name):
            found += lists.get(inner.id, [])
    return found


def _lists(nodes: Sequence[ast.AST]) -> dict[str, list[int]]:
    """Numbers in the lists of a program, by the variable that holds the list.

    The entry ``[name]`` holds as many zeros as the list has elements.
    """
    named = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, (ast.List, ast.Tuple, ast.Set))
    }
    many = {f"[{name}]": [0] * len(value.elts) for name, value in named.items()}
    return many | {name: _numbers(value, {}) for name, value in named.items()}
