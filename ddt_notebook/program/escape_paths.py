"""Finds in the source around a call why a rank did not reach it.

The result is likely, never certain: the source shows which paths past the call a rank could have
taken; the call log shows only that it took one.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ddt_notebook.model import Call, Place, Position, RankReport
from ddt_notebook.model.finding import Values
from ddt_notebook.model.operations import COLLECTIVES
from ddt_notebook.model.partition import RankPartition

from .iterations import (
    comes_to,
    counts_to_default,
    lacks_stacks,
    last_met_in,
    leads_to,
    times_called,
    times_issued,
)
from .loader_passes import uneven_passes
from .nodes import (
    LEAVES,
    FunctionNode,
    LoopNode,
    called_name,
    calls_in,
    calls_once,
    counted_in,
    counts_width,
    covers,
    end,
    ends_with_data,
    guards_of,
    guards_of_breaks,
    is_call,
    is_periodic,
    last_name,
    own_expressions,
    variables_in,
)
from .program import Located, Program
from .tree import Block

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
#: Kinds of reasons that only say what could come out differently on each rank.
SUPPOSED = frozenset(
    {
        "decided-by-each-rank",
        "leaves-by-own-finding",
        "leaves-loop-by-own-finding",
        "swallows-before-call",
        "uneven-rounds",
    }
)
#: Kinds of reasons that leave a loop around the call, in one of its rounds.
LEAVES_LOOP = frozenset({"leaves-loop-by-clock", "leaves-loop-by-own-finding", "lets-leave-loop"})
#: Priority of a library's line that led to fewer calls. A loop over other things than data in the
#: function that the library called is a worse reason.
_LIBRARY = 4


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
    raises
        True if the rank raises an exception under the condition.
    """

    cause: str
    kind: str
    place: Place
    rank: int
    values: Values = field(default_factory=dict)
    priority: int = 0
    other_branch: bool = False
    raises: bool = False


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
        self,
        call: Call,
        caller: RankReport,
        absent: RankReport,
        at: Position | None,
        but: Collection[Place] = (),
    ) -> Reason | None:
        """Why ``absent`` did not reach ``call``, which ``caller`` has made.

        Parameters
        ----------
        at
            Where ``absent`` was instead; None if it had finished the cell.
        but
            Lines that are known not to be the reason.

        Returns
        -------
        Reason or None
            None if the source does not show a reason.
        """
        found: list[Reason] = []
        of_library: list[Reason] = []
        called = call.op
        frames = self.frames(call, caller)
        for number, place in enumerate(frames):
            if self._is_past(frames[number:], frames[:number], at):
                break
            paths = _Paths(
                self._program, self._partitions, frames[number:], call, caller, absent, at
            )
            inner = paths.reasons(called)
            if self._in_callback(frames, number, absent):
                # it is called at a line where the absent rank does not stand, as a hook is
                inner = (replace(one, priority=one.priority + 2) for one in inner)
            found += inner
            if by_library := [*self._by_library(frames[number:], call, caller, absent, at)]:
                of_library += by_library
                found = [self._below_library(one) for one in found]
            called = place.function
            if called == "__init__":  # it is called by the name of its class
                called = self._class_of(place)
        found += self._made_by_rank(frames, absent)
        if call.kind == "collective" and (not found or of_library):
            found += self._uneven_loaders(caller.rank, absent.rank)
        found += of_library
        found = [one for one in found if not any(map(one.place.is_same_line, but))]
        best = min(found, key=lambda reason: reason.priority, default=None)
        if best is None or best.kind not in SUPPOSED:
            return best
        lines = {one.place.line for one in found if one.kind in SUPPOSED}
        return replace(best, values=best.values | {"others": True}) if len(lines) > 1 else best

    def _by_library(
        self,
        frames: Sequence[Position],
        call: Call,
        caller: RankReport,
        absent: RankReport,
        at: Position | None,
    ) -> Iterator[Reason]:
        """The line that called a library, such as ``fit``, if that called the function more often.

        A loop in the function, as one over a model's gradients, takes equal rounds on all ranks.
        """
        if len(frames) < 2 or not self._program.is_called_back(*frames[:2]):
            return
        outer = self._program.statement_at(frames[1])
        if outer is None or self._program.loops(frames[1]):
            return  # in a loop, a line such as ``backward`` may call a hook once each time
        paths = _Paths(self._program, self._partitions, frames[1:], call, caller, absent, at)
        yield from (replace(one, priority=_LIBRARY) for one in paths.called_less(outer))

    def _below_library(self, reason: Reason) -> Reason:
        """A loop that the library's line may explain, unless a loader was read in it."""
        read = any(
            epoch.where is not None and reason.place.is_same_line(epoch.where)
            for partition in self._partitions.values()
            for loader in partition.loaders
            for epoch in loader.epochs
        )
        if reason.kind != "uneven-rounds" or read:
            return reason
        return replace(reason, priority=max(reason.priority, _LIBRARY + 1))

    def _in_callback(self, frames: Sequence[Position], number: int, absent: RankReport) -> bool:
        """Whether a library called a line's function, or one around it, that only one rank is in.

        Both ranks are in the function that called the library, at different lines of it.
        """
        return any(
            self._program.is_called_back(inner, outer)
            and any(
                (one.file, one.function) == (outer.file, outer.function) and one.line != outer.line
                for one in absent.stack
            )
            for inner, outer in pairwise(frames[number:])
        )

    def _uneven_loaders(self, caller: int, absent: int) -> Iterator[Reason]:
        """Loaders with which a library trains, and that have other numbers of batches."""
        if not {caller, absent} <= self._partitions.keys():
            return
        theirs, mine = map(self._trained_loaders, (caller, absent))
        made: list[tuple[Position, int, int]] = []
        for made_at, counts in mine.items():
            others = theirs.get(made_at, Counter())
            # one line may make several loaders, and a rank may not have come to all of them
            own, their = list((counts - others).elements()), list((others - counts).elements())
            if len(own) == 1 and len(their) == 1:
                made.append((made_at, own[0], their[0]))
        made = made or [*uneven_passes(self._partitions[absent], self._partitions[caller])]
        for made_at, batches, other in made:
            document = self._program.documents.get(made_at.file)
            code = document.line(made_at.line).strip() if document is not None else ""
            place = Place(
                file=made_at.file,
                line=made_at.line,
                function=made_at.function,
                code=code,
                role="passed",
            )
            values: Values = {"batches": batches, "other": (caller, other)}
            split = self._split_at(absent, made_at)
            if split is not None:
                values["split"] = split
            yield Reason("uneven-iterations", "loaders-differ", place, absent, values, 3)

    def _split_at(self, rank: int, made_at: Position) -> Place | None:
        """The line that chose the part of the data which a loader of this line reads."""
        found = {x.split_at for x in self._partitions[rank].loaders if x.made_at == made_at}
        split = found.pop() if len(found) == 1 else None
        if split is None or (document := self._program.documents.get(split.file)) is None:
            return None
        code = document.line(split.line).strip()
        return Place(file=split.file, line=split.line, function=split.function, code=code)

    def _trained_loaders(self, rank: int) -> dict[Position, Counter[int]]:
        """How many batches each loader of a rank has, by the line that made it."""
        found: dict[Position, Counter[int]] = defaultdict(Counter)
        for one in self._partitions[rank].loaders:
            trained = any(epoch.trained for epoch in one.epochs)
            if trained and one.made_at is not None and one.expected_batches is not None:
                found[one.made_at][one.expected_batches] += 1
        return found

    def _made_by_rank(self, frames: list[Position], absent: RankReport) -> Iterator[Reason]:
        """Conditions on the rank under which alone a class or a callback of the lines is named.

        So an object exists on some ranks only, or only some of them register a function, and its
        method leads to the call much later.
        """
        program = self._program
        for frame in frames:
            for owner in self._owners(frame):
                named = [node for node in self._references(owner) if not _is_in(node, owner)]
                guards = [self._guard(node, absent.rank) for node in named]
                guard = guards[0] if guards else None
                if guard is None or None in guards:
                    continue
                place = replace(program.place(guard, "passed"), function=frame.function)
                values: Values = {"call_line": named[0].lineno}
                cause = "collective-under-rank-condition"
                yield Reason(cause, "keeps-from-line", place, absent.rank, values, 1)

    def _owners(self, place: Position) -> Iterator[FunctionNode | ast.ClassDef]:
        """The function of a line, unless it is called by its name somewhere, and its class."""
        tree = self._program.tree_at(place)
        node: ast.AST | None = self._program.statement_at(place)
        while tree is not None and node is not None:
            match node:
                case ast.ClassDef():
                    yield node
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if not self._program.calls(name):
                        yield node
            node = tree.parents.get(node)

    def _class_of(self, place: Position) -> str:
        """The name of the class around a line; empty if there is none."""
        tree = self._program.tree_at(place)
        node: ast.AST | None = self._program.statement_at(place)
        while tree is not None and node is not None and not isinstance(node, ast.ClassDef):
            node = tree.parents.get(node)
        return node.name if isinstance(node, ast.ClassDef) else ""

    def _references(self, owner: FunctionNode | ast.ClassDef) -> list[ast.Name | ast.Attribute]:
        """Where the program names a class or a function, apart from other definitions."""
        return [
            node
            for node in self._program.nodes
            if (isinstance(node, ast.Name) and node.id == owner.name)
            or (isinstance(node, ast.Attribute) and node.attr == owner.name)
        ]

    def _guard(self, node: ast.expr, rank: int) -> ast.If | None:
        """The condition on the rank that keeps a rank from an expression; None if none is known."""
        for block in self._program.blocks(node):
            if isinstance(block.owner, ast.If) and self._program.conditions.reads_rank(
                block.owner.test
            ):
                wanted = block.field == "body"
                if self._program.truth(block.owner.test, rank) is (not wanted):
                    return block.owner
        return None

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
        if call.callers and call.where is not None:
            way = (call.where, *call.callers)
            return [one for one in way if one.file in self._program.documents]
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
        frames: Sequence[Position],
        call: Call,
        caller: RankReport,
        absent: RankReport,
        at: Position | None,
    ) -> None:
        self.program, self.conditions, self.partitions = program, program.conditions, partitions
        self.place, self.outer = frames[0], frames[1:]
        self.call, self.caller, self.absent = call, caller, absent
        #: The lines of the program at which the absent rank stands, innermost first.
        self.stack = [one for one in reversed(absent.stack) if one.file in program.documents]
        if at is None or not any(at.is_same_line(one) for one in self.stack):
            self.stack = []  # it was somewhere else when it should have made the call
        name = next(iter(program.functions_around(frames[0])), "<module>")
        same = (one for one in self.stack if (one.file, one.function) == (frames[0].file, name))
        self.at = next(same, at)
        loops = program.loops(self.place)
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
                    after = blocks[depth + 1].after if depth + 1 < len(blocks) else []
                    yield from self._condition(condition, block.field, after, called)
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
        raises: bool = False,
        **values: Any,
    ) -> Reason:
        place = replace(self.program.place(node, "passed"), function=self.place.function)
        rank = self.absent.rank
        return Reason(cause, kind, place, rank, values, priority, other_branch, raises)

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
            if not isinstance(node, _COMPREHENSIONS) or node in arguments or not _calls(node):
                continue
            for part in node.generators:
                if not self._is_fixed(part.iter) and not self._names_each():
                    yield from self._uneven(part.iter)

    def _names_each(self) -> bool:
        """Whether the line makes calls for several names: a comprehension has one for each item.

        One that ran once more often is then no longer than the others.
        """
        here = {(one.op, one.group) for one in self.caller.calls if one.where == self.call.where}
        return len(here) > 1

    def _condition(
        self, node: ast.If, branch: str, after: list[ast.stmt], called: str
    ) -> Iterator[Reason]:
        wanted = branch == "body"
        without = node.orelse or (after if isinstance(node.body[-1], LEAVES) else [])
        arms = node.body, without
        if called not in COLLECTIVES and all(calls_once(arm, called) for arm in arms):
            return  # both ways call the function or the class, perhaps with other arguments
        times, otherwise = (_times(arm, called) for arm in (node.body, node.orelse))
        if called in COLLECTIVES and times == otherwise > 0:
            return  # both sides make the collective, each in its own way
        if self.conditions.reads_rank(node.test):
            if self.program.truth(node.test, self.absent.rank) is not wanted:
                own, line = self._own_turn(after, called)
                comes = own is not None and self.program.truth(own.test, self.absent.rank) is True
                yield self._reason(
                    0,
                    "collective-under-rank-condition",
                    node if own is None or comes else own,
                    "keeps-from-line",
                    other_branch=comes or self._stands_in(without if wanted else node.body),
                    call_line=self.place.line if own is None or comes else line,
                )
        elif self.conditions.reads_clock(node.test):
            yield self._reason(2, "collective-under-local-condition", node, "depends-on-clock")
        elif self._is_local(node.test):
            seldom = is_periodic(node.test) or _is_set_up_alike(node.test)
            priority = 5 if seldom else 3
            cause, kind = "collective-under-local-condition", "decided-by-each-rank"
            yield self._reason(priority, cause, node, kind)

    def _own_turn(self, after: list[ast.stmt], called: str) -> tuple[ast.If | None, int]:
        """The condition and the line of the same call that other ranks make further below.

        One rank prepares something while the others wait in a barrier, and enters it afterwards.
        """
        for statement in after:
            if not isinstance(statement, ast.If) or not self.conditions.reads_rank(statement.test):
                continue
            for call in (call for part in statement.body for call in calls_in(part)):
                if called_name(call) == called:
                    return statement, call.lineno
        return None, 0

    def called_less(self, statement: ast.stmt) -> Iterator[Reason]:
        """How much less often a statement brought the absent rank to the call, if it is past it."""
        if not isinstance(statement, FunctionNode) and self._has_left(statement):
            yield from (one for one in self._uneven(statement) if one.values.get("times"))

    def _case(self, case: ast.match_case) -> Iterator[Reason]:
        node = self.program.tree_of(case).parents[case]
        if isinstance(node, ast.Match) and self.conditions.reads_rank(node.subject):
            cause, call_line = "collective-under-rank-condition", self.place.line
            yield self._reason(0, cause, node, "keeps-from-line", call_line=call_line)

    def _is_local(self, test: ast.expr) -> bool:
        """Whether a condition without rank or clock may have different values on the two ranks."""
        if self.conditions.reads_only(test, self.counters) or self.conditions.is_agreed(test):
            return False
        passed = self._passed_constants()
        if self.conditions.is_configured(test) or self.conditions.is_alike(
            test, passed | (self.counters & self.conditions.counters)
        ):
            return False
        if variables_in(test) and variables_in(test) <= passed:
            return False
        holds = self.program.truth(test, self.absent.rank)
        return holds is None or holds is not self.program.truth(test, self.caller.rank)

    def _stands_in(self, branch: list[ast.stmt]) -> bool:
        """Whether the absent rank is in a branch."""
        if self.at is None or self.at.file != self.place.file or not branch:
            return False
        return branch[0].lineno <= self.at.line <= end(branch[-1])

    def _passed_constants(self, depth: int = 0) -> set[str]:
        """The parameters to which the next outer line passes constants.

        Also by way of parameters of its own function to which a line further out passes them.
        """
        outer = self.program.statement_at(self.outer[depth]) if depth < len(self.outer) else None
        inner = self.outer[depth - 1] if depth else self.place
        blocks = self.program.blocks(self.program.statement_at(inner))
        function = blocks[-1].owner if blocks else None
        if outer is None or not isinstance(function, FunctionNode):
            return set()
        calls = [one for one in calls_in(outer) if called_name(one) == function.name]
        if len(calls) != 1 or any(isinstance(one, ast.Starred) for one in calls[0].args):
            return set()
        given = function.args
        if any(one.arg is None for one in calls[0].keywords):
            return set()
        positional = [one.arg for one in (*given.posonlyargs, *given.args)]
        pairs = zip(reversed(positional), reversed(given.defaults), strict=False)
        values: dict[str, ast.expr] = dict(pairs)
        if isinstance(calls[0].func, ast.Attribute) and positional[:1] == ["self"]:
            del positional[0]
        values |= dict(zip(positional, calls[0].args, strict=False))
        values |= {one.arg: one.value for one in calls[0].keywords if one.arg is not None}
        names = any(isinstance(value, ast.Name) for value in values.values())
        known = self._passed_constants(depth + 1) if names else set()
        return {
            name
            for name, value in values.items()
            if isinstance(value, ast.Constant)
            or (isinstance(value, ast.Name) and value.id in known)
        }

    def _has_left(self, node: ast.stmt) -> bool:
        """Whether the absent rank is known to be past a statement."""
        if self.at is None:
            return True
        if not self.stack:  # it has gone on since, perhaps into another round
            return self.at.file == self.place.file and not covers(node, self.at.line)
        here = self.program.place(node)
        if self._is_in(node):
            return False
        if self.at.file != here.file and not self._parted_outside():
            return False
        if comes_to(self.program, self.stack, Position(file=here.file, line=here.line)):
            return self._is_a_round_ahead() or last_met_in(
                self.program, node, self.caller, self.absent
            )
        return True

    def _is_in(self, node: ast.stmt) -> bool:
        """Whether a line at which the absent rank stands belongs to a statement."""
        file = self.program.place(node).file
        return any(one.file == file and covers(node, one.line) for one in self.stack)

    def _parted_outside(self) -> bool:
        """Whether both ranks are at different lines of a function around the call."""
        return any(
            (mine.file, mine.function) == (theirs.file, theirs.function)
            and mine.line != theirs.line
            for mine in self.outer
            for theirs in self.stack
        )

    def _is_a_round_ahead(self) -> bool:
        """Whether the absent rank has made its last call more often than the other rank.

        No condition may be around that call: it could have kept the other rank from it. Those in a
        function that a library calls back, such as a hook, do not count.
        """
        pairs = enumerate(pairwise(self.stack), 1)
        backs = [number for number, pair in pairs if self.program.is_called_back(*pair)]
        for line in self.stack[max(backs, default=0) :]:
            for block in self.program.blocks(self.program.statement_at(line)):
                if isinstance(block.owner, ast.If) and (
                    self.conditions.reads_rank(block.owner.test) or self._is_local(block.owner.test)
                ):
                    return False
        made = [one for one in self.absent.calls if one.where is not None]
        last = made[-1] if made else None
        if last is None or last.where is None:
            return False
        times = [
            sum(
                one.op == last.op and one.where is not None and one.where.is_same_line(last.where)
                for one in report.calls
            )
            for report in (self.absent, self.caller)
        ]
        return times[0] > times[1] > 0

    def _loop(self, node: LoopNode) -> Iterator[Reason]:
        if not self._has_left(node):
            return
        if isinstance(node, ast.While) and self.conditions.reads_clock(node.test):
            yield self._reason(2, "loop-ends-by-clock", node, "ends-by-clock")
        left = False
        for guards in guards_of_breaks(node):
            test = guards[-1]
            by_rank = [one for one in guards if self.conditions.reads_rank(one)]
            if self.conditions.reads_clock(test):
                yield self._reason(2, "loop-ends-by-clock", test, "leaves-loop-by-clock")
            elif by_rank:
                if all(self.program.truth(one, self.absent.rank) is not False for one in by_rank):
                    yield self._reason(1, "early-exit-on-rank-condition", test, "lets-leave-loop")
            elif self._is_local(test):
                left = True
                yield self._reason(
                    4, "collective-under-local-condition", test, "leaves-loop-by-own-finding"
                )
        fixed = isinstance(node, (ast.For, ast.AsyncFor)) and self._is_fixed(node.iter)
        if not fixed and not self._has_as_many_batches(node) and not self._ran_as_far(node):
            ranks = self.caller.rank, self.absent.rank
            counted = all(self._batches(node, rank) - {None} for rank in ranks) or (
                isinstance(node, ast.For)
                and any(is_call(c, "range") for c in calls_in(node.iter))
                and not counts_width(node.iter)
            )
            for one in self._uneven(node):
                # what leaves the loop comes first, unless the numbers of batches are known
                yield replace(one, priority=max(one.priority, 5)) if left and not counted else one
        elif fixed and self._is_resumed(node):
            yield from (replace(one, priority=7) for one in self._uneven(node))

    @staticmethod
    def _is_resumed(node: LoopNode) -> bool:
        """Whether a loop's ``range`` begins at a value, which only some ranks may have resumed."""
        return (
            isinstance(node, ast.For)
            and is_call(node.iter, "range")
            and len(node.iter.args) > 1
            and not isinstance(node.iter.args[0], ast.Constant)
        )

    def _ran_as_far(self, node: LoopNode) -> bool:
        """Whether the absent rank, when it last ran a loop, made the call in as many rounds.

        So in this loop, as one over a model's layers, it missed nothing: the caller has come to
        the loop once more. If the line is a helper's, calls from other lines may be between; what
        its loader had for the absent rank counts as well.
        """
        mine, theirs = (self._calls_in_a_row(report, node) for report in (self.caller, self.absent))
        batches = self._batches(node, self.absent.rank)
        return 0 < mine <= max(theirs, *(one or 0 for one in batches), 0)

    def _calls_in_a_row(self, report: RankReport, loop: LoopNode) -> int:
        """How often a rank made the call when it last ran a loop, and nothing else in between."""
        known: dict[Position, bool] = {}
        file, found = self.program.place(loop).file, 0
        for one in reversed(report.calls):
            if one.where is None:
                continue
            if one.where not in known:
                # the source does not show who calls ``forward`` of an autograd function
                below = any(each.file == file and covers(loop, each.line) for each in one.callers)
                known[one.where] = below or leads_to(self.program, loop, one.where)
            if known[one.where]:
                same = (one.op, one.group) == (self.call.op, self.call.group)
                found += same and one.where == self.call.where
            elif found:
                break
        return found

    def _is_fixed(self, iterable: ast.expr) -> bool:
        known = self.conditions
        fixed = known.is_fixed_range(iterable) or known.is_configured_range(iterable)
        return fixed or counts_to_default(self.program, iterable)

    def _has_as_many_batches(self, loop: LoopNode) -> bool:
        """Whether the loader of a loop is known to have as many batches on both ranks."""
        lengths = [self._batches(loop, rank) for rank in (self.caller.rank, self.absent.rank)]
        return len(lengths[0]) == 1 and lengths[0] == lengths[1] and None not in lengths[0]

    def _batches(self, loop: LoopNode, rank: int) -> set[int | None]:
        """How many batches the loaders of a loop have on a rank."""
        place = self.program.place(loop)
        loaders = self.partitions[rank].loaders if rank in self.partitions else ()
        return {
            one.expected_batches
            for one in loaders
            if any(e.where is not None and place.is_same_line(e.where) for e in one.epochs)
        }

    def _uneven(self, node: ast.stmt | ast.expr) -> Iterator[Reason]:
        file = self.program.place(node).file
        mine, theirs = (
            times_called(self.call, rank, lambda at: at.file == file and covers(node, at.line))
            for rank in (self.caller, self.absent)
        )
        values: Values = {"caller": self.caller.rank, "op": self.call.op}
        dropped = self.caller.calls_dropped or self.absent.calls_dropped
        if mine is None or theirs is None:
            if lacks_stacks(self.call, self.caller) != lacks_stacks(self.call, self.absent):
                return  # one rank did not tell who made its calls
            mine, theirs = (times_issued(self.call, rank) for rank in (self.caller, self.absent))
        elif not dropped:
            values |= {"caller_times": mine, "times": theirs}
        if mine > theirs:
            # A rank that never reached the line may also have missed it for another reason.
            priority = 3 if theirs else 6
            iterable = node.iter if isinstance(node, (ast.For, ast.AsyncFor)) else None
            if theirs and iterable is not None and not self.conditions.counts_data(iterable):
                priority = 5  # ranks leave such a loop early more often than they count otherwise
            yield self._reason(priority, "uneven-iterations", node, "uneven-rounds", **values)

    def _leaving_handler(self, handler: ast.ExceptHandler) -> Reason:
        """A handler before the line that leaves the block, as with ``continue``."""
        if ends_with_data(handler):
            return self._reason(2, "uneven-iterations", handler, "ends-with-its-data")
        return self._reason(4, "exception-swallowed", handler, "swallows-before-call")

    def _is_in_only_loop(self) -> bool:
        """Whether the absent rank stands in the loop around the line, which runs only once."""
        loops = [loop for one in (self.place, *self.outer) for loop in self.program.loops(one)]
        return len(loops) == 1 and self._is_in(loops[0])

    def _raised_nothing(self) -> bool:
        """Whether the absent rank finished, and no handler could have kept an exception quiet."""
        blocks = [self.program.blocks(self.program.statement_at(one)) for one in self.outer]
        return self.absent.state == "finished" and not any(map(_swallowing, blocks))

    def _is_in_only_call(self) -> bool:
        """Whether the absent rank stands in the same call of the line's function as the other one.

        The same lines of the program called it on both ranks, directly, and no loop is around them.
        """
        name = next(iter(self.program.functions_around(self.place)), None)
        own = (self.place.file, name)
        number = next((i for i, o in enumerate(self.stack) if (o.file, o.function) == own), None)
        if name is None or number is None or len(self.stack) - number - 1 != len(self.outer):
            return False
        called = name
        for mine, theirs in zip(self.outer, self.stack[number + 1 :], strict=True):
            statement = self.program.statement_at(mine)
            direct = statement is not None and any(is_call(c, called) for c in calls_in(statement))
            if not mine.is_same_line(theirs) or self.program.loops(mine) or not direct:
                return False
            called = mine.function
        return True

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
            if leaving is None or (isinstance(leaving, ast.Break) and self._is_in_only_loop()):
                continue
            if isinstance(leaving, ast.Return) and self._is_in_only_call():
                continue
            if handler is not None and isinstance(leaving, ast.Raise):
                cause, raised_line = "exception-swallowed", leaving.lineno
                yield self._reason(
                    1, cause, handler, "swallows-raise", raises=True, raised_line=raised_line
                )
            elif self.conditions.reads_rank(statement.test):
                if self.program.truth(statement.test, self.absent.rank) is not False:
                    yield self._reason(
                        1,
                        "early-exit-on-rank-condition",
                        statement,
                        "lets-leave",
                        other_branch=self._stands_in(statement.body),
                        raises=isinstance(leaving, ast.Raise),
                        call_line=call_line,
                    )
            elif self._is_local(statement.test):
                if isinstance(leaving, ast.Raise) and self._raised_nothing():
                    continue
                cause, kind = "collective-under-local-condition", "leaves-by-own-finding"
                yield self._reason(4, cause, statement, kind, call_line=call_line)


