"""What the source says about a line at which ranks went different ways, and about its arms."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from ddt_notebook.model import Place, Position
from ddt_notebook.model.branches import BranchOutcome
from ddt_notebook.model.expression_guards import ExpressionGuard, expression_guards

from .nodes import LEAVES, FunctionNode, calls_in, end, last_name
from .program import Located, Program
from .tree import Block, Tree

DecidingNode = (
    ast.If | ast.While | ast.For | ast.AsyncFor | ast.ExceptHandler | ast.With | ast.match_case
)


@dataclass(frozen=True, slots=True)
class Decision:
    """A statement, or a condition inside an expression, at which ranks can go different ways.

    Attributes
    ----------
    node
        The statement, the handler of an exception, or a case of a ``match``.
    function
        The function, class or module whose code contains it.
    blocks
        The blocks around it, innermost first, within that function.
    match
        The ``match`` to which the case belongs.
    guard
        The condition, if it is inside an expression; ``node`` is then that expression.
    """

    node: DecidingNode | ast.expr
    function: ast.AST
    blocks: tuple[Block, ...]
    match: ast.Match | None = None
    guard: ExpressionGuard | None = None

    @property
    def head(self) -> Located:
        """The node at the line that decides: a case has no line of its own."""
        return _head(self.node)

    @property
    def test(self) -> ast.expr | None:
        """The condition, or what a case is compared with; None for for loops and exceptions."""
        if self.guard is not None:
            return self.guard.test
        if self.match is not None:
            return self.match.subject
        return self.node.test if isinstance(self.node, (ast.If, ast.While)) else None

    @property
    def loops(self) -> list[ast.For | ast.AsyncFor]:
        """The ``for`` loops of the same function around it, innermost first."""
        owners = (one.owner for one in self.blocks)
        return [one for one in owners if isinstance(one, (ast.For, ast.AsyncFor))]

    def is_taken(self, outcome: BranchOutcome) -> bool:
        """Whether the condition held, the loop went on, or the exception was caught."""
        if outcome.kind == "handled":
            return True
        if isinstance(self.node, ast.expr):
            return outcome.to_line != 0
        body = self.node.body
        if body[0].lineno == self.head.lineno:  # all on one line
            otherwise = self._next_line()
            if otherwise is not None and isinstance(body[-1], LEAVES):
                return outcome.to_line != otherwise
            return outcome.to_line in (0, self.head.lineno)
        return body[0].lineno <= outcome.to_line <= end(body[-1])

    def _next_line(self) -> int | None:
        """The line after a condition that did not hold; None if it is the last of its block."""
        if not isinstance(self.node, ast.If):
            return None
        after = [*self.node.orelse, *(self.blocks[0].after if self.blocks else ())]
        return after[0].lineno if after else None

    def arm(self, *, taken: bool) -> list[ast.stmt]:
        """The statements that run if the condition holds, or if not."""
        if isinstance(self.node, ast.expr):
            return []
        if isinstance(self.node, (ast.If, *_LOOPS)):
            return self.node.body if taken else self.node.orelse
        if isinstance(self.node, ast.match_case) and self.match is not None and not taken:
            later = self.match.cases[self.match.cases.index(self.node) + 1 :]
            return [statement for case in later for statement in case.body]
        return self.node.body if taken else []

    def covers(self, line: int, *, taken: bool) -> bool:
        """Whether a line belongs to an arm."""
        if self.guard is not None:
            parts = self.guard.held if taken else self.guard.failed
            calls = [call for part in parts for call in calls_in(part)]
            return any(one.lineno <= line <= (one.end_lineno or line) for one in calls)
        return _covers(self.arm(taken=taken), line)

    def runs_instead(self, line: int, *, taken: bool) -> bool:
        """Whether a line runs on one way alone: it is in that arm, or after the other one left."""
        if self.covers(line, taken=taken):
            return True
        if self.guard is not None or self.arm(taken=taken) or self.leaves(taken=not taken) is None:
            return False
        return bool(self.blocks) and _covers(self.blocks[0].after, line)

    def leaves(self, *, taken: bool) -> ast.stmt | None:
        """The statement by which an arm leaves its block; None if there is none."""
        if self.match is not None and not taken:
            return None  # another case may be taken
        inner = [node for one in self.arm(taken=taken) for node in _within(one)]
        return next((node for node in inner if isinstance(node, LEAVES)), None)

    def keeps_from(self, line: int, *, taken: bool) -> bool:
        """Whether a rank that went one way does not reach a line that others then reach.

        Parameters
        ----------
        line
            A line of the same function.
        taken
            The way of that rank.
        """
        if isinstance(self.node, (ast.ExceptHandler, ast.With)):
            left_out = isinstance(self.node, ast.With) and _covers(self.node.body, line)
            return taken and (left_out or any(_covers(b.after, line) for b in self.blocks))
        if self.guard is not None:
            return self.covers(line, taken=not taken) and not self.covers(line, taken=taken)
        if _covers(self.arm(taken=not taken), line):
            return True
        if isinstance(self.node, _LOOPS):
            return False
        leaving = self.leaves(taken=taken)
        if leaving is None or _covers(self.arm(taken=taken), line):
            return False
        for block in self.blocks:
            if _covers(block.after, line):
                return True
            if isinstance(block.owner, _LOOPS):
                if isinstance(leaving, ast.Continue):
                    return False
                if _covers(block.owner.body, line):  # it would come again in later iterations
                    return True
                if isinstance(leaving, ast.Break):
                    return False
        return False


_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def decision_at(program: Program, place: Position | Place | BranchOutcome) -> Decision | None:
    """The statement that decides at a line; None if the source does not show it."""
    tree = program.trees.get(place.file)
    if tree is None:
        return None
    if isinstance(place, BranchOutcome) and place.kind == "guard":
        return _guard_decision(tree, place)
    found: list[DecidingNode] = [
        node
        for node in tree.nodes
        if isinstance(node, (ast.If, ast.ExceptHandler, ast.With, ast.match_case, *_LOOPS))
        and _head(node).lineno <= place.line <= _head_end(node)
    ]
    if not found:
        return _guard_decision(tree, place)
    node = max(found, key=lambda one: _head(one).lineno)
    if isinstance(node, ast.ExceptHandler) and isinstance(place, BranchOutcome):
        node = _catching(tree, node, place.error)
    at: ast.AST = node
    blocks: list[Block] = []
    if isinstance(node, ast.ExceptHandler):
        # a caught exception skips the statements of the try block
        at = tree.parents[node]
        assert isinstance(at, (ast.Try, ast.TryStar))
        blocks.append(Block(at, "body", at.body, -1))
    blocks += _blocks_in_function(tree, at)
    function = blocks[-1].owner if blocks else tree.module
    match = tree.parents[node] if isinstance(node, ast.match_case) else None
    assert match is None or isinstance(match, ast.Match)
    return Decision(node, function, tuple(blocks), match)


def _catching(tree: Tree, first: ast.ExceptHandler, error: str) -> ast.ExceptHandler:
    """The handler that has caught an exception; events name the first that was compared with it.

    Parameters
    ----------
    first
        The handler at the line of the event.
    error
        Name of the exception's class.
    """
    around = tree.parents[first]
    assert isinstance(around, (ast.Try, ast.TryStar))
    handlers = around.handlers[around.handlers.index(first) :]
    known = [(one, _catches(one, error)) for one in handlers]
    possible = [one for one, catches in known if catches is not False]
    return next((one for one, catches in known if catches), possible[0] if possible else first)


def _catches(handler: ast.ExceptHandler, error: str) -> bool | None:
    """Whether a handler catches an exception; None if that cannot be known from the names."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [last_name(one) for one in types]
    if error in names or "BaseException" in names:
        return True
    raised = getattr(builtins, error, None)
    classes = [getattr(builtins, name, None) for name in names]
    if isinstance(raised, type) and all(isinstance(one, type) for one in classes):
        return any(issubclass(raised, one) for one in classes if isinstance(one, type))
    return None


