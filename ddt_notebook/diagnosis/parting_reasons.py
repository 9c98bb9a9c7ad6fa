"""Says of a parting that was found why a rank did not reach a call.

Partings are found elsewhere; this tells the cause, the line, and the path and the values of each
rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ddt_notebook.model import Place, Position
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.program.branch_arms import Decision, function_at, is_generator
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.names import RANK_NAMES
from ddt_notebook.program.nodes import (
    FunctionNode,
    asks_for_end,
    called_name,
    calls_in,
    ends_with_data,
    returned_values,
)
from ddt_notebook.program.program import Program

#: Priority of a parting in a function that a library called: it does not show the library's loop.
IN_CALLBACK = 2
#: Priority of one after which a rank alone called a method of the library's trainer or module.
ASKS_LIBRARY = 4
#: Priority of a handler of which only that it reported an error was observed.
REPORTED = -1
#: How the value of a float is shown that is no whole number.
_MEASURED = re.compile(r"-?(\d+\.\d+|\d+(\.\d+)?e-\d+|nan|inf)")
#: One side of a parting in a fact: its path, its ranks, and the values of names on the first one.
Side = tuple[str, tuple[int, ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A parting with what the source shows of it; the one with the lowest priority is the best.

    ``rounds`` is after how many rounds the ranks parted at a loop that ran more than once.
    """

    decision: Decision
    absent: BranchOutcome | None
    waiter: BranchOutcome | None
    priority: int
    rounds: int | None = None

    @property
    def ends_loop(self) -> bool:
        """Whether only the end of a loop differs; something before may have caused it."""
        return isinstance(self.decision.node, (ast.For, ast.AsyncFor, ast.While))

    @property
    def measures(self) -> bool:
        """Whether the condition looks at a measured number, such as a loss, and not at a count."""
        shown = [one for one in (self.absent, self.waiter) if one is not None]
        return any(_MEASURED.fullmatch(text) for one in shown for text in one.values.values())


