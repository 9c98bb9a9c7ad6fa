"""The syntax tree of a document; its parents, calls and blocks are computed once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar

from .nodes import FunctionNode, ScopeNode, called_name, covers, names_in
from .parse import Document, parse

_Node = TypeVar("_Node", bound=ast.AST)


class Block(NamedTuple):
    """A list of statements.

    Attributes
    ----------
    owner
        The statement, handler, case or module to which the list belongs.
    field
        The owner's field that holds the list: ``"body"``, ``"orelse"``, ``"finalbody"``.
    statements
        The list itself.
    at
        The index of the statement that contains the node in question.
    """

    owner: ast.AST
    field: str
    statements: list[ast.stmt]
    at: int

    @property
    def before(self) -> list[ast.stmt]:
        """The statements before the one at index ``at``."""
        return self.statements[: self.at]

    @property
    def after(self) -> list[ast.stmt]:
        """The statements after the one at index ``at``."""
        return self.statements[self.at + 1 :]


class Tree:
    """The syntax tree of one document.

    Parameters
    ----------
    document
        The document.
    module
        Its tree.
    """

    def __init__(self, document: Document, module: ast.Module) -> None:
        self.document, self.module = document, module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes, as `ast.walk` orders them."""
        return tuple(ast.walk(self.module))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def of_kind(self, kind: type[_Node]) -> list[_Node]:
        """All nodes of a class."""
        return [node for node in self.nodes if isinstance(node, kind)]

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """All calls by the last part of the name that they call."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.of_kind(ast.Call):
            if name := called_name(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def functions(self) -> dict[str, list[ast.FunctionDef]]:
        """The functions and methods that the document defines, by name."""
        found: dict[str, list[ast.FunctionDef]] = {}
        for node in self.of_kind(ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """All names that occur: of variables, attributes, parameters and keyword arguments."""
        return frozenset(names_in(self.module))

    @cached_property
    def variables_read(self) -> frozenset[str]:
        """The names of all variables that are read."""
        return frozenset(
            node.id for node in self.of_kind(ast.Name) if isinstance(node.ctx, ast.Load)
        )

    @cached_property
    def modules(self) -> frozenset[str]:
        """Full names of all modules that are imported, and of what is imported from them."""
        found = {alias.name for node in self.of_kind(ast.Import) for alias in node.names}
        for node in self.of_kind(ast.ImportFrom):
            if node.module and not node.level:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return frozenset(found)

    def imports(self, *packages: str) -> bool:
        """Whether one of these packages or modules is imported, or anything from it."""
        return any(
            module == package or module.startswith(f"{package}.")
            for module in self.modules
            for package in packages
        )

    def call_at(self, line: int, name: str) -> ast.Call | None:
        """The first call of a function of this name that begins at a line."""
        return next((call for call in self.calls.get(name, ()) if call.lineno == line), None)

    @cached_property
    def strings(self) -> frozenset[str]:
        """All string constants except docstrings and parts of f-strings."""
        return frozenset(
            node.value
            for node in self.of_kind(ast.Constant)
            if isinstance(node.value, str)
            and not isinstance(self.parents[node], (ast.Expr, ast.JoinedStr))
        )

    @property
    def statement_lists(self) -> Iterator[list[ast.stmt]]:
        """All lists of statements."""
        for node in self.nodes:
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list):
                    yield block

    @property
    def scopes(self) -> list[ScopeNode]:
        """The document itself, then its functions."""
        return [self.module, *self.of_kind(ast.FunctionDef)]

    def blocks(self, node: ast.AST) -> Iterator[Block]:
        """The blocks around a node, innermost first, up to the module's own."""
        while (parent := self.parents.get(node)) is not None:
            if isinstance(node, ast.stmt):
                for field, value in ast.iter_fields(parent):
                    if isinstance(value, list) and node in value:
                        yield Block(parent, field, value, value.index(node))
            node = parent

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement to which a node belongs; a statement belongs to itself."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self.parents.get(at)
        return at

    def function_at(self, line: int) -> ast.AST | None:
        """The innermost function that contains a line; None at the top level."""
        at: ast.AST | None = self.statement_at(line)
        while at is not None and not isinstance(at, FunctionNode):
            at = self.parents.get(at)
        return at

    def statement_at(self, line: int) -> ast.stmt | None:
        """The innermost statement at a line; the first of several."""
        block: list[ast.stmt] = self.module.body
        found: ast.stmt | None = None
        while (inner := next((s for s in block if covers(s, line)), None)) is not None:
            found = inner
            block = [statement for part in _blocks_of(inner) for statement in part]
        return found


@functools.lru_cache(maxsize=256)
def tree_of(document: Document) -> Tree | None:
    """The tree of a document; None if it is not Python. It is cached and must not be changed."""
    module = parse(document)
    return Tree(document, module) if module is not None else None


def _blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks that belong to a statement directly, or through its handlers and cases."""
    for _, value in ast.iter_fields(statement):
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value[0], (ast.ExceptHandler, ast.match_case)):
            yield from (part.body for part in value)