def _guard_decision(tree: Tree, place: Position | Place | BranchOutcome) -> Decision | None:
    """The innermost condition inside an expression at a line."""
    found = [one for one in expression_guards(tree.module) if one.test.lineno == place.line]
    if not found:
        return None
    blocks = tuple(_blocks_in_function(tree, found[-1].node))
    function = blocks[-1].owner if blocks else tree.module
    return Decision(found[-1].node, function, blocks, guard=found[-1])


def _blocks_in_function(tree: Tree, node: ast.AST) -> Iterator[Block]:
    """The blocks around a node, innermost first, up to its function, class or module."""
    for block in tree.blocks(node):
        yield block
        if isinstance(block.owner, (FunctionNode, ast.ClassDef)):
            return


def function_at(program: Program, place: Position) -> ast.AST | None:
    """The function, class or module whose code contains a line."""
    statement = program.statement_at(place)
    if isinstance(statement, FunctionNode) and statement.lineno <= place.line:
        return statement if place.line > statement.lineno else None
    blocks = program.blocks(statement)
    return blocks[-1].owner if blocks else None


def is_generator(function: ast.AST) -> bool:
    """Whether a function yields, so that it decides how long the loop over it is."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


def _within(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement and those within it; not those of loops and of functions that it defines."""
    inner: list[ast.AST] = [statement]
    for node in inner:
        yield node
        if not isinstance(node, (*_LOOPS, FunctionNode, ast.ClassDef, ast.expr)):
            inner += ast.iter_child_nodes(node)


