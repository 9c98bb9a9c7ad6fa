"""The statements of a cell: which enclose a line, and which leave a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.model import Cell
from ddt_notebook.program.parse import Document
from ddt_notebook.program.parse import parse as parse_document

Block = tuple[ast.stmt, str]  #: a compound statement and the field in which the line stands
Loop = ast.For | ast.AsyncFor | ast.While

LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def parse(cell: Cell) -> ast.Module | None:
    """A cell with its own line numbers, None if it is not Python. Not to be changed: it is kept."""
    return parse_document(Document.of(cell))


def enclosing(node: ast.AST, line: int) -> Iterator[Block]:
    """The compound statements around a line, outermost first."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, (ast.ExceptHandler, ast.match_case)):
                if any(covers(statement, line) for statement in child.body):
                    if isinstance(node, ast.Match):
                        yield node, field
                    yield from enclosing(child, line)
            elif isinstance(child, ast.stmt) and covers(child, line):
                if isinstance(node, ast.stmt):
                    yield node, field
                yield from enclosing(child, line)
                return


def statements(block: Block, line: int) -> list[ast.stmt]:
    """The statements of a block, of which one is at ``line``; empty if it holds an expression."""
    node, field = block
    if isinstance(node, ast.Match):
        bodies = [case.body for case in node.cases]
        return next((body for body in bodies if any(covers(s, line) for s in body)), [])
    value = getattr(node, field, None)
    return value if isinstance(value, list) else []


def break_conditions(loop: Loop) -> Iterator[ast.expr]:
    """Conditions under which the loop is left by its own ``break``, or by ``return``."""

    def search(statements: list[ast.stmt]) -> Iterator[ast.expr]:
        for statement in statements:
            if isinstance(statement, ast.If):
                if any(isinstance(inner, (ast.Break, ast.Return)) for inner in statement.body):
                    yield statement.test
                yield from search(statement.body)
                yield from search(statement.orelse)
            elif isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
                yield from search(statement.body)

    yield from search(loop.body)


def following(
    tree: ast.Module, statement: ast.stmt
) -> tuple[list[list[ast.stmt]], ast.FunctionDef | None]:
    """What comes after a statement in its scope, the nearest block first, and its function."""
    rest: list[list[ast.stmt]] = []
    function: ast.FunctionDef | None = None
    for owner, block in blocks(tree, statement):
        if isinstance(owner, ast.FunctionDef):
            rest, function = [], owner
        index = next(i for i, s in enumerate(block) if covers(s, statement.lineno))
        rest.insert(0, block[index + 1 :])
    return rest, function


def blocks(node: ast.AST, statement: ast.stmt) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """The lists of statements that lead to one, outermost first, each with its owner."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            inner = next((s for s in value if covers(s, statement.lineno)), None)
            if inner is not None:
                yield node, value
                if inner is not statement:
                    yield from blocks(inner, statement)
                return
        elif isinstance(value, list):
            for child in value:
                if isinstance(child, (ast.ExceptHandler, ast.match_case)):
                    yield from blocks(child, statement)


def calls(node: ast.AST, name: str) -> bool:
    """Whether a node is a call of a function or method of this name."""
    function = node.func if isinstance(node, ast.Call) else None
    return name in (getattr(function, "id", None), getattr(function, "attr", None))


def covers(node: ast.stmt, line: int) -> bool:
    """Whether a line belongs to a statement."""
    return node.lineno <= line <= end(node)


def end(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno
