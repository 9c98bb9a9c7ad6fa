"""Finds in the source around a call why a rank did not reach it.

The result is likely, never certain: the source shows which paths past the call a rank could have
taken; the call log shows only that it took one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddt_notebook.model import Call, Place, Position, RankReport
from ddt_notebook.model.finding import Values
from ddt_notebook.model.partition import RankPartition

from .iterations import comes_to, times_called, times_issued
from .nodes import (
    LEAVES,
    LoopNode,
    break_conditions,
    called_name,
    calls_in,
    contains,
    counted_in,
    covers,
    end,
    ends_with_data,
    guards_of,
    is_call,
    own_expressions,
    variables_in,
)
from .program import Located, Program
from .tree import Block


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rank never reached a call.

    Attributes
    ----------
    cause
        Id of a fault card.
    kind
        What the line does; a key of `ddt_notebook.diagnosis.wording.REASONS`.
    place
        The source line that shows the reason: ``if rank != 1:``.
    rank
        The rank that never reached the call.
    values
        The values of the fact.
    priority
        Of several reasons, the one with the lowest priority is the best.
    other_branch
        True if the rank was in the other branch of the same condition.
    """

    cause: str
    kind: str
    place: Place
    rank: int
    values: Values = field(default_factory=dict)
    priority: int = 0
    other_branch: bool = False


class EscapePaths:
    """Finds the paths past calls of one run.

    Parameters
    ----------
    program
        What the ranks ran.
    partitions
        What each rank's loaders delivered.
    """

    def __init__(self, program: Program, partitions: Mapping[int, RankPartition]) -> None:
        self._program, self._partitions = program, partitions

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """Why ``absent`` did not reach ``call``, which ``caller`` has made.

        Parameters
        ----------
        at
            Where ``absent`` was instead; None if it had finished the cell.

        Returns
        -------
        Reason or None
            None if the source does not show a reason.
        """
        found: list[Reason] = []
        called = call.op
        frames = self.frames(call, caller)
        for number, place in enumerate(frames):
            if self._is_past(frames[number:], frames[:number], at):
                break
            paths = _Paths(self._program, self._partitions, place, call, caller, absent, at)
            found += paths.reasons(called)
            called = place.function
        return min(found, key=lambda reason: reason.priority, default=None)

    def _is_past(self, outer: list[Position], inner: list[Position], at: Position | None) -> bool:
        """Whether the absent rank has come past a line that calls one of the inner functions.

        It has if it is in that function now, or in one that is defined there, and no loop may have
        brought it there later.
        """
        if at is None or any(self._program.loops(place) for place in outer):
            return False
        within = {(at.file, name) for name in self._program.functions_around(at)}
        return any((one.file, one.function) in within for one in inner)

    def still_ahead(self, call: Call, absent: RankReport) -> bool:
        """Whether the code that ``absent`` was running leads to a call of the same operation."""
        for frame in absent.stack:
            if frame.file not in self._program.documents:
                continue
            statement = self._program.statement_at(frame)
            if isinstance(statement, LoopNode) and frame.line == statement.lineno:
                # it waits for the next item of a loop that contains the call, made by a library
                where = call.where
                if where is not None and where.file == frame.file and covers(statement, where.line):
                    return True
            for block in self._program.blocks(statement):
                ahead = [block.owner] if isinstance(block.owner, LoopNode) else block.after
                if any(is_call(one, call.op) for node in ahead for one in calls_in(node)):
                    return True
        return False

    def frames(self, call: Call, caller: RankReport) -> list[Position]:
        """The lines of the program that led to a call, innermost first."""
        stack = caller.stack or (caller.error.frames if caller.error else ())
        frames = [one for one in reversed(stack) if one.file in self._program.documents]
        where = call.where
        if where is None or where.file not in self._program.documents:
            return frames
        at = next((i for i, frame in enumerate(frames) if frame.is_same_line(where)), None)
        return self._callers(where) if at is None else frames[at:]

    def _callers(self, place: Position) -> list[Position]:
        """The line and every line that calls its function, for calls without a stack."""
        frames, seen = [place], set()
        for frame in frames:
            blocks = self._program.blocks(self._program.statement_at(frame))
            name = getattr(blocks[-1].owner, "name", None) if blocks else None
            if name is not None and name not in seen:
                seen.add(name)
                frames += [self._program.place(call) for call in self._program.calls(name)]
        return frames


