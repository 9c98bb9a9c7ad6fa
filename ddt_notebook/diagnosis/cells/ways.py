"""The ways past a call, read from the source around it.

What is read here is likely, never certain: the code says which ways a rank could have taken past
the call, the call log says that it took one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import TYPE_CHECKING, Any

from ddt_notebook.model import Call, Place, Position, RankReport
from ddt_notebook.model.finding import Values

from . import syntax
from .rounds import issued, rounds
from .syntax import Block, Loop

if TYPE_CHECKING:
    from .source import Sources


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rank never came to a call.

    Attributes
    ----------
    cause
        Id of a fault card.
    kind
        What that line does, an entry of `wording.REASONS`.
    place
        The line of source that shows it, ``cell[3] line 2: if rank != 1:``.
    rank
        The rank that never came.
    values
        Those of the fact.
    priority
        The lowest is the best of several.
    other_branch
        True if the rank stood in the other branch of the very same condition.
    """

    cause: str
    kind: str
    place: Place
    rank: int
    values: Values = attribute(default_factory=dict)
    priority: int = 0
    other_branch: bool = False


class Walk:
    """From one line outwards: the ways past it."""

    def __init__(
        self,
        sources: Sources,
        place: Position,
        call: Call,
        caller: RankReport,
        absent: RankReport,
        at: Position | None,
    ) -> None:
        self.sources, self.place, self.call = sources, place, call
        self.caller, self.absent, self.at = caller, absent, at

    def reasons(self) -> Iterator[Reason]:
        """All candidates."""
        blocks = self.sources.chain(self.place)
        loops = [node for node, _ in blocks if isinstance(node, Loop)]
        counters = {
            name.id
            for loop in loops
            if not isinstance(loop, ast.While)
            for name in ast.walk(loop.target)
            if isinstance(name, ast.Name)
        }
        yield from self._expression(self.sources.statement(self.place), counters)
        for depth, (node, field) in reversed(list(enumerate(blocks))):
            if isinstance(node, ast.If) and field != "test":
                yield from self._condition(node, field, counters)
            elif isinstance(node, ast.Match) and self.sources.names.reads_rank(node.subject):
                cause = "collective-under-rank-condition"
                yield self._reason(
                    0, cause, node.lineno, "keeps-from-line", call_line=self.place.line
                )
            elif isinstance(node, ast.Try) and field in ("body", "orelse"):
                yield from self._handlers(node)
            elif isinstance(node, Loop) and field == "body":
                yield from self._loop(node, counters)
            block = syntax.statements((node, field), self.place.line)
            yield from self._early_exit(block, counters, _swallowing(blocks[: depth + 1]))
        if not blocks or not isinstance(blocks[0][0], (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._early_exit(self.sources.body(self.place), counters, None)

    def _expression(self, statement: ast.stmt | None, counters: set[str]) -> Iterator[Reason]:
        """Ways past the call within its own statement: a condition, a comprehension."""
        value = getattr(statement, "value", None)
        test = None
        if isinstance(value, ast.IfExp):
            test = value.test
        elif isinstance(value, ast.BoolOp):
            test = value.values[0]
        if test is not None and self.sources.names.reads_rank(test):
            cause = "collective-under-rank-condition"
            yield self._reason(0, cause, test.lineno, "keeps-from-call")
        elif test is not None and self._is_local(test, counters):
            cause = "collective-under-local-condition"
            yield self._reason(3, cause, test.lineno, "decided-by-each-rank")
        for node in ast.walk(value) if isinstance(value, ast.expr) else ():
            if isinstance(node, ast.comprehension) and not (
                self.sources.names.is_fixed_range(node.iter)
            ):
                yield from self._uneven(node.iter.lineno)

    def _reason(
        self,
        priority: int,
        cause: str,
        line: int,
        kind: str,
        *,
        other_branch: bool = False,
        **values: Any,
    ) -> Reason:
        place = self.sources.place(self.place.cell, line, "passed")
        return Reason(cause, kind, place, self.absent.rank, values, priority, other_branch)

    def _condition(self, node: ast.If, field: str, counters: set[str]) -> Iterator[Reason]:
        test, names = node.test, self.sources.names
        wanted = field == "body"
        if names.reads_rank(test):
            here = self.sources.truth(test, self.absent.rank)
            if here is not wanted:
                branch = node.orelse if wanted else node.body
                other = self._stands_in(branch)
                cause = "collective-under-rank-condition"
                yield self._reason(
                    0,
                    cause,
                    node.lineno,
                    "keeps-from-line",
                    other_branch=other,
                    call_line=self.place.line,
                )
        elif names.reads_clock(test):
            cause = "collective-under-local-condition"
            yield self._reason(2, cause, node.lineno, "depends-on-clock")
        elif self._is_local(test, counters):
            cause = "collective-under-local-condition"
            yield self._reason(3, cause, node.lineno, "decided-by-each-rank")

    def _is_local(self, test: ast.expr, counters: set[str]) -> bool:
        """Whether a condition without rank or clock may come out differently on each rank."""
        names = self.sources.names
        if names.reads_only(test, counters) or names.is_agreed(test):
            return False
        return self.sources.truth(test, self.absent.rank) is None

    def _stands_in(self, branch: list[ast.stmt]) -> bool:
        at = self.at
        if at is None or at.file != self.place.file or not branch:
            return False
        return branch[0].lineno <= at.line <= syntax.end(branch[-1])

    def _left(self, node: ast.stmt) -> bool:
        """Whether the absent rank is known to be past a statement."""
        if self.at is None:
            return True
        return self.at.file == self.place.file and not syntax.covers(node, self.at.line)

    def _loop(self, node: Loop, counters: set[str]) -> Iterator[Reason]:
        if not self._left(node):
            return
        names = self.sources.names
        if isinstance(node, ast.While) and names.reads_clock(node.test):
            yield self._reason(2, "loop-ends-by-clock", node.lineno, "ends-by-clock")
        for test in syntax.break_conditions(node):
            if names.reads_clock(test):
                yield self._reason(2, "loop-ends-by-clock", test.lineno, "leaves-loop-by-clock")
            elif names.reads_rank(test):
                if self.sources.truth(test, self.absent.rank) is not False:
                    cause = "early-exit-on-rank-condition"
                    yield self._reason(1, cause, test.lineno, "lets-leave-loop")
            elif self._is_local(test, counters):
                cause = "collective-under-local-condition"
                yield self._reason(4, cause, test.lineno, "leaves-loop-by-own-finding")
        if isinstance(node, ast.While) or not names.is_fixed_range(node.iter):
            ranks = (self.caller.rank, self.absent.rank)
            if not self.sources.gives_as_many(self.place.cell, node.lineno, ranks):
                yield from self._uneven(node.lineno)

    def _uneven(self, line: int) -> Iterator[Reason]:
        mine, theirs = (rounds(self.call, report) for report in (self.caller, self.absent))
        values: Values = {"caller": self.caller.rank, "op": self.call.op}
        dropped = self.caller.calls_dropped or self.absent.calls_dropped
        if mine is None or theirs is None:
            mine, theirs = (issued(self.call, report) for report in (self.caller, self.absent))
        elif not dropped:
            values |= {"caller_times": mine, "times": theirs}
        if mine > theirs:
            # A rank that never came to the line may also have missed it for another reason.
            priority = 3 if theirs else 6
            yield self._reason(priority, "uneven-iterations", line, "uneven-rounds", **values)

    def _early_exit(
        self, block: list[ast.stmt], counters: set[str], handler: ast.ExceptHandler | None
    ) -> Iterator[Reason]:
        """Conditions before the line, in the same block, that leave it on some ranks."""
        for statement in block:
            if statement.lineno >= self.place.line:
                break
            leaving = [
                inner
                for inner in (statement.body if isinstance(statement, ast.If) else ())
                if isinstance(inner, syntax.LEAVES)
            ]
            if not isinstance(statement, ast.If) or not leaving:
                continue
            if handler is not None and isinstance(leaving[0], ast.Raise):
                cause, raised = "exception-swallowed", leaving[0].lineno
                yield self._reason(1, cause, handler.lineno, "swallows-raise", raised_line=raised)
                continue
            test, call_line = statement.test, self.place.line
            if self.sources.names.reads_rank(test):
                if self.sources.truth(test, self.absent.rank) is not False:
                    cause = "early-exit-on-rank-condition"
                    yield self._reason(
                        1, cause, statement.lineno, "lets-leave", call_line=call_line
                    )
            elif self._is_local(test, counters):
                cause = "collective-under-local-condition"
                yield self._reason(
                    4, cause, statement.lineno, "leaves-by-own-finding", call_line=call_line
                )

    def _handlers(self, node: ast.Try) -> Iterator[Reason]:
        for handler in filter(_swallows, node.handlers):
            yield self._reason(5, "exception-swallowed", handler.lineno, "swallows-before-call")


def _swallows(handler: ast.ExceptHandler) -> bool:
    return not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler))


def _swallowing(blocks: list[Block]) -> ast.ExceptHandler | None:
    """The first handler around the innermost of ``blocks`` that lets the rank go on."""
    tries = [node for node, field in blocks if isinstance(node, ast.Try) and field == "body"]
    return next((h for node in reversed(tries) for h in node.handlers if _swallows(h)), None)
