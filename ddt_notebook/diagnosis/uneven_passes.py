"""Finds a loop that took other rounds on two ranks, possibly long before the ranks stopped.

Each round makes a collective, so from the end of that loop on, the ranks are out of step. Calls may
fit by chance for a while, such as DDP's exchange of gradients in the next epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ddt_notebook.model import Call, RankReport
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.program.branch_arms import Decision, decision_at, is_generator
from ddt_notebook.program.nodes import LoopNode, break_conditions
from ddt_notebook.program.program import Program


@dataclass(frozen=True, slots=True)
class _Pass:
    """One time that a loop ran: the numbers of the events of its rounds and of its end."""

    rounds: tuple[int, ...]
    end: int


@dataclass(frozen=True, slots=True)
class _Passes:
    """All times that a loop ran to its end on one rank, and its two ways."""

    decision: Decision
    each: tuple[_Pass, ...]
    goes_on: BranchOutcome
    ends: BranchOutcome


@dataclass(frozen=True, slots=True)
class UnevenPass:
    """The first time that a loop took other rounds on two ranks.

    Attributes
    ----------
    decision
        The loop.
    ways
        For each rank, whether it went on or ended where the other one did not.
    ends
        For each rank, the number of the event with which it ended the loop.
    rounds
        After how many rounds one rank ended and the other one went on.
    """

    decision: Decision
    ways: tuple[BranchOutcome, BranchOutcome]
    ends: tuple[int, int]
    rounds: int


def first_uneven_pass(
    program: Program,
    branches: tuple[RankBranches, RankBranches],
    reports: tuple[RankReport, RankReport],
    group: str,
) -> UnevenPass | None:
    """The earliest loop that ended with other rounds on two ranks, each with a collective.

    None unless all events of the run are kept. What a library issued in a process that died is not
    known: the other rank shows then that each round makes a collective.

    Parameters
    ----------
    branches, reports
        Those of the two ranks.
    group
        The group of the collectives.
    """
    if any(one.events_dropped for one in branches):
        return None
    mine, theirs = ({id(p.decision.node): p for p in _passes(program, one)} for one in branches)
    calls = [
        None
        if report.state == "died"
        else [
            call
            for call in report.calls
            if call.kind == "collective"
            and call.group == group
            and call.branches_before is not None
        ]
        for report in reports
    ]
    found: list[UnevenPass] = []
    for loop in mine.keys() & theirs.keys():
        both = mine[loop], theirs[loop]
        for one, two in zip(both[0].each, both[1].each, strict=False):
            rounds = len(one.rounds), len(two.rounds)
            if rounds[0] == rounds[1]:
                continue
            if _each_calls(calls, (one, two)):
                shorter = rounds[0] < rounds[1]
                ways = (
                    both[0].ends if shorter else both[0].goes_on,
                    both[1].goes_on if shorter else both[1].ends,
                )
                found.append(UnevenPass(both[0].decision, ways, (one.end, two.end), min(rounds)))
            break
    # a loop over a generator is better known to the user than the loop in the generator
    return min(found, key=lambda one: (is_generator(one.decision.function), one.ends), default=None)


def _each_calls(calls: list[list[Call] | None], passes: tuple[_Pass, _Pass]) -> bool:
    """Whether each round made a collective, and ranks that were level before are not so after."""
    for made, one in zip(calls, passes, strict=True):
        if made is not None:
            times = [_before(made, at) for at in (*one.rounds, one.end)]
            if any(a == b for a, b in pairwise(times)):
                return False
    if None in calls:
        return any(made is not None for made in calls)
    counts = [
        (_before(made or [], one.rounds[0]), _before(made or [], one.end))
        for made, one in zip(calls, passes, strict=True)
    ]
    return counts[0][0] == counts[1][0] and counts[0][1] != counts[1][1]


def _before(calls: list[Call], event: int) -> int:
    """How many of the calls were made before an event."""
    return sum((call.branches_before or 0) <= event for call in calls)


def _passes(program: Program, branches: RankBranches) -> Iterator[_Passes]:
    """The loops of a rank that only end when their items do."""
    loops: dict[int, tuple[Decision, dict[int, bool]]] = {}
    for index, outcome in enumerate(branches.outcomes):
        if outcome.kind != "branch":
            continue
        decision = decision_at(program, outcome)
        node = None if decision is None else decision.node
        if decision is None or not isinstance(node, (ast.For, ast.AsyncFor)):
            continue
        _, ways = loops.setdefault(id(node), (decision, {}))
        ways[index] = decision.is_taken(outcome)
    for decision, ways in loops.values():
        node = decision.node
        assert isinstance(node, LoopNode)
        if any(break_conditions(node)) or set(ways.values()) != {True, False}:
            continue
        each: list[_Pass] = []
        rounds: list[int] = []
        for number, index in enumerate(branches.events):
            if ways.get(index) is True:
                rounds.append(number)
            elif index in ways:
                if rounds:
                    each.append(_Pass(tuple(rounds), number))
                rounds = []
        by_way = {taken: branches.outcomes[index] for index, taken in ways.items()}
        yield _Passes(decision, tuple(each), by_way[True], by_way[False])