class _Paths:
    """The paths past one line, from its statement outwards."""

    def __init__(
        self,
        program: Program,
        partitions: Mapping[int, RankPartition],
        place: Position,
        call: Call,
        caller: RankReport,
        absent: RankReport,
        at: Position | None,
    ) -> None:
        self.program, self.conditions, self.partitions = program, program.conditions, partitions
        self.place, self.call, self.caller = place, call, caller
        self.absent, self.at = absent, at
        loops = program.loops(place)
        self.counters = {
            name
            for loop in loops
            for name in (
                *counted_in(loop),
                *(() if isinstance(loop, ast.While) else variables_in(loop.target)),
            )
        }

    def reasons(self, called: str) -> Iterator[Reason]:
        """All possible reasons.

        Parameters
        ----------
        called
            Name of the function that the line calls on its way to the collective.
        """
        statement = self.program.statement_at(self.place)
        if statement is None:
            return
        yield from self._expression(statement, called)
        blocks = self.program.blocks(statement)
        for depth, block in enumerate(blocks):
            match block.owner:
                case ast.If() as condition:
                    yield from self._condition(condition, block.field)
                case ast.match_case() as case:
                    yield from self._case(case)
                case ast.Try(handlers=handlers) if block.field in ("body", "orelse"):
                    for handler in filter(_goes_on, handlers):
                        yield self._reason(
                            5, "exception-swallowed", handler, "swallows-before-call"
                        )
                case ast.For() | ast.AsyncFor() | ast.While() as loop if block.field == "body":
                    yield from self._loop(loop)
            yield from self._early_exit(block, _swallowing(blocks[depth:]))

    def _reason(
        self,
        priority: int,
        cause: str,
        node: Located,
        kind: str,
        *,
        other_branch: bool = False,
        **values: Any,
    ) -> Reason:
        place = replace(self.program.place(node, "passed"), function=self.place.function)
        return Reason(cause, kind, place, self.absent.rank, values, priority, other_branch)

    def _expression(self, statement: ast.stmt, called: str) -> Iterator[Reason]:
        """Paths past the call within its statement, by a condition or a comprehension."""
        value = getattr(statement, "value", None)
        guards: list[tuple[ast.expr, bool | None]] = [
            guard for one in own_expressions(statement) for guard in guards_of(one, called)
        ]
        if not guards and isinstance(value, ast.IfExp):
            guards = [(value.test, None)]
        elif not guards and isinstance(value, ast.BoolOp):
            guards = [(value.values[0], None)]
        for test, wanted in guards:
            if wanted is not None and self.program.truth(test, self.absent.rank) is wanted:
                continue
            if self.conditions.reads_rank(test):
                yield self._reason(0, "collective-under-rank-condition", test, "keeps-from-call")
            elif self._is_local(test):
                cause, kind = "collective-under-local-condition", "decided-by-each-rank"
                yield self._reason(3, cause, test, kind)
        whole = list(ast.walk(value)) if isinstance(value, ast.expr) else []
        made = next((node for node in whole if called_name(node) == called), None)
        arguments = list(ast.walk(made)) if made is not None else []
        for node in whole:
            if not isinstance(node, ast.comprehension) or node in arguments:
                continue
            if not self._is_fixed(node.iter):
                yield from self._uneven(node.iter)

    def _condition(self, node: ast.If, branch: str) -> Iterator[Reason]:
        if self.conditions.reads_rank(node.test):
            wanted = branch == "body"
            if self.program.truth(node.test, self.absent.rank) is not wanted:
                yield self._reason(
                    0,
                    "collective-under-rank-condition",
                    node,
                    "keeps-from-line",
                    other_branch=self._stands_in(node.orelse if wanted else node.body),
                    call_line=self.place.line,
                )
        elif self.conditions.reads_clock(node.test):
            yield self._reason(2, "collective-under-local-condition", node, "depends-on-clock")
        elif self._is_local(node.test):
            yield self._reason(3, "collective-under-local-condition", node, "decided-by-each-rank")

    def _case(self, case: ast.match_case) -> Iterator[Reason]:
        node = self.program.tree_of(case).parents[case]
        if isinstance(node, ast.Match) and self.conditions.reads_rank(node.subject):
            cause, call_line = "collective-under-rank-condition", self.place.line
            yield self._reason(0, cause, node, "keeps-from-line", call_line=call_line)

    def _is_local(self, test: ast.expr) -> bool:
        """Whether a condition without rank or clock may have different values on the two ranks."""
        if self.conditions.reads_only(test, self.counters) or self.conditions.is_agreed(test):
            return False
        holds = self.program.truth(test, self.absent.rank)
        return holds is None or holds is not self.program.truth(test, self.caller.rank)

    def _stands_in(self, branch: list[ast.stmt]) -> bool:
        """Whether the absent rank is in a branch."""
        if self.at is None or self.at.file != self.place.file or not branch:
            return False
        return branch[0].lineno <= self.at.line <= end(branch[-1])

    def _has_left(self, node: ast.stmt) -> bool:
        """Whether the absent rank is known to be past a statement."""
        if self.at is None:
            return True
        if self.at.file != self.place.file or covers(node, self.at.line):
            return False
        stack = [one for one in self.absent.stack if one.file in self.program.documents]
        if not any(self.at.is_same_line(one) for one in stack):
            return True  # it has gone on since, perhaps into another round
        here = self.program.place(node)
        if any(one.file == here.file and covers(node, one.line) for one in stack):
            return False
        return not comes_to(self.program, stack, Position(file=here.file, line=here.line))

    def _loop(self, node: LoopNode) -> Iterator[Reason]:
        if not self._has_left(node):
            return
        if isinstance(node, ast.While) and self.conditions.reads_clock(node.test):
            yield self._reason(2, "loop-ends-by-clock", node, "ends-by-clock")
        for test in break_conditions(node):
            if self.conditions.reads_clock(test):
                yield self._reason(2, "loop-ends-by-clock", test, "leaves-loop-by-clock")
            elif self.conditions.reads_rank(test):
                if self.program.truth(test, self.absent.rank) is not False:
                    yield self._reason(1, "early-exit-on-rank-condition", test, "lets-leave-loop")
            elif self._is_local(test):
                yield self._reason(
                    4, "collective-under-local-condition", test, "leaves-loop-by-own-finding"
                )
        fixed = isinstance(node, (ast.For, ast.AsyncFor)) and self._is_fixed(node.iter)
        if not fixed and not self._has_as_many_batches(node):
            yield from self._uneven(node)

    def _is_fixed(self, iterable: ast.expr) -> bool:
        known = self.conditions
        return known.is_fixed_range(iterable) or known.is_configured_range(iterable)

    def _has_as_many_batches(self, loop: LoopNode) -> bool:
        """Whether the loader of a loop is known to have as many batches on both ranks."""
        place, lengths = self.program.place(loop), []
        for rank in (self.caller.rank, self.absent.rank):
            loaders = self.partitions[rank].loaders if rank in self.partitions else ()
            here = [
                one
                for one in loaders
                if any(e.where is not None and place.is_same_line(e.where) for e in one.epochs)
            ]
            lengths.append({one.expected_batches for one in here})
        return len(lengths[0]) == 1 and lengths[0] == lengths[1] and None not in lengths[0]

    def _uneven(self, node: ast.stmt | ast.expr) -> Iterator[Reason]:
        mine, theirs = (times_called(self.call, rank) for rank in (self.caller, self.absent))
        values: Values = {"caller": self.caller.rank, "op": self.call.op}
        dropped = self.caller.calls_dropped or self.absent.calls_dropped
        if mine is None or theirs is None:
            mine, theirs = (times_issued(self.call, rank) for rank in (self.caller, self.absent))
        elif not dropped:
            values |= {"caller_times": mine, "times": theirs}
        if mine > theirs:
            # A rank that never reached the line may also have missed it for another reason.
            priority = 3 if theirs else 6
            yield self._reason(priority, "uneven-iterations", node, "uneven-rounds", **values)

    def _leaving_handler(self, handler: ast.ExceptHandler) -> Reason:
        """A handler before the line that leaves the block, as with ``continue``."""
        if ends_with_data(handler):
            return self._reason(2, "uneven-iterations", handler, "ends-with-its-data")
        return self._reason(4, "exception-swallowed", handler, "swallows-before-call")

    def _early_exit(self, block: Block, handler: ast.ExceptHandler | None) -> Iterator[Reason]:
        """Conditions before the line, in the same block, under which some ranks leave the block."""
        call_line = self.place.line
        for statement in block.before:
            if isinstance(statement, ast.Try):
                for caught in statement.handlers:
                    if any(isinstance(one, LEAVES) for one in caught.body) and _goes_on(caught):
                        yield self._leaving_handler(caught)
                continue
            if not isinstance(statement, ast.If):
                continue
            leaving = next((one for one in statement.body if isinstance(one, LEAVES)), None)
            if leaving is None:
                continue
            if handler is not None and isinstance(leaving, ast.Raise):
                cause, raised_line = "exception-swallowed", leaving.lineno
                yield self._reason(1, cause, handler, "swallows-raise", raised_line=raised_line)
            elif self.conditions.reads_rank(statement.test):
                if self.program.truth(statement.test, self.absent.rank) is not False:
                    cause = "early-exit-on-rank-condition"
                    yield self._reason(1, cause, statement, "lets-leave", call_line=call_line)
            elif self._is_local(statement.test):
                cause, kind = "collective-under-local-condition", "leaves-by-own-finding"
                yield self._reason(4, cause, statement, kind, call_line=call_line)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the rank continues after a handler, because the handler does not raise again."""
    return not contains(handler, ast.Raise)


def _swallowing(blocks: list[Block]) -> ast.ExceptHandler | None:
    """The first handler around a block after which the rank continues, innermost ``try`` first."""
    tries = [b.owner for b in blocks if isinstance(b.owner, ast.Try) and b.field == "body"]
    return next((h for node in tries for h in node.handlers if _goes_on(h)), None)
