"""Finds in the source what a line looks at and only some ranks have stored.

A rank that alone resumes from a file counts from another step on, and ends a loop in another
round. A rank that lacks what another one has prepared raises. Branch events show this, too, where
they were recorded; here the source is read.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ddt_notebook.model import Place, Position
from ddt_notebook.model.frameworks import called_on_first_of_host
from ddt_notebook.program.nodes import LEAVES, FunctionNode, LoopNode, break_conditions
from ddt_notebook.program.program import Located, Program

from .last_stores import LastStores, Stored

#: So many names that the ranks lack are told.
_MOST_NAMES = 3
#: A function may be called under the condition, or by one that is: so many levels.
_LEVELS = 2


def stored_by_some(program: Program, place: Place, ranks: Collection[int]) -> Iterator[Stored]:
    """What the loop at a line looks at, where conditions on the rank let only some ranks store it.

    Parameters
    ----------
    place
        The line of the loop.
    ranks
        The ranks that took other rounds.
    """
    loop = program.statement_at(place)
    if not isinstance(loop, LoopNode):
        return
    blocks = program.blocks(loop)
    function = blocks[-1].owner if blocks else None
    if function is None:
        return
    tests = [loop.test] if isinstance(loop, ast.While) else [loop.iter]
    stores, told = LastStores(program, {}), set()
    for test in [*tests, *break_conditions(loop)]:
        for name, statement in stores.all_of(test, function):
            coming = {rank for rank in ranks if _comes(program, statement, rank, _LEVELS)}
            if name not in told and coming and coming != set(ranks):
                told.add(name)
                others = tuple(sorted(set(ranks) - coming))
                yield name, ((program.place(statement), tuple(sorted(coming))), (None, others))


@dataclass(frozen=True, slots=True)
class Lacking:
    """What ranks that raised have not stored, and others have.

    Attributes
    ----------
    names
        Attributes, items and variables, as they stand in the line that raised.
    way
        The line that only the others run; it stores them or leads to where they are stored.
    stored
        Where the first of them is stored.
    ranks
        The ranks that run it.
    hook, library
        The method around it that a library's trainer calls on the first rank of each host only, and
        the library's title; empty if a condition on the rank keeps the ranks from it.
    """

    names: tuple[str, ...]
    way: Place
    stored: Place
    ranks: tuple[int, ...]
    hook: str = ""
    library: str = ""


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to a statement: its outermost line that not all ranks run, and who runs it."""

    line: Located
    ranks: frozenset[int]
    hook: tuple[str, str] = ("", "")


def lacking(
    program: Program,
    place: Position | None,
    raised: Collection[int],
    ranks: Collection[int],
    first_of_host: Collection[int],
) -> Lacking | None:
    """What a line looks at that only ranks have stored which did not raise there.

    A name is left out that the ranks which raised store elsewhere, under a condition of their own.

    Parameters
    ----------
    place
        The line that raised.
    raised, ranks, first_of_host
        The ranks that raised there, all ranks that ran, and the first one of each host.
    """
    statement = program.statement_at(place) if place is not None else None
    if statement is None or not set(ranks) - set(raised):
        return None
    tree = program.tree_of(statement)
    owners = [block.owner for block in tree.blocks(statement)]
    function = next((x for x in owners if isinstance(x, FunctionNode)), tree.module)
    everyone, first = frozenset(ranks), frozenset(first_of_host)
    found: dict[_Way, dict[str, ast.stmt]] = {}
    own = set()
    for expression in _read_in(statement):
        for name, store in LastStores(program, {}).all_of(expression, function):
            if store is statement:
                continue
            for way in _ways(program, store, everyone, first, _LEVELS):
                if way.ranks == everyone or not way.ranks:
                    continue
                if not way.ranks & set(raised):
                    found.setdefault(way, {}).setdefault(name, store)
                elif not isinstance(getattr(store, "value", None), ast.Constant):
                    own.add(name)
    for way, names in found.items():
        told = {name: store for name, store in names.items() if name not in own}
        if told:
            return Lacking(
                names=tuple(told)[:_MOST_NAMES],
                way=program.place(way.line),
                stored=program.place(next(iter(told.values()))),
                ranks=tuple(sorted(way.ranks)),
                hook=way.hook[0],
                library=way.hook[1],
            )
    return None


def _read_in(statement: ast.stmt) -> Iterator[ast.expr]:
    """The expressions in the first line of a statement, without those that it stores to."""
    for name in ("test", "iter", "value", "exc", "msg"):
        if isinstance(found := getattr(statement, name, None), ast.expr):
            yield found
    if isinstance(statement, ast.AugAssign):
        yield statement.target
    for item in getattr(statement, "items", ()):
        yield item.context_expr


def _ways(
    program: Program, node: Located, ranks: frozenset[int], first: frozenset[int], levels: int
) -> Iterator[_Way]:
    """Each way to a statement through calls of the functions around it."""
    coming = frozenset(rank for rank in ranks if _let(program, node, rank))
    owners = [block.owner for block in program.blocks(node)]
    function = owners[-1] if owners and isinstance(owners[-1], FunctionNode) else None
    if function is None:
        yield _Way(node, coming)
        return
    library = called_on_first_of_host(function.name, _bases(program, function))
    if library:
        yield _Way(node, coming & first, (function.name, library))
        return
    inner = {*ast.walk(function)}
    # one of a class is called by the name of the class, and by those of others derived from it
    calls = [] if function.name == "__init__" else program.calls(function.name)
    calls = [call for call in calls if call not in inner]
    if not calls or not levels:
        yield _Way(node, coming)
        return
    for call in calls:
        for way in _ways(program, call, ranks, first, levels - 1):
            line = way.line if way.ranks != ranks else node
            yield _Way(line, way.ranks & coming, way.hook)


def _bases(program: Program, function: ast.AST) -> set[str]:
    """The names of the classes from which the class of a method derives, in the program."""
    owner = program.tree_of(function).parents.get(function)
    found: set[str] = set()
    open_ = [owner] if isinstance(owner, ast.ClassDef) else []
    while open_:
        names = {ast.unparse(base).rpartition(".")[2] for base in open_.pop().bases} - found
        found |= names
        open_ += [
            one
            for tree in program.trees.values()
            for one in tree.of_kind(ast.ClassDef)
            if one.name in names
        ]
    return found


def _let(program: Program, node: ast.AST, rank: int) -> bool:
    """Whether no condition on the rank in its function keeps a rank from a statement."""
    for block in program.blocks(node):
        held = _is(program, block.owner, rank)
        if held is not None and held is not (block.field == "body"):
            return False
        for one in block.before:
            if isinstance(one, ast.If) and (held := _is(program, one, rank)) is not None:
                taken = one.body if held else one.orelse
                if taken and isinstance(taken[-1], LEAVES):
                    return False
    return True


def _comes(program: Program, node: ast.AST, rank: int, levels: int) -> bool:
    """Whether no condition on the rank keeps a rank from a statement, or from all calls to it."""
    if not _let(program, node, rank):
        return False
    for block in program.blocks(node):
        if isinstance(block.owner, FunctionNode):
            inner = {*ast.walk(block.owner)}  # a library's function may have the same name
            calls = [c for c in program.calls(block.owner.name) if levels and c not in inner]
            return not calls or any(_comes(program, call, rank, levels - 1) for call in calls)
    return True


def _is(program: Program, owner: ast.AST, rank: int) -> bool | None:
    """Whether a condition on the rank holds; None if it is none, or not known."""
    if not isinstance(owner, ast.If) or not program.conditions.reads_rank(owner.test):
        return None
    return program.truth(owner.test, rank)