def _is_in(node: ast.AST, owner: FunctionNode | ast.ClassDef) -> bool:
    """Whether a node belongs to the definition of a function or class."""
    return any(node is inner for inner in ast.walk(owner))


def _calls(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
    """Whether each round of a comprehension calls something."""
    rounds = [
        part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.comprehension)
    ]
    rounds += [test for part in node.generators for test in part.ifs]
    return any(isinstance(inner, ast.Call) for part in rounds for inner in ast.walk(part))


def _times(statements: list[ast.stmt], function: str) -> int:
    """How many calls of a function there are in statements, outside of further conditions."""
    times = 0
    for one in statements:
        if isinstance(one, ast.If):
            continue
        inner = [
            part for name in ("body", "orelse", "finalbody") for part in getattr(one, name, ())
        ]
        if inner:
            times += _times(inner, function)
        else:
            times += sum(called_name(call) == function for call in calls_in(one))
    return times


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the rank may continue after a handler: it does not raise again in each case.

    A user's interrupt reaches all ranks.
    """
    return last_name(handler.type) != "KeyboardInterrupt" and not _raises(handler.body)


def _raises(statements: list[ast.stmt]) -> bool:
    """Whether statements end with an exception on each way."""
    return any(
        isinstance(one, ast.Raise)
        or (isinstance(one, ast.If) and _raises(one.body) and _raises(one.orelse))
        or (isinstance(one, (ast.With, ast.AsyncWith)) and _raises(one.body))
        for one in statements
    )


def _is_set_up_alike(test: ast.expr) -> bool:
    """Whether a condition asks for what was set up before, mostly in the same way on all ranks.

    It is what a model's parameters are, or whether an attribute was given at all. A gradient is
    there on the ranks that used the parameter.
    """
    match test:
        case ast.Attribute(attr="requires_grad"):
            return True
        case ast.Compare(
            left=ast.Attribute(attr=name),
            ops=[ast.Is() | ast.IsNot()],
            comparators=[ast.Constant(value=None)],
        ):
            return not name.endswith("grad")
    return False


def _swallowing(blocks: list[Block]) -> ast.ExceptHandler | None:
    """The first handler around a block after which the rank continues, innermost ``try`` first."""
    tries = [b.owner for b in blocks if isinstance(b.owner, ast.Try) and b.field == "body"]
    return next((h for node in tries for h in node.handlers if _goes_on(h)), None)
