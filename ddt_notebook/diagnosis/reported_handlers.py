"""Finds the handler of an exception that explains a hang, where nothing else was observed.

On Python 3.11 a rank notes where a handler prints or logs what it caught, also if its other ways
are not observed.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.program.branch_arms import Decision, decision_at, function_at
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.nodes import LoopNode
from ddt_notebook.program.program import Program

from .errors.reading import is_peer_error
from .parting_reasons import REPORTED, Candidate, PartingReasons


class ReportedHandlers:
    """Finds such handlers in one run.

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

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, frames: list[Position]
    ) -> Reason | None:
        """The handler that kept ``absent`` from the call, or let ``caller`` make it once more.

        The rank printed or logged there what it had caught. It is for ranks of whose code nothing
        else was observed.
        """
        mine, theirs = self._handled(absent, _last_call(absent)), self._handled(caller, call)
        if absent.error is not None and is_peer_error(absent.error):
            # it reported that the connection was lost, which came later
            mine -= Counter({one: 1 for one in mine if one[1] == absent.error.type})
        for handler, error in [*mine, *theirs]:
            place = self._program.place(handler, "passed")
            decision = decision_at(self._program, place)
            if decision is None or decision.node is not handler:
                continue
            function = getattr(decision.function, "name", "<module>")
            caught = BranchOutcome(
                file=place.file, line=place.line, function=function, kind="handled", error=error
            )
            more = mine[handler, error] - theirs[handler, error]
            here = [f for f in frames if function_at(self._program, f) is decision.function]
            if more > 0 and any(decision.keeps_from(f.line, taken=True) for f in here):
                found, who, other = Candidate(decision, caught, None, REPORTED), absent, caller
            elif more < 0 and any(set(self._program.loops(f)) & _loops(decision) for f in here):
                found, who, other = Candidate(decision, None, caught, REPORTED), caller, absent
            else:
                continue
            reason = self._reasons.of(found, absent.rank, caller.rank, None, frames)
            sides = ((f"caught {error}", (who.rank,), ()), ("not-raised", (other.rank,), ()))
            return replace(reason, cause="exception-swallowed", values={"sides": sides})
        return None

    def _handled(
        self, report: RankReport, until: Call | None
    ) -> Counter[tuple[ast.ExceptHandler, str]]:
        """How often each handler of a rank's code reported an error, up to a call."""
        known = self._branches.get(report.rank)
        if known is None:
            return Counter()
        last = None if until is None else until.branches_before or 0
        found: Counter[tuple[ast.ExceptHandler, str]] = Counter()
        for outcome in known.between(known.events_dropped, last):
            tree = self._program.trees.get(outcome.file)
            if outcome.kind != "handled" or tree is None:
                continue
            around = [
                one
                for one in tree.of_kind(ast.ExceptHandler)
                if one.lineno <= outcome.line <= (one.end_lineno or one.lineno)
            ]
            if around:
                found[max(around, key=lambda one: one.lineno), outcome.error] += 1
        return found


def _last_call(report: RankReport) -> Call | None:
    """The call in which a rank is blocked, or from which a peer's fault has freed it."""
    at = report.error.call if report.error is not None else report.blocked_in
    return next((one for one in report.calls if one.index == at), None)


def _loops(decision: Decision) -> set[ast.AST]:
    """The loops around a decision."""
    return {one.owner for one in decision.blocks if isinstance(one.owner, LoopNode)}
