"""Which values of a cell come from a rank's own share of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .carriers import carriers
from .source import Sources
from .usage import METADATA, SIZES, argument, called_name, key

#: Calls that take a part of the data when they are given the rank.
_PARTS = frozenset({"range", "arange", "Subset", "islice", "narrow"})
_WRAPPERS = frozenset({"enumerate", "tqdm", "iter", "list"})
_DEPTH = 8

_Owner = ast.FunctionDef | None
_Value = tuple[ast.expr | None, _Owner]  #: an expression, and the function in which it stands


@dataclass(frozen=True, slots=True)
class Share:
    """A value that a rank computes from its own share of the data.

    Attributes
    ----------
    cell
        In which it stands.
    statement
        After it, the value is complete.
    names
        Under which names the value is kept.
    trains
        Whether gradients are computed from the same pass over the data.
    """

    cell: int
    statement: ast.stmt
    names: tuple[str, ...]
    trains: bool


class Shares:
    """Finds them.

    Parameters
    ----------
    sources
        The cells.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.carriers = carriers(sources)
        self._known: dict[tuple[_Owner, str], bool] = {}

    def __iter__(self) -> Iterator[Share]:
        for cell, tree in self._sources.trees.items():
            for owner, node in _scoped(tree):
                if isinstance(node, ast.For) and self._divided(_core(node.iter), owner):
                    names = tuple(dict.fromkeys(_accumulated(node)))
                    if not self._sent.intersection(names):
                        yield Share(cell, node, names, _trains(node))
                elif isinstance(node, ast.Assign) and self._computes(node.value, owner):
                    target = key(node.targets[0])
                    if target is not None and target not in self._sent:
                        yield Share(cell, node, (target,), False)

    def _computes(self, value: ast.expr, owner: _Owner) -> bool:
        """Whether an expression computes from a share, other than by a function of the cells."""
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        if any(called_name(call) in self._sources.functions for call in calls):
            return False
        return self._divided(value, owner)

    @cached_property
    def _carried(self) -> set[str]:
        """Names that are given to something that may carry them to other ranks."""
        return {
            name
            for tree in self._sources.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and called_name(node) in self.carriers
            for given in (*node.args, *(k.value for k in node.keywords))
            for name in map(key, ast.walk(given))
            if name is not None
        }

    @cached_property
    def _sent(self) -> set[str]:
        """The same, and names from which one of them is computed."""
        values: dict[str, set[str]] = {}
        for tree in self._sources.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, (ast.Assign, ast.AugAssign)):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    read = {name for name in map(key, ast.walk(node.value)) if name is not None}
                    for target in targets:
                        values.setdefault(key(target) or "", set()).update(read)
        found, todo = set(self._carried), list(self._carried)
        while todo:
            new = values.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    def _divided(self, node: ast.AST | None, owner: _Owner, depth: int = 0) -> bool:
        """Whether an expression takes a part of something by the rank."""
        if node is None or depth > _DEPTH:
            return False
        inside = list(_contents(node))
        if any(isinstance(i, ast.Call) and called_name(i) in self.carriers for i in inside):
            return False
        return any(
            self._takes_part(inner) or self._is_part(inner, owner, depth + 1) for inner in inside
        )

    def _takes_part(self, node: ast.AST) -> bool:
        """Whether data is divided by the rank in this very expression."""
        reads_rank = self._sources.names.reads_rank
        match node:
            case ast.Subscript(slice=index):
                return reads_rank(index)
            case ast.Call(args=arguments):
                name = called_name(node)
                if name == "DistributedSampler":
                    replicas = argument(node, 1, "num_replicas")
                    return not (isinstance(replicas, ast.Constant) and replicas.value == 1)
                return name in _PARTS and any(map(reads_rank, arguments))
        return False

    def _is_part(self, node: ast.AST, owner: _Owner, depth: int) -> bool:
        """Whether a name, an attribute or the result of a function holds a part."""
        match node:
            case ast.Call():
                return self._all_divided(self._returned(called_name(node)), depth)
            case ast.Attribute(attr=name, ctx=ast.Load()):
                value = self._sources.names.value(f".{name}")
                return value is not None and self._divided(value, None, depth)
            case ast.Name(id=name, ctx=ast.Load()) if name not in self._carried:
                if owner is not None and name in _parameters(owner):
                    return self._divided_argument(owner, name, depth)
                return self._divided_name(name, owner, depth)
        return False

    def _divided_name(self, name: str, owner: _Owner, depth: int) -> bool:
        scope = owner if (owner, name) in self._bindings else None
        if (scope, name) not in self._known:
            self._known[scope, name] = False  # while it is looked at
            values = self._bindings.get((scope, name), [])
            self._known[scope, name] = self._all_divided(values, depth)
        return self._known[scope, name]

    def _all_divided(self, values: list[_Value], depth: int) -> bool:
        return bool(values) and all(self._divided(one, scope, depth) for one, scope in values)

    @cached_property
    def _bindings(self) -> dict[tuple[_Owner, str], list[_Value]]:
        """What names are bound to, in the cells and in each function."""
        found: dict[tuple[_Owner, str], list[_Value]] = {}
        for tree in self._sources.trees.values():
            for owner, node in _scoped(tree):
                for name, value in self._bound(node, owner):
                    found.setdefault((owner, name), []).append(value)
        return found

    def _bound(self, node: ast.stmt, owner: _Owner) -> Iterator[tuple[str, _Value]]:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                for index, target in enumerate(targets):
                    returned = self._returned(called_name(call), index)
                    yield key(target) or "", returned[0] if len(returned) == 1 else (None, None)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield key(target) or "", (value, owner)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield key(target) or "", (value, owner)
            case ast.AugAssign(target=target) | ast.For(target=target):
                for name in map(key, ast.walk(target)):
                    yield name or "", (None, None)

    def _returned(self, name: str, index: int | None = None) -> list[_Value]:
        """What a function of the cells returns, or one of several things that it returns."""
        functions = self._sources.functions.get(name, [])
        if len(functions) != 1:
            return []
        found: list[_Value] = []
        for node in ast.walk(functions[0]):
            match node:
                case ast.Return(value=ast.Tuple(elts=parts)) if index is not None:
                    found.append((parts[index] if index < len(parts) else None, functions[0]))
                case ast.Return(value=value):
                    found.append((value if index is None else None, functions[0]))
        return found

    def _divided_argument(self, function: ast.FunctionDef, name: str, depth: int) -> bool:
        """Whether all calls of a function give it a share for this parameter."""
        if depth > _DEPTH:
            return False
        names = _parameters(function)
        method = names[:1] == ["self"]
        position = names.index(name) - method
        given = []
        for _, statement in self._sources.statements_calling(function.name):
            for call in ast.walk(statement):
                if isinstance(call, ast.Call) and called_name(call) == function.name:
                    named = [k.value for k in call.keywords if k.arg == name]
                    given += named or call.args[position : position + 1]
        return bool(given) and all(self._divided(one, None, depth + 1) for one in given)


