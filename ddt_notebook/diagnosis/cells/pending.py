"""Whether the source reads a result between an asynchronous call and its ``wait()``."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .syntax import following
from .usage import argument, called_name, key, reads

#: After these, work that was issued before may be done.
_SETTLES = frozenset({"wait", "wait_all", "synchronize", "barrier", "sleep", "result"})


def first_read(tree: ast.Module, statement: ast.stmt, call: ast.Call) -> int | None:
    """The line that first reads what ``call`` has yet to deliver, None if it cannot be told.

    Parameters
    ----------
    tree
        The cell.
    statement
        The statement that issues the call.
    call
        The call, whose first argument receives the result.
    """
    return _first(tree, statement, call, _Search)


def first_change(tree: ast.Module, statement: ast.stmt, call: ast.Call) -> int | None:
    """The line that first changes in place what ``call`` is still sending; see `first_read`."""
    return _first(tree, statement, call, _Changes)


def _first(
    tree: ast.Module, statement: ast.stmt, call: ast.Call, kind: type[_Search]
) -> int | None:
    holder, result = _holder(statement, call), key(argument(call, 0, "tensor"))
    if holder is None or result is None:
        return None
    rest, _ = following(tree, statement)
    search = kind(holder, result)
    for block in rest:
        line = search.block(block)
        if line is not None or search.over:
            return line
    return None


def _holder(statement: ast.stmt, call: ast.Call) -> str | None:
    """The name that keeps the handle, empty if it is thrown away, None if it is used otherwise."""
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
    """Statements after the call, in the order in which they run."""

    def __init__(self, holder: str, result: str) -> None:
        self.holder, self.result = holder, result
        self.over = False

    def block(self, statements: Iterable[ast.stmt]) -> int | None:
        for statement in statements:
            line = self._statement(statement)
            if line is not None or self.over:
                return line
        return None

    def _statement(self, node: ast.stmt) -> int | None:
        match node:
            case ast.For(iter=iterable, body=body) if not self._settles(iterable):
                return self._line(iterable) or self.block(body)
            case ast.With(items=items, body=body) if not any(map(self._settles, items)):
                return self.block(body)
            case ast.FunctionDef() | ast.ClassDef():
                return None
        if self._settles(node):
            self.over = True
            return None
        match node:
            case ast.If(test=test) | ast.While(test=test):
                line = self._line(test)
                # What stands in there may not run, or may not run yet.
                self.over = line is None and reads(node, {self.result})
                return line
            case ast.Return(value=ast.expr() as value):
                self.over = True
                passed = value.elts if isinstance(value, ast.Tuple) else [value]
                computed = [one for one in passed if key(one) != self.result]
                return next(filter(None, map(self._line, computed)), None)
            case ast.Try() | ast.Return() | ast.Break() | ast.Continue() | ast.Raise():
                self.over = True
                return None
            case ast.Assign(targets=[target], value=value) if key(target) == self.result:
                self.over = True
                return self._line(value)
        return self._line(node)

    def _line(self, node: ast.AST) -> int | None:
        """The line of a node that reads the result."""
        steps = self.result.endswith(".grad") and any(
            isinstance(inner, ast.Call) and called_name(inner) == "step" for inner in ast.walk(node)
        )
        return getattr(node, "lineno", None) if steps or reads(node, {self.result}) else None

    def _settles(self, node: ast.AST) -> bool:
        """Whether the handle is touched here, or something is waited for."""
        return any(
            (self.holder and key(inner) == self.holder)
            or (isinstance(inner, ast.Call) and called_name(inner) in _SETTLES)
            for inner in ast.walk(node)
        )


class _Changes(_Search):
    """The same, for lines that change the tensor in place."""

    def _line(self, node: ast.AST) -> int | None:
        changed = any(map(self._changes, ast.walk(node)))
        return getattr(node, "lineno", None) if changed else None

    def _changes(self, node: ast.AST) -> bool:
        match node:
            case ast.AugAssign(target=target):
                return self._is_it(target)
            case ast.Assign(targets=targets):
                return any(isinstance(t, ast.Subscript) and self._is_it(t) for t in targets)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                return name.endswith("_") and not name.endswith("__") and self._is_it(owner)
        return False

    def _is_it(self, node: ast.AST) -> bool:
        return key(node) == self.result or (
            isinstance(node, ast.Subscript) and self._is_it(node.value)
        )
