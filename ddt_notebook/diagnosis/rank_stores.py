"""Finds in the source what a loop counts or tests and only some ranks have stored.

A rank that alone resumes from a file counts from another step on, and ends the loop in another
round. Branch events show this, too, where they were recorded; here the source is read.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ddt_notebook.model import Place
from ddt_notebook.program.nodes import LEAVES, FunctionNode, LoopNode, break_conditions
from ddt_notebook.program.program import Program

from .last_stores import LastStores, Stored

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


def _comes(program: Program, node: ast.AST, rank: int, levels: int) -> bool:
    """Whether no condition on the rank keeps a rank from a statement."""
    for block in program.blocks(node):
        held = _is(program, block.owner, rank)
        if held is not None and held is not (block.field == "body"):
            return False
        for one in block.before:
            if isinstance(one, ast.If) and (held := _is(program, one, rank)) is not None:
                taken = one.body if held else one.orelse
                if taken and isinstance(taken[-1], LEAVES):
                    return False
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
