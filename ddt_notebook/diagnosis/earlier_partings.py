"""Finds conditions at which two ranks went different ways and that matter much later.

What a rank does there may register a handler, or set the first round of a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddt_notebook.model import Call, RankReport
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.program.branch_arms import Decision, decision_at
from ddt_notebook.program.nodes import LoopNode
from ddt_notebook.program.program import Program


@dataclass(frozen=True, slots=True)
class Apart:
    """A condition at which two ranks went different ways when each came to it last.

    Attributes
    ----------
    decision
        The ``if``.
    one, other
        The last ways of the two ranks.
    always
        Whether both went these ways every time.
    """

    decision: Decision
    one: BranchOutcome
    other: BranchOutcome
    always: bool

    @property
    def arm(self) -> list[ast.stmt]:
        """The statements that the first rank ran."""
        return self.decision.arm(taken=self.decision.is_taken(self.one))


def apart(program: Program, one: RankBranches, other: RankBranches) -> Iterator[Apart]:
    """The conditions at which two ranks went different ways at last."""
    mine, theirs = _last(one), _last(other)
    for site, way in mine.items():
        their_way = theirs.get(site)
        if their_way is None or way.to_line == their_way.to_line:
            continue
        decision = decision_at(program, way)
        if decision is None or not isinstance(decision.node, ast.If):
            continue
        if decision.is_taken(way) is not decision.is_taken(their_way):
            ways = [o for known in (one, other) for o in known.outcomes if o.site == site]
            always = len([o for o in ways if o.times]) == 2
            yield Apart(decision, way, their_way, always)


def _last(branches: RankBranches) -> dict[object, BranchOutcome]:
    """The last way at each condition, the earliest one first; as far as events are kept."""
    found: dict[object, BranchOutcome] = {}
    for index in branches.events:
        outcome = branches.outcomes[index]
        if outcome.kind == "branch":
            found[outcome.site] = outcome
    return found


def ran(branches: RankBranches, file: str, function: ast.AST) -> bool:
    """Whether a rank came through a function: each return from one is noted."""
    first, last = getattr(function, "lineno", 0), getattr(function, "end_lineno", 0) or 0
    name = getattr(function, "name", "")
    return any(
        outcome.times
        and (outcome.file, outcome.function) == (file, name)
        and first <= outcome.line <= last
        for outcome in branches.outcomes
    )


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds a loop took each time that it ended, and the last way there."""

    each: tuple[int, ...]
    last: BranchOutcome
    decision: Decision


def rounds(program: Program, branches: RankBranches, loop: LoopNode) -> Rounds | None:
    """The rounds of a loop on a rank; None if they are not known from the run's start on."""
    if branches.events_dropped:
        return None
    ways: dict[int, tuple[Decision, bool]] = {}
    file = program.place(loop).file
    for index, outcome in enumerate(branches.outcomes):
        if (outcome.file, outcome.line, outcome.kind) == (file, loop.lineno, "branch"):
            decision = decision_at(program, outcome)
            if decision is not None and decision.node is loop:
                ways[index] = decision, decision.is_taken(outcome)
    seen = [index for index in branches.events if index in ways]
    if not seen:
        return None
    found, current = [], 0
    for index in seen:
        if ways[index][1]:
            current += 1
        else:
            found.append(current)
            current = 0
    return Rounds(tuple(found), branches.outcomes[seen[-1]], ways[seen[-1]][0])


def given_up(call: Call, caller: RankReport, absent: RankReport) -> Call | None:
    """An earlier collective that failed for want of ``absent``, after which ``caller`` went on.

    So a barrier with a time limit may be used to find out who is late. If the ranks have met since
    then, they were level again.
    """
    entered = {(c.group, c.sequence) for c in absent.calls if c.kind == "collective"}
    found: Call | None = None
    for one in caller.calls:
        if one.index >= call.index:
            break
        if one.kind != "collective":
            continue
        if (one.group, one.sequence) in entered:
            found = None
        elif found is None and one.status == "failed" and absent.rank in one.members:
            found = one
    return found