class PartingReasons:
    """Tells the reasons of one run's partings.

    Parameters
    ----------
    program
        What the ranks ran.
    branches
        The branch events of each rank.
    """

    def __init__(self, program: Program, branches: Mapping[int, RankBranches]) -> None:
        self._program, self._branches = program, branches

    def of(
        self,
        found: Candidate,
        absent: int,
        caller: int,
        at: Position | None,
        frames: list[Position],
    ) -> Reason:
        """Why ``absent`` did not make the call of ``caller``.

        Parameters
        ----------
        found
            Where the two ranks parted.
        at
            Where ``absent`` was instead; None if it had finished the cell.
        frames
            The lines that led ``caller`` to its call.
        """
        decision = found.decision
        place = self._program.place(decision.head, "passed")
        shown = found.absent or found.waiter
        assert shown is not None
        place = Place(
            file=place.file,
            line=place.line,
            function=shown.function,
            code=place.code,
            role="passed",
        )
        taken = (
            decision.is_taken(found.absent)
            if found.absent is not None
            else not decision.is_taken(shown)
        )
        calls = [f.line for f in frames if function_at(self._program, f) is decision.function]
        stands = (
            at is not None
            and at.file == place.file
            and isinstance(decision.node, ast.If)
            and decision.runs_instead(at.line, taken=taken)
            and any(decision.runs_instead(line, taken=not taken) for line in calls)
        )
        return Reason(
            cause=self._cause(
                found, taken=taken, frames=frames, callback=found.priority == IN_CALLBACK
            ),
            kind="parted",
            place=place,
            rank=absent,
            values={"sides": self.sides(found, absent, caller)},
            priority=found.priority,
            other_branch=stands,
        )

    def _cause(
        self, found: Candidate, *, taken: bool, frames: list[Position], callback: bool
    ) -> str:
        decision = found.decision
        if isinstance(decision.node, (ast.ExceptHandler, ast.With)):
            node = decision.node
            ended = isinstance(node, ast.ExceptHandler) and ends_with_data(node)
            return "uneven-iterations" if ended else "exception-swallowed"
        conditions, test = self._program.conditions, decision.test
        if test is None:
            return "uneven-iterations"
        leaving = decision.leaves(taken=taken)
        around = any(
            decision.covers(frame.line, taken=not taken)
            for frame in frames
            if function_at(self._program, frame) is decision.function
        )
        in_loop = isinstance(decision.node, ast.While)
        if (
            conditions.reads_rank(test)
            or _reads_rank_of_dict(test)
            or any(map(self._returns_rank, calls_in(test)))
        ):
            if in_loop or callback or (leaving is not None and not around):
                return "early-exit-on-rank-condition"
            return "collective-under-rank-condition"
        leaves_loop = in_loop or callback or isinstance(leaving, ast.Break)
        if conditions.reads_clock(test) and leaves_loop:
            return "loop-ends-by-clock"
        if self._forms_batches(decision, frames) or (in_loop and not found.measures):
            return "uneven-iterations"
        if any(asks_for_end(test, one, decision.function) for one in decision.loops):
            return "uneven-iterations"  # one rank's loop is in its last round
        return "collective-under-local-condition"

    def _returns_rank(self, call: ast.Call) -> bool:
        """Whether the program's function that is called says which rank it is.

        One of its results reads the rank, and others are constants or functions: such a function
        may also serve as a decorator.
        """
        functions = self._program.functions.get(called_name(call), [])
        if len(functions) != 1:
            return False
        defined = {n.name for n in ast.walk(functions[0]) if isinstance(n, FunctionNode)}
        varying = [
            one
            for one in returned_values(functions[0])
            if not isinstance(one, ast.Constant)
            and not (isinstance(one, ast.Name) and one.id in defined)
        ]
        return bool(varying) and all(map(self._program.conditions.reads_rank, varying))

    def _forms_batches(self, decision: Decision, frames: list[Position]) -> bool:
        """Whether a condition decides when a generator yields, and the call is outside of it."""
        arms = [one for taken in (True, False) for one in decision.arm(taken=taken)]
        return (
            any(map(is_generator, arms))
            and is_generator(decision.function)
            and all(function_at(self._program, frame) is not decision.function for frame in frames)
        )

    def sides(self, found: Candidate, absent: int, caller: int) -> tuple[Side, ...]:
        """The path that each rank took, the absent one first."""
        ways: dict[str, list[int]] = {}
        values: dict[str, dict[str, str]] = {}
        for rank in sorted(self._branches, key=lambda r: (r != absent, r != caller, r)):
            outcome = self.way_of(rank, found, absent, caller)
            if found.rounds is not None and rank not in (absent, caller):
                continue  # what other ranks did at that time was not looked at
            way = _way(found.decision, outcome, self._branches[rank], found.rounds)
            ways.setdefault(way, []).append(rank)
            if outcome is not None:
                values.setdefault(way, dict(outcome.values))
        return tuple(
            (way, tuple(sorted(ranks)), tuple(values.get(way, {}).items()))
            for way, ranks in ways.items()
        )

    def way_of(self, rank: int, found: Candidate, absent: int, caller: int) -> BranchOutcome | None:
        if rank == absent:
            return found.absent
        if rank == caller:
            return found.waiter
        shown = found.absent or found.waiter
        assert shown is not None
        known = self._branches[rank]
        mine = [o for o in known.outcomes if o.site == shown.site and o.times]
        if found.priority == 1:  # by how often, in the whole run
            same = next((o for o in mine if o.to_line == shown.to_line), None)
            if same is not None and same.times == shown.times:
                return same
            return next((o for o in mine if o.to_line != shown.to_line), None)
        last = next((i for i in reversed(known.events) if known.outcomes[i] in mine), None)
        return None if last is None else known.outcomes[last]


def _reads_rank_of_dict(test: ast.expr) -> bool:
    """Whether a condition reads ``state["rank"]``, say."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in RANK_NAMES
        for node in ast.walk(test)
    )


def _way(
    decision: Decision,
    outcome: BranchOutcome | None,
    branches: RankBranches,
    parted_after: int | None = None,
) -> str:
    """The path of a rank, as a key of `parting_wording.WAYS`."""
    if outcome is None:
        return "not-raised" if _catches(decision) else "not-there"
    taken = decision.is_taken(outcome)
    if _catches(decision):
        return f"caught {outcome.error}" if taken else "not-raised"
    if isinstance(decision.node, (ast.For, ast.AsyncFor)):
        rounds = sum(
            other.times
            for other in branches.outcomes
            if other.site == outcome.site and decision.is_taken(other)
        )
        after = rounds - taken if parted_after is None else parted_after
        return f"{'went on' if taken else 'ended'} after {after} rounds"
    return "yes" if taken else "no"


def _catches(decision: Decision) -> bool:
    return isinstance(decision.node, (ast.ExceptHandler, ast.With))
