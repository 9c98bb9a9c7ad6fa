"""Which values of a cell come from a rank's own share of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Position

from . import syntax
from .carriers import carriers
from .divided import Divided, Owner, scoped
from .returned import Returned, parts
from .source import Sources
from .usage import Trail, Use, called_name, key

_WRAPPERS = frozenset({"enumerate", "tqdm", "iter", "list"})


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
    shown
        Whether the statement prints it at once; its name is then what the text says.
    """

    cell: int
    statement: ast.stmt
    names: tuple[str, ...]
    trains: bool
    origin: tuple[str, ...] = ()
    shown: bool = False


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
        self._divided = Divided(sources, self.carriers)

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
        cell, statement = share.cell, share.statement
        if share.shown:
            if self._reached(share, rank):
                yield cell, Use(statement.lineno, "print", ast.unparse(statement))
            return
        trail = Trail(self._sources, rank, self.carriers, leaves=False)
        while (found := trail.follow(cell, statement, name)) is not None:
            yield found
            use = found[1]
            after = self._sources.statement(Position(file=f"cell[{cell}]", line=use.line))
            if not use.keys or after is None or after.lineno <= statement.lineno:
                return
            if not self._leaves_alone(after, use):
                return
            statement, name = after, use.keys[0]

    def _reached(self, share: Share, rank: int) -> bool:
        """Whether a rank surely comes to a statement: only conditions on the rank are before it."""
        tree = self._sources.tree(share.cell)
        if tree is None:
            return False
        for owner, block in syntax.blocks(tree, share.statement):
            if isinstance(owner, ast.If):
                holds = self._sources.truth(owner.test, rank)
                if holds is None or holds is not (block is owner.body):
                    return False
            elif not isinstance(owner, (ast.Module, ast.For, ast.With)):
                return False
            before = (
                one
                for one in block
                if one.lineno < share.statement.lineno
                and not isinstance(one, (ast.FunctionDef, ast.ClassDef))
            )
            if any(isinstance(inner, syntax.LEAVES) for one in before for inner in ast.walk(one)):
                return False
        return True

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
                    origin = tuple(sorted(words))
                    for place, statement, target in self._calls.receivers(function, part):
                        if not self._is_sent(target):
                            yield Share(place, statement, (target,), trains, origin)
                    for place, statement, said in self._calls.prints(function, part):
                        yield Share(place, statement, (said,), trains, origin, shown=True)

    def _computed(self) -> Iterator[Share]:
        """Those that are not returned by a function."""
        for cell, tree in self._sources.trees.items():
            for owner, node in scoped(tree):
                if isinstance(node, ast.For) and self._divided.holds(_core(node.iter), owner):
                    if self._carries(node):
                        continue
                    names = tuple(dict.fromkeys(_accumulated(node)))
                    if not any(map(self._is_sent, names)):
                        yield Share(cell, node, names, _trains(node))
                elif isinstance(node, ast.Assign) and self._computes(node.value, owner):
                    target = key(node.targets[0])
                    if target is not None and not self._is_sent(target):
                        yield Share(cell, node, (target,), _beside_training(tree, node))

    def _computes(self, value: ast.expr, owner: Owner) -> bool:
        """Whether an expression computes from a share, other than by a function of the cells."""
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        if any(called_name(call) in self._sources.functions for call in calls):
            return False
        return self._divided.holds(value, owner)

    def _is_sent(self, name: str) -> bool:
        """Whether a value, or the collection of which it is an item, may go to other ranks."""
        return name in self._sent or name.partition("[")[0] in self._sent

    def _carries(self, node: ast.AST) -> bool:
        calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
        return any(called_name(call) in self.carriers for call in calls)

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
        found, todo = set(self._divided.carried), list(self._divided.carried)
        while todo:
            new = values.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found


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


def _beside_training(tree: ast.Module, node: ast.stmt) -> bool:
    """Whether the innermost loop around a statement computes gradients, in no loop of its own."""
    owners = [owner for owner, _ in syntax.blocks(tree, node)]
    loops = [owner for owner in owners if isinstance(owner, (ast.For, ast.While))]
    own = (n for n in loops[-1].body if not isinstance(n, (ast.For, ast.While))) if loops else ()
    return any(map(_trains, own))


def _trains(node: ast.stmt) -> bool:
    return any(
        isinstance(inner, ast.Call) and called_name(inner) == "backward" for inner in ast.walk(node)
    )
