"""Why a rank never came to a call: read from the source of the cells.

What is read here is likely, never certain: the code says which ways a rank could have taken past
the call, the call log says that it took one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Call, Position, RankReport, Snapshot

from . import syntax
from .expressions import Names
from .syntax import Block, Loop
from .words import count, ranks_text


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rank never came to a call.

    Attributes
    ----------
    cause
        Id of a fault card.
    place
        The line of source that shows it, ``cell[3] line 2: if rank != 1:``.
    says
        What that line does.
    priority
        The lowest is the best of several.
    other_branch
        True if the rank stood in the other branch of the very same condition.
    """

    cause: str
    place: str
    says: str
    priority: int = 0
    other_branch: bool = False

    @property
    def evidence(self) -> str:
        """The line and what it does, marked as read from the source."""
        place, _, code = self.place.partition(": ")
        return f"likely why: {place}: `{code}` {self.says}"


class Sources:
    """The parsed cells of a session.

    Parameters
    ----------
    snapshot
        Its cell and its earlier cells are read.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._world_size = snapshot.world_size
        self._cells = {cell.number: cell for cell in (*snapshot.earlier_cells, snapshot.cell)}

    @cached_property
    def _trees(self) -> dict[int, ast.Module]:
        trees = {}
        for number, cell in self._cells.items():
            tree = syntax.parse(cell)
            if tree is not None:
                trees[number] = tree
        return trees

    @cached_property
    def _names(self) -> Names:
        return Names(self._trees.values())

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """Why ``absent`` did not come to ``call``, in which ``caller`` stands.

        Parameters
        ----------
        at
            Where ``absent`` was instead; None if it had finished the cell.

        Returns
        -------
        Reason or None
            None if the source does not tell.
        """
        found: list[Reason] = []
        for place in self._frames(call, caller):
            found += _Walk(self, place, call, caller, absent, at).reasons()
        return min(found, key=lambda reason: reason.priority, default=None)

    def chain(self, place: Position) -> list[Block]:
        """The compound statements around a line, outermost first, within its function."""
        tree = self._trees.get(place.cell) if place.cell is not None else None
        if tree is None:
            return []
        blocks: list[Block] = []
        for node, field in syntax.enclosing(tree, place.line):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                blocks = [(node, field)]
            else:
                blocks.append((node, field))
        return blocks

    def body(self, place: Position) -> list[ast.stmt]:
        """The statements at the top level of the cell in which a line stands."""
        return self._trees[place.cell].body if place.cell in self._trees else []

    def statement(self, place: Position) -> ast.stmt | None:
        """The innermost statement at a line."""
        blocks = self.chain(place)
        block = syntax.statements(blocks[-1], place.line) if blocks else self.body(place)
        return next((node for node in block if syntax.covers(node, place.line)), None)

    def comes_again(self, place: Position, op: str) -> bool | None:
        """Whether a rank would call ``op`` again after a line: in its loop, or in its block.

        None if the source is not known.
        """
        if place.cell not in self._trees:
            return None
        blocks = self.chain(place)
        if any(isinstance(node, Loop) for node, _ in blocks):
            return True
        block = syntax.statements(blocks[-1], place.line) if blocks else self.body(place)
        here = [index for index, node in enumerate(block) if syntax.covers(node, place.line)]
        following = block[here[0] + 1 :] if here else []
        return any(
            syntax.calls(node, op) for statement in following for node in ast.walk(statement)
        )

    def _frames(self, call: Call, caller: RankReport) -> list[Position]:
        """The lines in cells that led to the call, innermost first."""
        stack = caller.stack or (caller.error.frames if caller.error else ())
        frames = [frame for frame in reversed(stack) if frame.cell is not None]
        if call.where is None or call.where.cell is None:
            return frames
        lines = [(frame.file, frame.line) for frame in frames]
        if (call.where.file, call.where.line) in lines:
            return frames[lines.index((call.where.file, call.where.line)) :]
        return self._callers(call.where)

    def _callers(self, place: Position) -> list[Position]:
        """Without a stack: the line, and every line of the cells that calls its function."""
        frames, names = [place], set()
        for frame in frames:
            blocks = self.chain(frame)
            name = getattr(blocks[0][0], "name", None) if blocks else None
            if name is None or name in names:
                continue
            names.add(name)
            frames += self._calls_of(name)
        return frames

    def _calls_of(self, name: str) -> Iterator[Position]:
        for number, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and syntax.calls(node, name):
                    yield Position(file=f"cell[{number}]", line=node.lineno)

    @property
    def names(self) -> Names:
        return self._names

    def truth(self, test: ast.expr, rank: int) -> bool | None:
        """Whether a condition holds on a rank, None if the source does not tell."""
        return self._names.truth(test, rank, self._world_size)

    def label(self, cell: int | None, line: int) -> str:
        """``cell[3] line 4: if rank == 0:``."""
        known = self._cells.get(cell) if cell is not None else None
        code = known.line(line).strip() if known else ""
        return f"cell[{cell}] line {line}: {code}"


class _Walk:
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
        for node, field in reversed(blocks):
            if isinstance(node, ast.If) and field != "test":
                yield from self._condition(node, field, counters)
            elif isinstance(node, ast.Match) and self.sources.names.reads_rank(node.subject):
                says = f"keeps {ranks_text([self.absent.rank])} from line {self.place.line}"
                yield self._say(0, "collective-under-rank-condition", node.lineno, says)
            elif isinstance(node, ast.Try) and field in ("body", "orelse"):
                yield from self._handlers(node)
            elif isinstance(node, Loop) and field == "body":
                yield from self._loop(node, counters)
            yield from self._early_exit(syntax.statements((node, field), self.place.line), counters)
        if not blocks or not isinstance(blocks[0][0], (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._early_exit(self.sources.body(self.place), counters)

    def _expression(self, statement: ast.stmt | None, counters: set[str]) -> Iterator[Reason]:
        """Ways past the call within its own statement: a condition, a comprehension."""
        value = getattr(statement, "value", None)
        test = None
        if isinstance(value, ast.IfExp):
            test = value.test
        elif isinstance(value, ast.BoolOp):
            test = value.values[0]
        if test is not None and self.sources.names.reads_rank(test):
            says = f"keeps {ranks_text([self.absent.rank])} from the call"
            yield self._say(0, "collective-under-rank-condition", test.lineno, says)
        elif test is not None and self._is_local(test, counters):
            says = "is decided on each rank by itself"
            yield self._say(3, "collective-under-local-condition", test.lineno, says)
        for node in ast.walk(value) if isinstance(value, ast.expr) else ():
            if isinstance(node, ast.comprehension) and not (
                self.sources.names.is_fixed_range(node.iter)
            ):
                yield from self._uneven(node.iter.lineno)

    def _say(
        self, priority: int, cause: str, line: int, says: str, other_branch: bool = False
    ) -> Reason:
        place = self.sources.label(self.place.cell, line)
        return Reason(cause, place, says, priority, other_branch)

    def _condition(self, node: ast.If, field: str, counters: set[str]) -> Iterator[Reason]:
        test, names = node.test, self.sources.names
        wanted = field == "body"
        if names.reads_rank(test):
            here = self.sources.truth(test, self.absent.rank)
            if here is not wanted:
                skips = f"keeps {ranks_text([self.absent.rank])} from line {self.place.line}"
                branch = node.orelse if wanted else node.body
                other = self._stands_in(branch)
                cause = "collective-under-rank-condition"
                yield self._say(0, cause, node.lineno, skips, other)
        elif names.reads_clock(test):
            says = "depends on each rank's own clock"
            yield self._say(2, "collective-under-local-condition", node.lineno, says)
        elif self._is_local(test, counters):
            says = "is decided on each rank by itself"
            yield self._say(3, "collective-under-local-condition", node.lineno, says)

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
            yield self._say(2, "loop-ends-by-clock", node.lineno, "ends by each rank's own clock")
        for test in syntax.break_conditions(node):
            if names.reads_clock(test):
                says = "leaves the loop by each rank's own clock"
                yield self._say(2, "loop-ends-by-clock", test.lineno, says)
            elif names.reads_rank(test):
                if self.sources.truth(test, self.absent.rank) is not False:
                    says = f"lets {ranks_text([self.absent.rank])} leave the loop"
                    yield self._say(1, "early-exit-on-rank-condition", test.lineno, says)
            elif self._is_local(test, counters):
                says = "leaves the loop by what each rank finds by itself"
                yield self._say(4, "collective-under-local-condition", test.lineno, says)
        if isinstance(node, ast.While) or not names.is_fixed_range(node.iter):
            yield from self._uneven(node.lineno)

    def _uneven(self, line: int) -> Iterator[Reason]:
        mine, theirs = (_rounds(self.call, report) for report in (self.caller, self.absent))
        one, other = ranks_text([self.caller.rank]), ranks_text([self.absent.rank])
        says = f"brought {one} to {self.call.op} "
        dropped = self.caller.calls_dropped or self.absent.calls_dropped
        if mine is None or theirs is None:
            mine, theirs = (_issued(self.call, report) for report in (self.caller, self.absent))
            says += f"more often than {other}"
        elif dropped:
            says += f"more often than {other}"
        else:
            says += f"{count(mine, 'time')}, {other} {count(theirs, 'time') if theirs else 'never'}"
        if mine > theirs:
            # A rank that never came to the line may also have missed it for another reason.
            yield self._say(3 if theirs else 6, "uneven-iterations", line, says)

    def _early_exit(self, block: list[ast.stmt], counters: set[str]) -> Iterator[Reason]:
        """Conditions before the line, in the same block, that leave it on some ranks."""
        for statement in block:
            if statement.lineno >= self.place.line:
                break
            if not isinstance(statement, ast.If) or not any(
                isinstance(inner, syntax.LEAVES) for inner in statement.body
            ):
                continue
            test, before = statement.test, f"before line {self.place.line}"
            if self.sources.names.reads_rank(test):
                if self.sources.truth(test, self.absent.rank) is not False:
                    says = f"lets {ranks_text([self.absent.rank])} leave {before}"
                    yield self._say(1, "early-exit-on-rank-condition", statement.lineno, says)
            elif self._is_local(test, counters):
                says = f"leaves {before} by what each rank finds by itself"
                yield self._say(4, "collective-under-local-condition", statement.lineno, says)

    def _handlers(self, node: ast.Try) -> Iterator[Reason]:
        for handler in node.handlers:
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                says = "swallows what is raised before the call"
                yield self._say(5, "exception-swallowed", handler.lineno, says)


def _rounds(call: Call, report: RankReport) -> int | None:
    """How often a rank called from the line of ``call``, on its group; None if it is not known."""
    where = call.where
    such = [c.where for c in _until(call, report) if (c.group, c.op) == (call.group, call.op)]
    if where is None or None in such:
        return None
    return sum(
        1 for place in such if place and (place.file, place.line) == (where.file, where.line)
    )


def _issued(call: Call, report: RankReport) -> int:
    """How often a rank, or the library that issued ``call``, called the same on its group."""
    kind = (call.group, call.op, call.caller)
    return sum(1 for other in _until(call, report) if (other.group, other.op, other.caller) == kind)


def _until(call: Call, report: RankReport) -> Iterator[Call]:
    """What a rank called until it had come to the place of ``call`` in the order of its group."""
    for other in report.calls:
        yield other
        if call.sequence and (other.group, other.sequence) == (call.group, call.sequence):
            return
