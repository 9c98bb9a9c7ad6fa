"""Finds a limit on steps that is not the same on two ranks, which had counted the same steps.

Such a limit ends the run on one rank, as in ``if step >= limit: break``. Loops around it may have
taken other rounds before. As long as the ranks met in each collective, that parted nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddt_notebook.model.branches import RankBranches
from ddt_notebook.program.branch_arms import Decision, decision_at
from ddt_notebook.program.nodes import FunctionNode
from ddt_notebook.program.program import Program


def counted_alike(
    program: Program, decision: Decision, ranks: Iterable[tuple[RankBranches, int]]
) -> bool:
    """Whether a condition asks for a number of steps that is the same on all ranks.

    False if it asks for nothing that the function counts, or if that is not known.

    Parameters
    ----------
    decision
        The condition.
    ranks
        The events of each rank, and the number of the event with which it came to the condition.
    """
    if not isinstance(decision.node, ast.If) or decision.test is None:
        return False
    asked = {one.id for one in ast.walk(decision.test) if isinstance(one, ast.Name)}
    counting = list(_counting(decision.function, asked))
    if not counting:
        return False
    found = [
        tuple(_times(program, one, branches, until) for one in counting)
        for branches, until in ranks
    ]
    return None not in found[0] and all(one == found[0] for one in found)


def _counting(function: ast.AST, names: set[str]) -> Iterator[ast.stmt]:
    """The statements of a function that add a constant to one of the names."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (FunctionNode, ast.ClassDef, ast.Lambda)):
            continue
        waiting += ast.iter_child_nodes(node)
        match node:
            case ast.AugAssign(target=ast.Name(id=name), value=ast.Constant()) if name in names:
                yield node


def _times(program: Program, node: ast.stmt, branches: RankBranches, until: int) -> int | None:
    """How often the block with a statement was begun before an event; None if not known."""
    around = next((block.owner for block in program.blocks(node)), None)
    if branches.events_dropped or not isinstance(around, (ast.If, ast.For, ast.While)):
        return None
    file = program.place(node).file
    inner: set[int] = set()
    for index, outcome in enumerate(branches.outcomes):
        if (outcome.file, outcome.line, outcome.kind) != (file, around.lineno, "branch"):
            continue
        decision = decision_at(program, outcome)
        if decision is None or decision.node is not around:
            continue
        taken = decision.is_taken(outcome)
        if node in decision.arm(taken=taken):
            inner.add(index)
    if not inner:
        return None  # such as ``while True``, which is no event
    return sum(index in inner for index in branches.events[:until])