def _contents(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression reads; not what it asks only for its size or type."""
    if isinstance(node, ast.Attribute) and node.attr in METADATA:
        return
    if isinstance(node, ast.Call) and called_name(node) in SIZES:
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _contents(child)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]


def _scoped(
    node: ast.AST, owner: _Owner = None
) -> Iterator[tuple[ast.FunctionDef | None, ast.stmt]]:
    """Every statement with the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield owner, child
        yield from _scoped(child, child if isinstance(child, ast.FunctionDef) else owner)


def _core(iterable: ast.expr) -> ast.expr:
    """What is iterated over, without ``enumerate`` or a progress bar around it."""
    while isinstance(iterable, ast.Call) and called_name(iterable) in _WRAPPERS and iterable.args:
        iterable = iterable.args[0]
    return iterable


def _accumulated(loop: ast.For) -> Iterator[str]:
    """Names that a loop adds to, or appends to."""
    for node in ast.walk(loop):
        match node:
            case ast.AugAssign(target=target, op=ast.Add()):
                name = key(target)
            case ast.Call(func=ast.Attribute(value=owner, attr="append")):
                name = key(owner)
            case _:
                continue
        if name is not None:
            yield name


def _trains(loop: ast.For) -> bool:
    return any(
        isinstance(node, ast.Call) and called_name(node) == "backward" for node in ast.walk(loop)
    )
