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
    """One time that a loop ran: the numbers of the events of its rounds and of its end.

    ``end`` is None if an exception left the loop.
    """

    rounds: tuple[int, ...]
    end: int | None


@dataclass(frozen=True, slots=True)
class _Passes:
    """All times that a loop ran on one rank, the last one only if it ended, and its two ways."""

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
    until: tuple[int, int],
) -> UnevenPass | None:
    """The earliest loop that ended with other rounds on two ranks, each with a collective.

    None unless all events of the run are kept, and if the ranks were level again later: a rank
    that has no more data may go on in the others' collectives. What a library issued in a process
    that died is not known: the other rank shows then that each round makes a collective.

    Parameters
    ----------
    branches, reports
        Those of the two ranks.
    group
        The group of the collectives.
    until
        For each rank, the number of the event by which it has ended the loop.
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
        ended = list(zip(both[0].each, both[1].each, strict=False))
        for number, (one, two) in enumerate(ended):
            if one.end is None or two.end is None or one.end > until[0] or two.end > until[1]:
                break
            rounds = len(one.rounds), len(two.rounds)
            if rounds[0] == rounds[1]:
                continue
            later = ended[number + 1] if number + 1 < len(ended) else None
            if _each_calls(calls, (one, two), later):
                shorter = rounds[0] < rounds[1]
                ways = (
                    both[0].ends if shorter else both[0].goes_on,
                    both[1].goes_on if shorter else both[1].ends,
                )
                ends = one.end, two.end
                found.append(UnevenPass(both[0].decision, ways, ends, min(rounds)))
            break
    return min(found, key=lambda one: one.ends, default=None)


def _each_calls(
    calls: list[list[Call] | None],
    passes: tuple[_Pass, _Pass],
    later: tuple[_Pass, _Pass] | None,
) -> bool:
    """Whether each round made a collective, and ranks that were level before are not so after.

    They are level again if they have made as many collectives when the loop begins once more.
    """
    for made, one in zip(calls, passes, strict=True):
        if made is not None:
            times = [_before(made, at) for at in (*one.rounds, one.end or 0)]
            if any(a == b for a, b in pairwise(times)):
                return False
    if None in calls:
        return any(made is not None for made in calls)
    begins, ends = [one.rounds[0] for one in passes], [one.end or 0 for one in passes]
    again = ends if later is None else [one.rounds[0] for one in later]
    first, last, next_time = (
        [_before(made or [], at) for made, at in zip(calls, times, strict=True)]
        for times in (begins, ends, again)
    )
    return first[0] == first[1] and last[0] != last[1] and next_time[0] != next_time[1]


def _before(calls: list[Call], event: int) -> int:
    """How many of the calls were made before an event."""
    return sum((call.branches_before or 0) <= event for call in calls)


def _passes(program: Program, branches: RankBranches) -> Iterator[_Passes]:
    """The loops of a rank that only end when their items do.

    Loops in generators are left out: that a generator is not asked again is no event.
    """
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
        if is_generator(decision.function) or any(break_conditions(node)):
            continue
        if set(ways.values()) != {True, False}:
            continue
        head = branches.outcomes[next(iter(ways))]
        leaving = {
            index
            for index, outcome in enumerate(branches.outcomes)
            if outcome.kind == "raised"
            and (outcome.file, outcome.function) == (head.file, head.function)
        }
        each: list[_Pass] = []
        rounds: list[int] = []
        for number, index in enumerate(branches.events):
            if ways.get(index) is True:
                rounds.append(number)
            elif index in ways:
                if rounds:
                    each.append(_Pass(tuple(rounds), number))
                rounds = []
            elif index in leaving and rounds:
                each.append(_Pass(tuple(rounds), None))
                rounds = []
        by_way = {taken: branches.outcomes[index] for index, taken in ways.items()}
        yield _Passes(decision, tuple(each), by_way[True], by_way[False])
