"""Statements without branches: definitions and assignments."""

from __future__ import annotations

import ast
from collections.abc import Callable

from . import builtin
from .facts import Facts
from .functions import Functions
from .shape import written
from .trace import Walk
from .values import (
    ANYTHING,
    NO_MARKS,
    RANK,
    UNKNOWN,
    Class,
    Function,
    Items,
    Object,
    Scope,
    Symbol,
    Value,
    join,
)

#: Statements that are followed before it ends: in a program, and in a function of its own.
_MOST, _IN_FUNCTION = 30_000, 6_000
_DO: dict[type[ast.stmt], str] = {}  #: names of the methods that follow them


class TooLong(Exception):
    """The program is too large to be followed."""


class Statements(Functions):
    """Follows the statements of a program on one rank.

    A block ends with ``""``, or with the way in which it was left: ``"return"``, ``"break"``,
    ``"continue"`` or ``"raise"``.
    """

    def __init__(self, rank: int, world: int, ready: bool = True) -> None:
        super().__init__(rank, world, ready)
        self.steps = 0
        self.limit = _MOST // world
        self.ended = False  # the process, by sys.exit or the like

    def begin(self) -> None:
        """Follow a function that nothing calls, as if nothing had been before."""
        self.walk, self.facts = Walk(self.rank), Facts()
        self.out, self.around, self.hooks, self.frames = self.walk.items, [], [], []
        self.ended = False
        self.raised, self.steps, self.limit = False, 0, _IN_FUNCTION // self.world

    def block(self, statements: list[ast.stmt], scope: Scope) -> str:
        """Follow statements one after the other."""
        for statement in statements:
            self.steps += 1
            if self.steps > self.limit:
                raise TooLong
            name = _DO.get(type(statement)) or _DO.setdefault(
                type(statement), f"_do_{type(statement).__name__.lower()}"
            )
            follow: Callable[[ast.stmt, Scope], str] | None = getattr(self, name, None)
            ended = follow(statement, scope) if follow else self._do_other(statement, scope)
            if self.raised:
                self.raised = False
                return "raise"
            if ended:
                return ended
        return ""

    def _do_other(self, node: ast.stmt, scope: Scope) -> str:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child, scope)
        return ""

    def _do_expr(self, node: ast.Expr, scope: Scope) -> str:
        value = self.eval(node.value, scope)
        if isinstance(value.value, Symbol) and value.value.path in ("ends", "dies"):
            self.ended = value.value.path == "ends"
            return "raise"
        return ""

    # -- definitions ------------------------------------------------------------------------------

    def _do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> str:
        scope.names[node.name] = Value(Function(node, scope))
        return ""

    _do_asyncfunctiondef = _do_functiondef

    def _do_classdef(self, node: ast.ClassDef, scope: Scope) -> str:
        bases, parents = [], []
        for base in node.bases:
            held = self.eval(base, scope).value
            if isinstance(held, Class):
                parents.append(held)
            elif isinstance(held, Symbol):
                bases.append(held.path)
            else:
                bases.append(written(base))
        scope.names[node.name] = Value(Class(node, scope, tuple(bases), tuple(parents)))
        return ""

    def _do_import(self, node: ast.Import, scope: Scope) -> str:
        for alias in node.names:
            path = alias.name if alias.asname else alias.name.partition(".")[0]
            scope.names[alias.asname or path] = Value(Symbol(path))
        return ""

    def _do_importfrom(self, node: ast.ImportFrom, scope: Scope) -> str:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            path = f"{module}.{alias.name}"
            if module == "torch" and alias.name == "distributed":
                path = "torch.distributed"
            # A module of the user's own is not known, but its names may speak.
            known = not node.level and module.partition(".")[0] not in ("utils", "util", "misc")
            own = alias.asname or alias.name
            scope.names[own] = Value(Symbol(path)) if known else ANYTHING
        return ""

    # -- assignments ------------------------------------------------------------------------------

    def _do_assign(self, node: ast.Assign, scope: Scope) -> str:
        value = self.eval(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)
        return ""

    def _do_annassign(self, node: ast.AnnAssign, scope: Scope) -> str:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, scope), scope)
        return ""

    def _do_augassign(self, node: ast.AugAssign, scope: Scope) -> str:
        as_read = ast.copy_location(_loaded(node.target), node)
        self.changes(self.eval(as_read, scope), node)
        value = builtin.binary(node.op, self.use(as_read, scope), self.eval(node.value, scope))
        self.assign(node.target, value, scope)
        return ""

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            items = builtin.iterate(value)
            for index, element in enumerate(target.elts):
                known = items is not None and len(items) == len(target.elts)
                one = items[index] if known and items else Value(UNKNOWN, value.marks)
                self.assign(element, one, scope)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, ANYTHING, scope)
        elif isinstance(target, ast.Name):
            scope.names[target.id] = self._implied(value)
        elif isinstance(target, ast.Attribute):
            held = self.eval(target.value, scope).value
            if isinstance(held, Object):
                before = held.attributes.get(target.attr)
                if self.unsure and before is not None:
                    value = join(value, before)
                held.attributes[target.attr] = self._implied(value)
        elif isinstance(target, ast.Subscript):
            self._assign_item(target, value, scope)

    def _implied(self, value: Value) -> Value:
        """What is assigned under a condition differs where the condition does."""
        marks = [around.marks for around in self.around if not around.loop]
        implied = frozenset().union(*marks) - {RANK} if marks else NO_MARKS
        return value.marked(*implied) if implied else value

    def _assign_item(self, target: ast.Subscript, value: Value, scope: Scope) -> None:
        base, index = self.eval(target.value, scope), self.eval(target.slice, scope)
        held = base.value
        if isinstance(held, Items) and held.items is not None:
            many = len(held.items)
            known = isinstance(index.value, int) and -many <= index.value < many
            if known and isinstance(index.value, int) and not self.unsure:
                held.items[index.value] = value
            else:
                held.items = None
        elif isinstance(held, dict):
            if isinstance(index.value, (int, str)) and not self.unsure:
                held[index.value] = value
            else:
                held.clear()

    def _do_delete(self, node: ast.Delete, scope: Scope) -> str:
        return ""


def _loaded(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """The target of an assignment as an expression."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load(), lineno=target.lineno)
    return target
