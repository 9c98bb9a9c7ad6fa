"""Finds code that reads or changes a tensor before ``wait()`` on its asynchronous call."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddt_notebook.model import Place, Position
from ddt_notebook.model.position import Role

from .nodes import argument, called_name, calls_in, is_call, key, reads
from .program import Program

_Found = ast.stmt | ast.expr

#: Work that was issued before one of these calls may be done after it.
_SETTLES = frozenset({"wait", "wait_all", "synchronize", "barrier", "sleep", "result"})
#: Methods of collections that keep an object and do not read it.
_STORES = frozenset({"add", "append", "appendleft", "extend", "insert", "put", "setdefault"})


def first_read(program: Program, place: Position, op: str) -> Place | None:
    """The line that first reads a result before the call of ``op`` at a line has delivered it.

    None if the source does not show one for certain.
    """
    return _first(program, place, op, _Reads)


def first_change(program: Program, place: Position, op: str) -> Place | None:
    """The line that first changes a tensor in place while the call of ``op`` at a line sends it."""
    return _first(program, place, op, _Changes)


def _first(program: Program, place: Position, op: str, kind: type[_Search]) -> Place | None:
    call, statement = program.call_at(place, op), program.statement_at(place)
    if call is None or statement is None:
        return None
    handle, tensor = _handle(statement, call), key(argument(call, 0, "tensor"))
    if handle is None or tensor is None:
        return None
    search = kind(handle, tensor)
    for block in program.following(statement)[0]:
        found = search.block(block)
        if found is not None:
            return program.place(found, kind.role)
        if search.over:
            return None
    return None


def _handle(statement: ast.stmt, call: ast.Call) -> str | None:
    """The name of the handle; empty if the handle is dropped, None if it is used otherwise."""
    match statement:
        case ast.Assign(targets=[target], value=value) if value is call:
            return key(target)
        case ast.Assign(targets=[target], value=ast.ListComp(elt=element)) if element is call:
            return key(target)
        case ast.Expr(value=value) if value is call:
            return ""
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[one])):
            return key(owner) if one is call else None
    return None


class _Search:
    """Goes through the statements after a call in the order in which they run.

    Parameters
    ----------
    handle, tensor
        The names of the call's handle and of its tensor.
    """

    role: Role

    def __init__(self, handle: str, tensor: str) -> None:
        self.handle, self.tensor = handle, tensor
        self.over = False  # whether later statements prove nothing

    def is_it(self, node: ast.AST) -> bool:
        """Whether a statement or an expression is the use of the tensor that is searched for."""
        raise NotImplementedError

    def block(self, statements: Iterable[ast.stmt]) -> _Found | None:
        """The first statement or expression that `is_it` accepts."""
        for statement in statements:
            found = self._statement(statement)
            if found is not None or self.over:
                return found
        return None

    def _statement(self, node: ast.stmt) -> _Found | None:
        match node:
            case ast.For(iter=iterable, body=body) if not self._settles(iterable):
                return self._at(iterable) or self.block(body)
            case ast.With(items=items, body=body) if not any(map(self._settles, items)):
                return self.block(body)
            case ast.FunctionDef() | ast.ClassDef():
                return None
        if self._settles(node):
            self.over = True
            return None
        match node:
            case ast.If(test=test) | ast.While(test=test):
                found = self._at(test)
                # The body may not run, or may not run yet.
                self.over = found is None and reads(node, {self.tensor})
                return found
            case ast.Return(value=ast.expr() as value):
                self.over = True
                passed = value.elts if isinstance(value, ast.Tuple) else [value]
                computed = (one for one in passed if key(one) != self.tensor)
                return next((one for one in computed if self.is_it(one)), None)
            case ast.Try() | ast.Return() | ast.Break() | ast.Continue() | ast.Raise():
                self.over = True
                return None
            case ast.Assign(targets=[target], value=value) if key(target) == self.tensor:
                self.over = True
                return self._at(value)
        return self._at(node)

    def _at(self, node: _Found) -> _Found | None:
        return node if self.is_it(node) else None

    def _settles(self, node: ast.AST) -> bool:
        """Whether a node uses the handle or waits for something."""
        return any(
            is_call(inner, *_SETTLES) or (self.handle and key(inner) == self.handle)
            for inner in ast.walk(node)
        )


class _Reads(_Search):
    """Searches for code that reads the tensor."""

    role = "reads"

    def is_it(self, node: ast.AST) -> bool:
        applied = self.tensor.endswith(".grad") and any(
            called_name(call) == "step" for call in calls_in(node)
        )
        return applied or (reads(node, {self.tensor}) and not self._keeps(node))

    def _keeps(self, node: ast.AST) -> bool:
        """Whether a statement only gives the tensor another name, or puts it into a collection."""
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self._is_passed(value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=args, keywords=[])):
                return name in _STORES and all(map(self._is_passed, args))
        return False

    def _is_passed(self, node: ast.expr) -> bool:
        """Whether an expression does nothing with the tensor but pass it on."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(map(self._is_passed, node.elts))
        if isinstance(node, ast.Dict):
            return all(map(self._is_passed, node.values))
        return key(node) == self.tensor or not reads(node, {self.tensor})


class _Changes(_Search):
    """Searches for code that changes the tensor in place."""

    role = "changes"

    def is_it(self, node: ast.AST) -> bool:
        return any(map(self._changes, ast.walk(node)))

    def _changes(self, node: ast.AST) -> bool:
        match node:
            case ast.AugAssign(target=target):
                return self._is_tensor(target)
            case ast.Assign(targets=targets):
                return any(isinstance(t, ast.Subscript) and self._is_tensor(t) for t in targets)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                in_place = name.endswith("_") and not name.endswith("__")
                return in_place and self._is_tensor(owner)
        return False

    def _is_tensor(self, node: ast.AST) -> bool:
        return key(node) == self.tensor or (
            isinstance(node, ast.Subscript) and self._is_tensor(node.value)
        )
