"""Finds the line at which a rank was observed to take a different path from another one.

The ranks' branch events between the last collective that both entered and the one that only one of
them entered are compared. A place where they took different paths and met again is harmless, such
as one rank writing a log. The rest is the parting, as it was observed: the source only shows where
its arms lead.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from ddt_notebook.model import Call, Place, Position, RankReport, Snapshot
from ddt_notebook.model.branches import BranchOutcome
from ddt_notebook.model.operations import COLLECTIVES
from ddt_notebook.program.branch_arms import (
    Decision,
    decision_at,
    function_at,
    has_effect_outside,
    is_generator,
)
from ddt_notebook.program.escape_paths import EscapePaths, Reason
from ddt_notebook.program.iterations import leads_to, makers
from ddt_notebook.program.nodes import (
    FunctionNode,
    LoopNode,
    break_conditions,
    called_name,
    calls_in,
    calls_once,
    parameters,
)
from ddt_notebook.program.program import Program

from .aligned_events import Parting, align, swallows
from .earlier_decisions import EarlierDecisions, counts_steps
from .earlier_partings import given_up, rounds
from .last_stores import LastStores, Stored
from .matched_calls import Meetings
from .parting_reasons import ASKS_LIBRARY, IN_CALLBACK, Candidate, PartingReasons
from .reported_handlers import ReportedHandlers
from .step_limits import counted_alike
from .uneven_passes import first_uneven_pass
from .ways import Ways

#: Methods of modules and optimizers that only read or set what one process holds.
_OF_ONE_PROCESS = frozenset(
    {"parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules",
     "children", "named_children", "get_parameter", "get_buffer", "get_submodule", "extra_repr",
     "eval", "train", "requires_grad_", "zero_grad", "num_parameters", "get_last_lr"}
)  # fmt: skip
#: Statements without a block of their own, in which a comprehension may make the call.
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


class Partings:
    """Finds partings in one run.

    Parameters
    ----------
    snapshot
        What was observed.
    program
        What the ranks ran.
    meetings
        The calls with which ranks entered each collective, by group.
    paths
        Returns the lines that led to a call.
    ways
        Compares the ways of two ranks' calls.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        program: Program,
        meetings: dict[str, Meetings],
        paths: EscapePaths,
        ways: Ways,
    ) -> None:
        self._branches = {one.rank: one for one in snapshot.branches if one.events}
        #: The ranks of which all of the user's code was observed.
        self._wholly = {rank for rank, one in self._branches.items() if not one.callbacks_only}
        self._program, self._meetings, self._paths = program, meetings, paths
        self._ways = ways
        self.last_stores = LastStores(program, self._branches)
        self._reasons = PartingReasons(program, self._branches)
        self._earlier = EarlierDecisions(program, self._branches, self._reasons)
        self._reported = ReportedHandlers(program, self._branches, self._reasons)

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """Why ``absent`` did not reach ``call``, which ``caller`` has made, from observed events.

        Parameters
        ----------
        at
            Where ``absent`` was instead; None if it had finished the cell.
        """
        failed = given_up(call, caller, absent)
        if failed is not None and (first := self.why_absent(failed, caller, absent, None)):
            return first
        frames = self._paths.frames(call, caller)
        reported = None
        if not {caller.rank, absent.rank} & self._wholly:
            reported = self._reported.why_absent(call, caller, absent, frames)
        if reported is not None or not {caller.rank, absent.rank} <= self._branches.keys():
            return reported
        compared = list(self._compared(call, caller, absent, at))
        if not {caller.rank, absent.rank} <= self._wholly:
            found = self._in_callback(compared, frames)
            if found is None:
                return None
            return self._reasons.of(found, absent.rank, caller.rank, at, frames)
        found = self._explaining(compared, call, caller, absent, frames)
        if found is None:
            return self._earlier.called_another(caller.rank, absent.rank, frames)
        found = self._broken_off(compared, found, absent.rank) or found
        reason = self._reasons.of(found, absent.rank, caller.rank, at, frames)
        inner = self._inside_condition(compared, found)
        stored = tuple(self._stored_before(compared, found, absent.rank, caller.rank))
        if stored:
            reason = replace(reason, values=reason.values | {"stored": stored})
        if inner is not None:
            place = self._program.place(inner.decision.head)
            decided = (
                place.place,
                place.code,
                self._reasons.sides(inner, absent.rank, caller.rank),
            )
            reason = replace(reason, values=reason.values | {"decided": decided})
        return reason

    def _explaining(
        self,
        compared: list[Parting],
        call: Call,
        caller: RankReport,
        absent: RankReport,
        frames: list[Position],
    ) -> Candidate | None:
        """The parting that explains why ``absent`` did not reach the call."""
        limit = self._step_limit(call, caller, absent, frames)
        if limit is not None:
            return limit
        found = self._with_other_calls(compared, call, caller, absent)
        if found is None:
            last = [one for one in compared if self._is_recent(one, call, caller, absent)]
            found = self._decisive(last, frames)
            if (
                found is None
                or found.ends_loop
                or self._left_in_turn(found, absent.rank, caller.rank)
            ):
                found = (
                    self._in_generator(last, found)
                    or self._skipped_before(caller.rank, absent.rank, frames)
                    or found
                    or self._in_callback(compared, frames)
                    or self._never_met_again(compared)
                )
        if found is not None and found.ends_loop:
            found = (
                self._swallowed_by_iterator(compared, found, absent.rank)
                or self._left_by_break(compared, frames)
                or self._uneven_loop(found, absent.rank, caller.rank, frames)
                or found
            )
        if found is None or found.ends_loop or counts_steps(found):
            found = self._earlier.decided_before(found, caller.rank, absent.rank, frames) or found
        died = "died" in (absent.state, caller.state)
        if died and (found is None or found.ends_loop):
            # a count that lacks calls of a rank that died is better than the end of a loop, if the
            # source agrees: the other rank's calls between two events may be nobody's alone
            lines = {c.where for r in (caller, absent) for c in r.calls if c.where is not None}
            counted = self._with_other_calls(compared, call, caller, absent, every=True)
            if counted is not None and self._decides_about(counted.decision, lines):
                found = counted
        if found is None:
            return self._exhausted(compared, frames)
        found = self._earlier.set_mode(found, caller.rank, absent.rank) or found
        return self._uneven_before(compared, found, call, caller, absent) or found

    def for_good(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """The last parting of two ranks, if they did not meet again after it.

        Between ranks with different parts, such as the stages of a pipeline, partings that do not
        last are no fault. The parameters are those of `why_absent`.
        """
        if not {caller.rank, absent.rank} <= self._wholly:
            return None
        found = self._never_met_again(list(self._compared(call, caller, absent, at)))
        if found is None:
            return None
        frames = self._paths.frames(call, caller)
        return self._reasons.of(found, absent.rank, caller.rank, at, frames)

    def one_sided(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """The first parting after which one rank alone came to lines with collectives.

        It is for a rank that died: the collectives that a library issued there are not known, so
        the source shows whether its path led to lines where the other rank issued some. The
        parameters are those of `why_absent`.
        """
        if not {caller.rank, absent.rank} <= self._wholly:
            return None
        lines = {one.where for one in caller.calls if one.kind == "collective" and one.where}
        for parting in self._compared(call, caller, absent, at):
            for found in self._candidates(parting):
                ways = [o and found.decision.is_taken(o) for o in (found.absent, found.waiter)]
                if None in ways or ways[0] == ways[1]:
                    continue
                led = [
                    self._leads_to_any(found.decision.arm(taken=taken), lines)
                    for taken in (True, False)
                ]
                if led[0] is not led[1]:
                    frames = self._paths.frames(call, caller)
                    return self._reasons.of(found, absent.rank, caller.rank, at, frames)
        return None

    def _leads_to_any(self, statements: list[ast.stmt], lines: set[Position]) -> bool:
        return any(leads_to(self._program, one, line) for one in statements for line in lines)

    def _decides_about(self, decision: Decision, lines: set[Position]) -> bool:
        """Whether only one arm leads to lines with collectives, or an arm leaves its block."""
        ways = (True, False)
        led = [self._leads_to_any(decision.arm(taken=taken), lines) for taken in ways]
        return led[0] is not led[1] or any(decision.leaves(taken=taken) for taken in ways)

    def went_alike(self, place: Place, one: int, other: int) -> bool:
        """Whether two ranks were seen to take the same ways at a line.

        At a condition they went alike if it never came out differently, and else if each of its
        ways was taken equally often.
        """
        if not {one, other} <= self._wholly:
            return False
        ways = [
            {
                outcome.to_line: outcome.times
                for outcome in self._branches[rank].outcomes
                if (outcome.file, outcome.line) == (place.file, place.line)
                and outcome.kind in ("branch", "guard")
                and outcome.times
            }
            for rank in (one, other)
        ]
        if len(ways[0]) == 1 and ways[0].keys() == ways[1].keys():
            return not isinstance(self._program.statement_at(place), LoopNode)
        return bool(ways[0]) and ways[0] == ways[1]

    def _broken_off(
        self, compared: list[Parting], found: Candidate, absent: int
    ) -> Candidate | None:
        """The handler of an exception that left the function with a condition before its end.

        A function may let some ranks enter a collective at one line and the others at a later one.
        If an exception leaves it in between, the exception keeps a rank from its collective, and
        the condition does not.
        """
        decision, outcome = found.decision, found.absent
        if outcome is None or not isinstance(decision.node, ast.If):
            return None
        other = decision.arm(taken=not decision.is_taken(outcome))
        skipped = {
            called_name(node) for one in other for node in calls_in(one)
        } & COLLECTIVES.keys()
        last = decision.node.end_lineno or decision.node.lineno
        later = {called_name(n) for n in calls_in(decision.function) if n.lineno > last}
        if not skipped & later:
            return None
        parted = [one.apart[0][0] for one in compared if one.absent is outcome]
        after = self._branches[absent].between(parted[-1], None) if parted else []
        left = (outcome.file, outcome.function, "raised")
        if all((one.file, one.function, one.kind) != left for one in after):
            return None
        for parting in compared:
            handled = parting.absent is not None and parting.absent.kind == "handled"
            if handled and parting.apart[0][0] >= parted[-1]:
                return next(self._candidates(parting), None)
        return None

    def _inside_condition(self, compared: list[Parting], found: Candidate) -> Candidate | None:
        """Where ranks parted in a function whose result the condition tests."""
        test = found.decision.test
        called = {called_name(node) for node in calls_in(test)} if test is not None else set()
        before = [
            number
            for number, parting in enumerate(compared)
            if parting.absent is found.absent and parting.waiter is found.waiter
        ]
        for parting in reversed(compared[: before[0]] if before and called else []):
            inner = next(self._candidates(parting), None)
            if inner is None or inner.absent is None or inner.waiter is None:
                continue
            if getattr(inner.decision.function, "name", None) in called:
                return inner
        return None

    def _stored_before(
        self, compared: list[Parting], found: Candidate, absent: int, caller: int
    ) -> Iterator[Stored]:
        """Which lines last stored what the condition looks at, on each rank."""
        until: dict[int, int] = {}
        for parting in compared:
            if parting.absent is found.absent and parting.waiter is found.waiter:
                until = {absent: parting.apart[0][0], caller: parting.apart[1][0]}
        for rank in sorted(self._wholly - until.keys()):
            way, known = self._reasons.way_of(rank, found, absent, caller), self._branches[rank]
            times = [at for at, i in enumerate(known.events) if known.outcomes[i] is way]
            if times:
                until[rank] = known.events_dropped + times[-1]
        if {absent, caller} <= until.keys():
            yield from self.last_stores.before(found.decision, until)

    # -- the events of two ranks ---------------------------------------------------------------

    def _compared(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Iterator[Parting]:
        """All partings of the run before ``call``, as far as the events are kept."""
        starts = [(0, 0), *self._common(call, caller.rank, absent.rank)]
        mine, theirs = self._branches[caller.rank], self._branches[absent.rank]
        kept = [
            start
            for start in starts
            if theirs.events_dropped <= start[0] and mine.events_dropped <= start[1]
        ]
        if not kept:
            return
        until = None
        if at is not None and call.kind == "collective" and call.sequence is not None:
            met = self._meetings.get(call.group, {}).get(call.sequence, {}).get(absent.rank)
            until = met.branches_before if met is not None else None
        yield from align(
            theirs.between(kept[0][0], until),
            mine.between(kept[0][1], call.branches_before),
            kept[0],
        )

    def _common(self, call: Call, caller: int, absent: int) -> list[tuple[int, int]]:
        """How many events of ``absent`` and ``caller`` precede their common collectives.

        Only collectives before ``call`` which both ranks entered at the same line.
        """
        found = []
        for meetings in self._meetings.values():
            for calls in meetings.values():
                mine, theirs = calls.get(caller), calls.get(absent)
                if mine is None or theirs is None or mine.index >= call.index:
                    continue
                before, their_before = mine.branches_before, theirs.branches_before
                if before is None or their_before is None:
                    continue
                if self._ways.meet(mine, theirs):
                    found.append((their_before, before))
        return sorted(found)

    def _is_recent(
        self, parting: Parting, call: Call, caller: RankReport, absent: RankReport
    ) -> bool:
        """Whether a parting comes after the last collective that both ranks entered."""
        common = self._common(call, caller.rank, absent.rank)
        last = common[-1] if common else (0, 0)
        return parting.apart[0][0] >= last[0] and parting.apart[1][0] >= last[1]

    # -- the parting that explains the hang ------------------------------------------------------

    def _step_limit(
        self, call: Call, caller: RankReport, absent: RankReport, frames: list[Position]
    ) -> Candidate | None:
        """The condition at which one rank has made its last step, and the other one has not.

        The ranks have met in each collective, and went the same way from the last one on.
        """
        met = self._common(call, caller.rank, absent.rank)
        both = self._branches[absent.rank], self._branches[caller.rank]
        entered = [
            calls
            for calls in self._meetings.get(call.group, {}).values()
            if {caller.rank, absent.rank} <= calls.keys()
        ]
        if not met or not all(self._ways.meet(*_of(one, caller, absent)) for one in entered):
            return None
        parting = next(
            align(
                both[0].between(met[-1][0], None),
                both[1].between(met[-1][1], call.branches_before),
                met[-1],
            ),
            None,
        )
        if parting is None or parting.absent is None or parting.waiter is None:
            return None
        for candidate in self._candidates(parting):
            if self._keeps_from_call(candidate, frames) and counted_alike(
                self._program,
                candidate.decision,
                [(one, at) for one, (at, _) in zip(both, parting.apart, strict=True)],
            ):
                return candidate
        return None

    def _with_other_calls(
        self,
        compared: list[Parting],
        call: Call,
        caller: RankReport,
        absent: RankReport,
        *,
        every: bool = False,
    ) -> Candidate | None:
        """The first parting after which one rank was ahead in collectives until the end.

        Ranks that go first in turn, as for a download, are level again after the second turn.
        """
        found: Candidate | None = None
        ahead = 0
        counted: set[object] = set()
        # those that a library issued in a process that died are not known: none are counted then
        every = every or all(report.state != "died" for report in (absent, caller))
        for parting in compared:
            if not parting.met_again:
                continue
            made = [
                sum(
                    one.kind == "collective"
                    and (every or one.source == "call log")
                    and one.group == call.group
                    and one.branches_before is not None
                    and begin < one.branches_before <= (end or 0)
                    for one in report.calls
                )
                for report, (begin, end) in zip((absent, caller), parting.apart, strict=True)
            ]
            if made[0] == made[1] or self._goes_on_to_common(parting, call, caller, absent):
                continue
            # one parting may be listed twice, with an exception that was caught after it
            if parting.apart not in counted:
                counted.add(parting.apart)
                ahead += made[0] - made[1]
            if ahead == 0:
                found = None
            elif found is None:
                found = next(self._candidates(parting), None)
        return found

    def _goes_on_to_common(
        self, parting: Parting, call: Call, caller: RankReport, absent: RankReport
    ) -> bool:
        """Whether both ways led the ranks on to the same call, which one made before they met.

        They met by chance then, such as in a part of the work that the other rank did later.
        """
        candidate = next(self._candidates(parting), None)
        if candidate is None or not isinstance(candidate.decision.node, ast.If):
            return False
        decision = candidate.decision
        lines = {c.where for r in (caller, absent) for c in r.calls if c.where is not None}
        for arm in (decision.arm(taken=taken) for taken in (True, False)):
            if any(map(is_generator, arm)) or self._leads_to_any(arm, lines):
                return False
        if any(decision.leaves(taken=taken) is not None for taken in (True, False)):
            return False
        mine, theirs = (
            next((c for c in report.calls if c.group == call.group and _follows(c, begin)), None)
            for report, (begin, _) in zip((absent, caller), parting.apart, strict=True)
        )
        return (
            mine is not None
            and theirs is not None
            and mine.sequence == theirs.sequence
            and self._ways.meet(mine, theirs)
        )

    def _decisive(self, compared: list[Parting], frames: list[Position]) -> Candidate | None:
        """The first parting after which the source does not lead to the call any more."""
        for parting in compared:
            for candidate in self._candidates(parting):
                if self._keeps_from_call(candidate, frames):
                    return candidate
        return None

    def _candidates(self, parting: Parting) -> Iterator[Candidate]:
        absent, waiter = parting.absent, parting.waiter
        shown = absent or waiter
        assert shown is not None
        if shown.kind not in ("branch", "guard", "handled"):
            return
        decision = decision_at(self._program, shown)
        if decision is not None:
            yield Candidate(decision, absent, waiter, 0)

    def _keeps_from_call(self, candidate: Candidate, frames: list[Position]) -> bool:
        decision = candidate.decision
        if candidate.absent is not None:
            taken = decision.is_taken(candidate.absent)
        elif candidate.waiter is not None:
            taken = not decision.is_taken(candidate.waiter)
        return self._keeps_from(decision, frames, taken=taken)

    def _keeps_from(self, decision: Decision, frames: list[Position], *, taken: bool) -> bool:
        """Whether a way does not lead to a call, nor to the function in which it is made."""
        arms = [decision.arm(taken=way) for way in (True, False)]
        return any(
            decision.keeps_from(frame.line, taken=taken)
            and not (
                inner is not None
                and inner.function in self._program.functions
                and all(calls_once(arm, inner.function) for arm in arms)
            )
            for inner, frame in pairwise([None, *frames])
            if frame is not None and function_at(self._program, frame) is decision.function
        )

    def _in_generator(self, compared: list[Parting], loop: Candidate | None) -> Candidate | None:
        """The parting inside a generator that ended the loop over it."""
        if loop is None:
            return None
        for parting in compared:
            if parting.absent is None or parting.waiter is None:
                continue
            for candidate in self._candidates(parting):
                decision = candidate.decision
                taken = decision.is_taken(parting.absent)
                leaves = decision.leaves(taken=taken) is not None
                if leaves and is_generator(decision.function):
                    return candidate
        return None

    def _exhausted(self, compared: list[Parting], frames: list[Position]) -> Candidate | None:
        """The last loop in a generator that ended on one rank only.

        A loop around the call, or a comprehension, runs the generator. That one may end unseen: the
        other rank came to the same line later.
        """
        feeding = {"__iter__"}
        for frame in frames:
            around = function_at(self._program, frame)
            for loop in self._program.loops(frame):
                if isinstance(loop, (ast.For, ast.AsyncFor)):
                    feeding |= makers(loop.iter, around or loop)
            statement = self._program.statement_at(frame)
            for part in ast.walk(statement) if isinstance(statement, _SIMPLE) else ():
                if isinstance(part, ast.comprehension):
                    feeding |= makers(part.iter, around or part)
        for parting in reversed(compared):
            for candidate in self._candidates(parting):
                function = candidate.decision.function
                if (
                    candidate.ends_loop
                    and isinstance(function, FunctionNode)
                    and function.name in feeding
                    and is_generator(function)
                ):
                    return candidate
        return None

    def _swallowed_by_iterator(
        self, compared: list[Parting], found: Candidate, absent: int
    ) -> Candidate | None:
        """The handler of an exception in what gives a loop its items, if ``absent`` got fewer.

        An iterator or a generator that catches the error of a broken sample goes on with the next.
        """
        loop = found.decision
        if not isinstance(loop.node, (ast.For, ast.AsyncFor)) or loop.function is None:
            return None
        for parting in compared:
            caught = parting.absent
            if caught is None or caught.kind != "handled" or parting.waiter is not None:
                continue
            events = self._branches[absent].between(parting.apart[0][0], None)
            at = next((n for n, one in enumerate(events) if one is caught), len(events))
            here = (loop.head.lineno, self._program.place(loop.head).file)
            for event in events[at + 1 :]:
                decision = decision_at(self._program, event)
                if decision is None or decision.function is not loop.function:
                    continue
                if (event.line, event.file) == here:
                    return next(self._candidates(parting), None)
                break
        return None

    def _left_by_break(self, compared: list[Parting], frames: list[Position]) -> Candidate | None:
        """The first condition at which only one of the ranks left a loop around the call.

        Each round makes the call, so from there on one rank is ahead, and rounds meet by chance.
        """
        loops = {loop for frame in frames for loop in self._program.loops(frame)}
        for parting in compared:
            if parting.absent is None or parting.waiter is None:
                continue
            for candidate in self._candidates(parting):
                decision = candidate.decision
                ways = [decision.is_taken(one) for one in (parting.absent, parting.waiter)]
                left = [isinstance(decision.leaves(taken=taken), ast.Break) for taken in ways]
                around = next(
                    (b.owner for b in decision.blocks if isinstance(b.owner, LoopNode)), None
                )
                if left[0] is not left[1] and around in loops:
                    return candidate
        return None

    def _uneven_loop(
        self, found: Candidate, absent: int, caller: int, frames: list[Position]
    ) -> Candidate | None:
        """A loop around the call that took other rounds, if ``found`` is a loop elsewhere.

        Where loops take other rounds on each rank, as in a simulation, events meet by chance. The
        rounds of one loop can be compared from its first time on.
        """
        around = [f for f in frames if function_at(self._program, f) is found.decision.function]
        if any(found.decision.covers(frame.line, taken=True) for frame in around):
            return None
        for frame in frames:
            for loop in self._program.loops(frame):
                if any(break_conditions(loop)):
                    continue
                mine = rounds(self._program, self._branches[absent], loop)
                theirs = rounds(self._program, self._branches[caller], loop)
                if mine is None or theirs is None:
                    continue
                if any(a != b for a, b in zip(mine.each, theirs.each, strict=False)):
                    return Candidate(mine.decision, mine.last, theirs.last, 0)
        return None

    def _uneven_before(
        self,
        compared: list[Parting],
        found: Candidate,
        call: Call,
        caller: RankReport,
        absent: RankReport,
    ) -> Candidate | None:
        """A loop with a collective in each round that took other rounds before the ranks parted."""
        parted = [
            (one.apart[0][0], one.apart[1][0])
            for one in compared
            if one.absent is found.absent and one.waiter is found.waiter
        ]
        if not parted:
            return None
        both = self._branches[absent.rank], self._branches[caller.rank]
        loop = first_uneven_pass(self._program, both, (absent, caller), call.group, parted[0])
        if loop is None:
            return None
        return Candidate(loop.decision, *loop.ways, 0, loop.rounds)

    def _in_callback(self, compared: list[Parting], frames: list[Position]) -> Candidate | None:
        """The last parting in a function that a library called, and with which it ends its loop.

        A condition that parts the ranks every time, such as one with which rank 0 logs, is
        harmless; so is one after which a rank neither sets an attribute nor leaves the function.
        """
        ways = Counter(one.ways for one in compared)
        for parting in reversed(compared):
            absent, waiter = parting.absent, parting.waiter
            if absent is None or waiter is None or ways[parting.ways] > 1:
                continue
            for candidate in self._candidates(parting):
                decision = candidate.decision
                if not isinstance(decision.node, ast.If) or not self._is_callback(decision, frames):
                    continue
                for outcome in (absent, waiter):
                    arm = decision.arm(taken=decision.is_taken(outcome))
                    if any(self._calls_trainer(one, decision.function) for one in arm):
                        return replace(candidate, priority=ASKS_LIBRARY)
                if any(map(has_effect_outside, decision.arm(taken=decision.is_taken(absent)))):
                    return replace(candidate, priority=IN_CALLBACK)
        return None

    def _calls_trainer(self, statement: ast.stmt, function: ast.AST) -> bool:
        """Whether a statement calls a method of an object that the library has passed.

        It may be one in which all ranks communicate, at once or later: ``module.log(…)``.
        """
        given = set(parameters(function)) if isinstance(function, FunctionNode) else set()
        return any(
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in given
            and node.func.attr not in self._program.functions
            and node.func.attr not in _OF_ONE_PROCESS | {"print"}
            for node in calls_in(statement)
        )

    def _is_callback(self, decision: Decision, frames: list[Position]) -> bool:
        """Whether only a library calls the function of a decision, and the call is not in it."""
        function = decision.function
        if not isinstance(function, ast.FunctionDef) or function.name == "forward":
            return False
        return (
            not function.name.startswith("__")
            and function.name not in self._called
            and all(function_at(self._program, frame) is not function for frame in frames)
        )

    @cached_property
    def _called(self) -> set[str]:
        """The names of the functions that the user's code calls."""
        trees = self._program.trees.values()
        return {called_name(node) for tree in trees for node in tree.nodes} - {""}

    def _skipped_before(self, caller: int, absent: int, frames: list[Position]) -> Candidate | None:
        """A line that led one of the ranks past the call more often in the whole run."""
        theirs, mine = self._times(absent), self._times(caller)
        swallowing = self._swallowing(absent) | self._swallowing(caller)
        for key in dict.fromkeys([*theirs, *mine]):
            outcome = theirs.get(key) or mine[key]
            decision = decision_at(self._program, outcome)
            if decision is None or outcome.kind not in ("branch", "guard", "handled"):
                continue
            if isinstance(decision.node, (ast.For, ast.AsyncFor, ast.While)):
                continue
            if outcome.kind == "handled" and outcome.site not in swallowing:
                continue
            more = _times(theirs.get(key)) - _times(mine.get(key))
            taken = decision.is_taken(outcome)
            keeps = self._keeps_from(decision, frames, taken=taken)
            if keeps and more > 0:
                other = next((o for o in mine.values() if o.site == outcome.site), None)
                return Candidate(decision, outcome, other, 1)
            if keeps and more < 0 and outcome.kind == "handled":  # the caller tried again
                return Candidate(decision, None, outcome, 1)
        return None

    def _left_in_turn(self, found: Candidate, absent: int, caller: int) -> bool:
        """Whether a rank left a loop after as many rounds as the other one has begun.

        So a condition such as ``if batch is None: break`` came true when its turn was, and a round
        before it made no call.
        """
        decision, outcome = found.decision, found.absent
        if outcome is None or not isinstance(decision.node, ast.If):
            return False
        taken = decision.is_taken(outcome)
        if not isinstance(decision.leaves(taken=taken), (ast.Break, ast.Return)):
            return False
        rounds = [
            sum(
                other.times
                for other in self._branches[rank].outcomes
                if other.site == outcome.site and decision.is_taken(other) is not taken
            )
            for rank in (absent, caller)
        ]
        return rounds[0] >= rounds[1] > 0

    def _swallowing(self, rank: int) -> set[object]:
        """The handlers after which a rank went on."""
        events = self._branches[rank].between(self._branches[rank].events_dropped, None)
        return {outcome.site for at, outcome in enumerate(events) if swallows(events, at)}

    def _times(self, rank: int) -> dict[tuple[object, ...], BranchOutcome]:
        return {
            (outcome.site, outcome.to_line): outcome
            for outcome in self._branches[rank].outcomes
            if outcome.times
        }

    def _never_met_again(self, compared: list[Parting]) -> Candidate | None:
        """The last parting, if the ranks did not meet again, as they did in earlier rounds."""
        if not compared or compared[-1].met_again:
            return None
        if any(one.ways == compared[-1].ways for one in compared[:-1]):
            return None
        found = next(self._candidates(compared[-1]), None)
        return found and Candidate(found.decision, found.absent, found.waiter, 3)


def _of(calls: dict[int, Call], caller: RankReport, absent: RankReport) -> tuple[Call, Call]:
    return calls[caller.rank], calls[absent.rank]


def _follows(call: Call, event: int) -> bool:
    return call.branches_before is not None and call.branches_before > event


def _times(outcome: BranchOutcome | None) -> int:
    return outcome.times if outcome is not None else 0