def _covers(statements: list[ast.stmt], line: int) -> bool:
    return bool(statements) and statements[0].lineno <= line <= end(statements[-1])


def in_other_order(program: Program, one: Position, two: Position) -> bool:
    """Whether two lines are in the two arms of a condition that make the same calls, reordered.

    Each arm also has the calls of the other line.
    """
    for block in program.blocks(program.statement_at(one)):
        if not isinstance(block.owner, ast.If) or one.file != two.file:
            continue
        arms = block.owner.body, block.owner.orelse
        mine, others = arms if block.field == "body" else arms[::-1]
        if not _covers(others, two.line):
            continue
        here, there = ([c for s in arm for c in calls_in(s)] for arm in (mine, others))
        first, second = _texts(here, one.line), _texts(there, two.line)
        return first.isdisjoint(second) and bool(
            first & _texts(there, two.line, at=False) and second & _texts(here, one.line, at=False)
        )
    return False


def _texts(calls: list[ast.Call], line: int, *, at: bool = True) -> set[str]:
    """Calls at a line, or all but those, as they are written."""
    return {
        ast.dump(one) for one in calls if (one.lineno <= line <= (one.end_lineno or line)) is at
    }


def _head(node: DecidingNode | ast.expr) -> Located:
    return node.pattern if isinstance(node, ast.match_case) else node


def _head_end(node: DecidingNode) -> int:
    """The last line of the part that decides."""
    match node:
        case ast.match_case():
            last = node.guard or node.pattern
            return last.end_lineno or last.lineno
        case ast.If() | ast.While():
            return node.test.end_lineno or node.lineno
        case ast.For() | ast.AsyncFor():
            return node.iter.end_lineno or node.lineno
        case ast.ExceptHandler():
            return (node.type.end_lineno if node.type is not None else None) or node.lineno
    return _head(node).lineno


def has_effect_outside(statement: ast.stmt) -> bool:
    """Whether a statement sets an attribute or an item, or leaves its function with a result."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Return) and node.value is not None):
            return True
    return False
