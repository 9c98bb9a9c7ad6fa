"""Which expressions of the cells hold a part of something that is divided by the rank."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from functools import cached_property

from . import syntax
from .source import Sources
from .usage import METADATA, SIZES, argument, called_name, key

#: Calls that take a part of the data when they are given the rank.
_PARTS = frozenset({"range", "arange", "Subset", "islice", "narrow"})
_DEPTH = 8

Owner = ast.FunctionDef | None  #: the function in which something stands
_Value = tuple[ast.expr | None, Owner]  #: an expression, and the function in which it stands


class Divided:
    """Follows names, attributes, parameters and results of functions to where they come from.

    Parameters
    ----------
    sources
        The cells.
    carriers
        Names of calls that may carry a value to other ranks: what they give is no part any more.
    """

    def __init__(self, sources: Sources, carriers: Container[str]) -> None:
        self._sources = sources
        self._carriers = carriers
        self._known: dict[tuple[Owner, str], bool] = {}

    @cached_property
    def carried(self) -> set[str]:
        """Names that are given to something that may carry them to other ranks."""
        return {
            name
            for tree in self._sources.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and called_name(node) in self._carriers
            for given in (*node.args, *(k.value for k in node.keywords))
            for name in map(key, ast.walk(given))
            if name is not None
        }

    def holds(self, node: ast.AST | None, owner: Owner, depth: int = 0) -> bool:
        """Whether an expression takes a part of something by the rank."""
        if node is None or depth > _DEPTH:
            return False
        inside = list(_contents(node, self._sources.functions))
        if any(isinstance(i, ast.Call) and called_name(i) in self._carriers for i in inside):
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

    def _is_part(self, node: ast.AST, owner: Owner, depth: int) -> bool:
        """Whether a name, an attribute or the result of a function holds a part."""
        match node:
            case ast.Call():
                return self._all_divided(self._returned(called_name(node)), depth)
            case ast.Attribute(attr=name, ctx=ast.Load()):
                value = self._sources.names.value(f".{name}")
                scope = next((by for one, by in self._assigned if one is value), None)
                return value is not None and self.holds(value, scope, depth)
            case ast.Name(id=name, ctx=ast.Load()) if name not in self.carried:
                if owner is not None and name in _parameters(owner):
                    return self._divided_argument(owner, name, depth)
                return self._divided_name(name, owner, depth)
        return False

    def _divided_name(self, name: str, owner: Owner, depth: int) -> bool:
        scope = owner if (owner, name) in self._bindings else None
        if (scope, name) not in self._known:
            self._known[scope, name] = False  # while it is looked at
            values = self._bindings.get((scope, name), [])
            self._known[scope, name] = self._all_divided(values, depth)
        return self._known[scope, name]

    def _all_divided(self, values: list[_Value], depth: int) -> bool:
        return bool(values) and all(self.holds(one, scope, depth) for one, scope in values)

    @cached_property
    def _bindings(self) -> dict[tuple[Owner, str], list[_Value]]:
        """What names are bound to, in the cells and in each function."""
        found: dict[tuple[Owner, str], list[_Value]] = {}
        for tree in self._sources.trees.values():
            for owner, node in scoped(tree):
                for name, value in self._bound(node, owner):
                    found.setdefault((owner, name), []).append(value)
        return found

    @cached_property
    def _assigned(self) -> list[_Value]:
        return [value for values in self._bindings.values() for value in values]

    def _bound(self, node: ast.stmt, owner: Owner) -> Iterator[tuple[str, _Value]]:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                known = called_name(call) in self._sources.functions
                for index, target in enumerate(targets):
                    returned = self._returned(called_name(call), index)
                    one = returned[0] if len(returned) == 1 else (None, None)
                    yield key(target) or "", one if known else (call, owner)
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
        given: list[tuple[ast.expr, Owner]] = []
        called = self._classes.get(function, function.name)
        for cell, statement in self._sources.statements_calling(called):
            scope = syntax.following(self._sources.trees[cell], statement)[1]
            for call in ast.walk(statement):
                if isinstance(call, ast.Call) and called_name(call) == called:
                    named = [k.value for k in call.keywords if k.arg == name]
                    given += [(v, scope) for v in named or call.args[position : position + 1]]
        return bool(given) and all(self.holds(one, by, depth + 1) for one, by in given)

    @cached_property
    def _classes(self) -> dict[Owner, str]:
        """Under which name a constructor is called."""
        return {
            method: node.name
            for tree in self._sources.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for method in node.body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        }


def _contents(node: ast.AST, known: Container[str]) -> Iterator[ast.AST]:
    """What an expression reads; not what it asks only for its size or type.

    A call of a known function stands for what that returns, whatever it is given.
    """
    if isinstance(node, ast.Attribute) and node.attr in METADATA:
        return
    if isinstance(node, ast.Call) and called_name(node) in SIZES:
        return
    yield node
    if isinstance(node, ast.Call) and called_name(node) in known:
        return
    for child in ast.iter_child_nodes(node):
        yield from _contents(child, known)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]


def scoped(node: ast.AST, owner: Owner = None) -> Iterator[tuple[Owner, ast.stmt]]:
    """Every statement with the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield owner, child
        yield from scoped(child, child if isinstance(child, ast.FunctionDef) else owner)
