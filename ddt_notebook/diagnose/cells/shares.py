"""Which values of a cell come from a rank's own share of the data."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Position

from . import syntax
from .carriers import carriers
from .returned import Returned, parts
from .source import Sources
from .usage import METADATA, SIZES, Trail, Use, argument, called_name, key

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
    origin
        Where a function has returned it: its names in there, and that of the function.
    """

    cell: int
    statement: ast.stmt
    names: tuple[str, ...]
    trains: bool
    origin: tuple[str, ...] = ()


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
        self._calls = Returned(sources, self.carriers)
        self._known: dict[tuple[_Owner, str], bool] = {}

    def __iter__(self) -> Iterator[Share]:
        todo, seen = list(self._computed()), set()
        for share in todo:
            seen.add(share)
            yield share
            todo += [one for one in self._passed_on(share) if one not in seen]

    def uses(self, share: Share, name: str, rank: int) -> Iterator[tuple[int, Use]]:
        """What a rank does with a share in its function: one use, and what comes after it.

        Only where a use leaves the value and the way of the rank as they are, more may come.
        """
        trail = Trail(self._sources, rank, self.carriers, leaves=False)
        cell, statement = share.cell, share.statement
        while (found := trail.follow(cell, statement, name)) is not None:
            yield found
            use = found[1]
            after = self._sources.statement(Position(file=f"cell[{cell}]", line=use.line))
            if not use.keys or after is None or after.lineno <= statement.lineno:
                return
            if not self._leaves_alone(after, use):
                return
            statement, name = after, use.keys[0]

    def _leaves_alone(self, statement: ast.stmt, use: Use) -> bool:
        """Whether a print or a condition changes nothing about a value that it reads."""
        if use.kind == "print":
            return True
        if use.kind != "decision" or not isinstance(statement, ast.If):
            return False
        return not any(
            isinstance(inner, syntax.LEAVES)
            or (isinstance(inner, ast.Call) and called_name(inner) in self.carriers)
            or (isinstance(getattr(inner, "ctx", None), ast.Store) and key(inner) in use.keys)
            for inner in ast.walk(statement)
        )

    def _passed_on(self, share: Share) -> Iterator[Share]:
        """What the callers of a function have of a share that it returns."""
        for name in share.names:
            for cell, use in self.uses(share, name, 0):
                tree = self._sources.tree(cell)
                node = self._sources.statement(Position(file=f"cell[{cell}]", line=use.line))
                if tree is None or not isinstance(node, ast.Return) or node.value is None:
                    continue
                function = syntax.following(tree, node)[1]
                if function is None:
                    continue
                trains = share.trains or _trains(function)
                for part in parts(node.value, use.keys):
                    words = {*share.origin, name, *use.keys} | (
                        {function.name} if part is None else set()
                    )
                    for place, statement, target in self._calls.receivers(function, part):
                        if not self._is_sent(target):
                            origin = tuple(sorted(words))
                            yield Share(place, statement, (target,), trains, origin)

    def _computed(self) -> Iterator[Share]:
        """Those that are not returned by a function."""
        for cell, tree in self._sources.trees.items():
            for owner, node in _scoped(tree):
                if isinstance(node, ast.For) and self._divided(_core(node.iter), owner):
                    if self._carries(node):
                        continue
                    names = tuple(dict.fromkeys(_accumulated(node)))
                    if not any(map(self._is_sent, names)):
                        yield Share(cell, node, names, _trains(node))
                elif isinstance(node, ast.Assign) and self._computes(node.value, owner):
                    target = key(node.targets[0])
                    if target is not None and not self._is_sent(target):
                        yield Share(cell, node, (target,), False)

    def _computes(self, value: ast.expr, owner: _Owner) -> bool:
        """Whether an expression computes from a share, other than by a function of the cells."""
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        if any(called_name(call) in self._sources.functions for call in calls):
            return False
        return self._divided(value, owner)

    def _is_sent(self, name: str) -> bool:
        """Whether a value, or the collection of which it is an item, may go to other ranks."""
        return name in self._sent or name.partition("[")[0] in self._sent

    def _carries(self, node: ast.AST) -> bool:
        calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
        return any(called_name(call) in self.carriers for call in calls)

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
        inside = list(_contents(node, self._sources.functions))
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
                scope = next((by for one, by in self._assigned if one is value), None)
                return value is not None and self._divided(value, scope, depth)
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

    @cached_property
    def _assigned(self) -> list[_Value]:
        return [value for values in self._bindings.values() for value in values]

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
        given: list[tuple[ast.expr, _Owner]] = []
        called = self._classes.get(function, function.name)
        for cell, statement in self._sources.statements_calling(called):
            scope = syntax.following(self._sources.trees[cell], statement)[1]
            for call in ast.walk(statement):
                if isinstance(call, ast.Call) and called_name(call) == called:
                    named = [k.value for k in call.keywords if k.arg == name]
                    given += [(v, scope) for v in named or call.args[position : position + 1]]
        return bool(given) and all(self._divided(one, by, depth + 1) for one, by in given)

    @cached_property
    def _classes(self) -> dict[_Owner, str]:
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


def _trains(node: ast.stmt) -> bool:
    return any(
        isinstance(inner, ast.Call) and called_name(inner) == "backward" for inner in ast.walk(node)
    )
