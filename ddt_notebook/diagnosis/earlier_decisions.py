"""Finds the decision, possibly long before, that had two ranks take different ways later.

It set a name that bounds a loop or counts steps, or it chose a class or a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from ddt_notebook.model import Position
from ddt_notebook.model.branches import RankBranches
from ddt_notebook.program.branch_arms import Decision, function_at, has_effect_outside
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.nodes import (
    FunctionNode,
    called_name,
    calls_in,
    counted_in,
    is_call,
    is_periodic,
    last_name,
)
from ddt_notebook.program.program import Program

from .earlier_partings import apart, ran
from .parting_reasons import Candidate, PartingReasons

#: Methods of modules that set whether they train.
_MODES = frozenset({"train", "eval"})


class EarlierDecisions:
    """The earlier decisions of one run.

    Parameters
    ----------
    program
        What the ranks ran.
    branches
        The branch events of each rank.
    reasons
        Tells the reason of a parting.
    """

    def __init__(
        self, program: Program, branches: Mapping[int, RankBranches], reasons: PartingReasons
    ) -> None:
        self._program, self._branches, self._reasons = program, branches, reasons

    def decided_before(
        self, found: Candidate | None, caller: int, absent: int, frames: list[Position]
    ) -> Candidate | None:
        """A condition, possibly long before, that had other rounds or another function follow.

        It sets a name that bounds the loop, or from which steps are counted, as after a resume; or
        its arm names the class or the function to which a function belongs that only the caller
        ran, as to register a callback.
        """
        bounds: set[str] = set()
        if found is not None:
            node, head = found.decision.node, found.decision.test
            if isinstance(node, (ast.For, ast.AsyncFor)) and is_call(node.iter, "range"):
                head = node.iter  # another name may hold a loader, which rank 0 gives a bar
            bounds = {one.id for one in _names([head])} if head is not None else set()
            bounds &= counts_steps(found) or bounds
        owners = {
            name
            for frame in (() if found is not None and counts_steps(found) else frames)
            if isinstance(function := function_at(self._program, frame), FunctionNode)
            and not ran(self._branches[absent], frame.file, function)
            for name in self._owners(frame.file, function)
        }
        for one in apart(self._program, self._branches[caller], self._branches[absent]):
            decision = one.decision
            arms = [s for taken in (True, False) for s in decision.arm(taken=taken)]
            stored = {n.id for n in _names(arms) if isinstance(n.ctx, ast.Store)}
            same = found is not None and decision.function is found.decision.function
            named = {
                last_name(node)
                for statement in one.arm
                for node in ast.walk(statement)
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
            }
            if (same and bounds & stored) or (one.always and owners & named):
                return Candidate(decision, one.other, one.one, 0)
        return None

    def set_mode(self, found: Candidate, caller: int, absent: int) -> Candidate | None:
        """The condition under which only one of two ranks set the mode of modules.

        None unless the ranks parted at a condition on the mode, such as ``if self.training``.
        """
        if found.decision.test is None or not _reads_mode(found.decision.test):
            return None
        for one in apart(self._program, self._branches[caller], self._branches[absent]):
            if one.decision.test is None or _reads_mode(one.decision.test):
                continue
            arms = (one.decision.arm(taken=taken) for taken in (True, False))
            called = [{called_name(c) for node in arm for c in calls_in(node)} for arm in arms]
            if bool(called[0] & _MODES) is not bool(called[1] & _MODES):
                return Candidate(one.decision, one.other, one.one, 0)
        return None

    def called_another(self, caller: int, absent: int, frames: list[Position]) -> Reason | None:
        """The line at which the ranks called functions of one name that are not the same.

        It may call a method of an object whose class was chosen before, on each rank by itself. If
        the ranks went different ways at only one condition that stores something, that chose it.
        """
        for inner, outer in pairwise(frames):
            function = function_at(self._program, inner)
            around = function_at(self._program, outer)
            if not isinstance(function, FunctionNode) or around is None:
                continue
            if ran(self._branches[absent], inner.file, function):
                continue
            others = [
                other
                for other in self._program.functions.get(function.name, [])
                if other is not function
                and ran(self._branches[absent], self._program.place(other).file, other)
                and not ran(self._branches[caller], self._program.place(other).file, other)
            ]
            if len(others) != 1:
                continue
            chosen = [
                one
                for one in apart(self._program, self._branches[caller], self._branches[absent])
                if one.always and self._stores(one.decision)
            ]
            if len(chosen) == 1:
                found = Candidate(chosen[0].decision, chosen[0].other, chosen[0].one, 0)
                return self._reasons.of(found, absent, caller, None, frames)
            line = self._program.statement_at(outer)
            if line is None:
                return None
            ways = [(caller, function), (absent, others[0])]
            named = tuple((rank, self._qualified(one)) for rank, one in ways)
            return Reason(
                cause="rank-skips-collective",
                kind="called-another",
                place=self._program.place(line, "passed"),
                rank=absent,
                values={"functions": named},
            )
        return None

    @staticmethod
    def _stores(decision: Decision) -> bool:
        arms = [one for taken in (True, False) for one in decision.arm(taken=taken)]
        return any(map(has_effect_outside, arms)) or any(
            isinstance(name.ctx, ast.Store) for name in _names(arms)
        )

    def _qualified(self, function: FunctionNode) -> str:
        """``Console.flush``."""
        names = list(self._owners(self._program.place(function).file, function))
        return ".".join(reversed(names))

    def _owners(self, file: str, function: ast.AST) -> Iterator[str]:
        """The names of a function, and of the classes and functions around it."""
        parents = self._program.trees[file].parents
        at: ast.AST | None = function
        while at is not None:
            if isinstance(at, (FunctionNode, ast.ClassDef)):
                yield at.name
            at = parents.get(at)


def counts_steps(found: Candidate) -> set[str]:
    """The names that a condition such as ``step % 10 == 0`` asks for and its loops count up."""
    test = found.decision.test
    if not isinstance(found.decision.node, ast.If) or test is None or not is_periodic(test):
        return set()
    counted = {name for loop in found.decision.loops for name in counted_in(loop)}
    return {one.id for one in _names([test])} & counted


def _reads_mode(test: ast.expr) -> bool:
    """Whether a condition asks whether a module trains."""
    return any(isinstance(n, ast.Attribute) and n.attr == "training" for n in ast.walk(test))


def _names(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    for one in nodes:
        yield from (node for node in ast.walk(one) if isinstance(node, ast.Name))
