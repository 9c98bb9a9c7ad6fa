"""Syntax trees: questions about single nodes, and a document's tree with its parents and calls."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import NamedTuple, TypeGuard, TypeVar

from .parse import Document, parse

_Node = TypeVar("_Node", bound=ast.AST)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
#: Attributes of a tensor that do not show what it holds, and functions of the same kind.
METADATA = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"})
SIZES = frozenset({"size", "dim", "numel", "len", "isinstance", "type", "id", "element_size"})
#: Statements after which a block does not go on.
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


class Block(NamedTuple):
    """A list of statements.

    Attributes
    ----------
    owner
        The statement, handler, case or module to which the list belongs.
    field
        As what: ``"body"``, ``"orelse"``, ``"finalbody"``.
    statements
        The list itself.
    at
        The index of the statement that leads to the node that was asked about.
    """

    owner: ast.AST
    field: str
    statements: list[ast.stmt]
    at: int

    @property
    def before(self) -> list[ast.stmt]:
        """The statements before that one."""
        return self.statements[: self.at]

    @property
    def after(self) -> list[ast.stmt]:
        """The statements after it."""
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
        """The node of which each node is a child."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def of_kind(self, kind: type[_Node]) -> list[_Node]:
        """All nodes of a class."""
        return [node for node in self.nodes if isinstance(node, kind)]

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """All calls by the name of what is called, without its owner."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.of_kind(ast.Call):
            found.setdefault(called_name(node), []).append(node)
        return found

    @cached_property
    def functions(self) -> dict[str, list[ast.FunctionDef]]:
        """The functions and methods that the document defines, by name."""
        found: dict[str, list[ast.FunctionDef]] = {}
        for node in self.of_kind(ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
        return found

    @property
    def scopes(self) -> list[Scope]:
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
        """The innermost statement to which a node belongs; a statement is its own."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
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
    """The tree of a document, None if it is not Python; computed once, and not to be changed."""
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


def called_name(call: ast.Call) -> str:
    """The name of a called function or method, without its owner; empty if it has none."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def is_call(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Whether a node is a call of a function or method of one of these names."""
    return isinstance(node, ast.Call) and called_name(node) in names


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument by its position or its name."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if named is not None or position >= len(call.args):
        return named
    return call.args[position]


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The keyword arguments of a call by their names, without ``**kwargs``."""
    return {given.arg: given.value for given in call.keywords if given.arg is not None}


def statements_of(scope: Scope) -> Iterator[ast.stmt]:
    """The statements of a scope, also in blocks, but not in functions and classes within it."""
    waiting: list[ast.stmt] = list(scope.body)
    while waiting:
        statement = waiting.pop(0)
        yield statement
        if not isinstance(statement, (Function, ast.ClassDef)):
            inner = ast.iter_child_nodes(statement)
            waiting += [child for child in inner if isinstance(child, ast.stmt)]


def assigned_calls(scope: Scope) -> list[tuple[str, ast.Call]]:
    """The statements ``name = call(…)`` of a scope: the name and the call."""
    return [
        (statement.targets[0].id, statement.value)
        for statement in statements_of(scope)
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.targets[0], ast.Name)
    ]


def key(node: ast.AST | None) -> str | None:
    """A name, an attribute or an item of one as text: ``loss``, ``self.loss``, ``parts[0]``."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            inner = key(owner)
            return f"{inner}.{name}" if inner else None
        case ast.Subscript(value=owner, slice=ast.Constant(value=index)):
            inner = key(owner)
            return f"{inner}[{index!r}]" if inner else None
    return None


def keys_in(node: ast.AST) -> set[str]:
    """What `key` gives for all nodes within one."""
    return {name for name in map(key, ast.walk(node)) if name is not None}


def names_in(node: ast.AST) -> set[str]:
    """The variables that occur in a node."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """All calls within a node."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def contains(node: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Whether a node, or one within it, is of one of these classes."""
    return any(isinstance(inner, kinds) for inner in ast.walk(node))


def reads(node: ast.AST, keys: Collection[str]) -> bool:
    """Whether a node reads what one of ``keys`` holds, and not only its size or type."""
    if key(node) in keys:
        return True
    if is_metadata(node):
        return False
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        return False
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _reads_items(node, keys)
    return any(reads(child, keys) for child in ast.iter_child_nodes(node))


def _reads_items(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp, keys: Collection[str]
) -> bool:
    """Whether a comprehension reads the items of a list; to go over the list does not count."""
    items = set(keys)
    for part in node.generators:
        if key(part.iter) in items:
            items |= names_in(part.target)
        elif reads(part.iter, items):
            return True
    conditions = [condition for part in node.generators for condition in part.ifs]
    return any(reads(one, items) for one in (*conditions, node.elt))


def is_metadata(node: ast.AST) -> bool:
    """Whether a node asks a tensor only for its size, its type or its device."""
    if isinstance(node, ast.Attribute):
        return node.attr in METADATA
    return is_call(node, *SIZES)


def parameters(function: Function) -> list[str]:
    """The names of a function's parameters, without ``*args`` and ``**kwargs``."""
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


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


def covers(node: ast.stmt, line: int) -> bool:
    """Whether a line belongs to a statement."""
    return node.lineno <= line <= end(node)


def end(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno
