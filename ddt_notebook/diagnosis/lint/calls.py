"""Calls: who is called, and what unknown functions make of their arguments."""

from __future__ import annotations

import ast
import re
from abc import abstractmethod

from . import builtin, names
from .expressions import Expressions, only_data
from .shape import written
from .trace import Issue
from .values import (
    ANYTHING,
    CLOCK,
    LOCAL,
    RANK,
    UNKNOWN,
    Class,
    Foreign,
    Function,
    Object,
    Scope,
    Symbol,
    Value,
    is_wrapper,
    marks_of,
)

#: What they return goes through the same elements.
_THROUGH = frozenset({"enumerate", "tqdm", "iter", "list", "islice"})
#: A function of this name may well bring the ranks to one value.
_AGREES = re.compile(r"reduc|gather|sync|averag|broadcast|agree|mean_over|all_", re.IGNORECASE)
_READS = frozenset({"item", "tolist", "numpy", "cpu", "mean", "sum", "max", "argmax"})


class Calls(Expressions):
    """Evaluates calls.

    Attributes
    ----------
    sharded
        Identities of the models of which every rank holds a part.
    """

    def __init__(self, rank: int, world: int) -> None:
        super().__init__(rank, world)
        self.sharded: set[int] = set()

    @abstractmethod
    def issue(self, issue: Issue) -> None:
        """Note a call that concerns other ranks."""

    @abstractmethod
    def call_symbol(
        self, path: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """Call something imported."""

    @abstractmethod
    def call_method(
        self,
        receiver: Value,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        """Call a method of anything that is not of the program's own making."""

    @abstractmethod
    def call_wrapper(self, wrapper: Value, node: ast.Call) -> Value:
        """The forward pass of a wrapped model."""

    # -- calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        receiver: Value | None = None
        if isinstance(node.func, ast.Attribute):
            receiver = self.eval(node.func.value, scope)
            if node.func.attr == "module" and is_wrapper(receiver.value) and not self.no_gradient:
                self.note("module called", node, receiver)
            if node.func.attr in _READS:
                self.see(node.func.value, scope)
            function = self._attribute_called(receiver, node.func, scope)
        else:
            function = self.eval(node.func, scope)
        args, keywords = self._arguments(node, scope)
        held = function.value
        if isinstance(held, Symbol):
            return self.call_symbol(held.path, node, args, keywords, scope)
        if isinstance(held, Function):
            return self.call_function(held, args, keywords)
        if isinstance(held, Class):
            return self.make(held, node, args, keywords)
        if isinstance(held, Object):
            self.note_call(function, node)
            return self._call_object(held, args, keywords)
        if isinstance(held, Foreign) and not is_wrapper(held):
            self.note_call(function, node)
            return Value(UNKNOWN, only_data(marks_of(args)))
        if is_wrapper(held):
            return self.call_wrapper(function, node)
        if receiver is not None:
            return self.call_method(receiver, node, args, keywords, scope)
        return self._call_unknown(node, args, scope)

    def note_call(self, called: Value, node: ast.Call) -> None:
        """A model was called."""
        if id(called.value) in self.sharded:
            self.issue(Issue("forward", node.lineno))
        if not self.no_gradient:
            self.note("called", node, called)

    def _attribute_called(self, receiver: Value, node: ast.Attribute, scope: Scope) -> Value:
        held = receiver.value
        if isinstance(held, (Symbol, Object, Class)) or (
            is_wrapper(held) and node.attr == "module"
        ):
            return self._attribute(node, scope)
        return ANYTHING

    def _arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                args += builtin.iterate(self.eval(argument.value, scope)) or []
            else:
                args.append(self.eval(argument, scope))
        keywords = {k.arg: self.eval(k.value, scope) for k in node.keywords if k.arg is not None}
        for keyword in node.keywords:
            if keyword.arg is None:
                table = self.eval(keyword.value, scope).value
                keywords |= table if isinstance(table, dict) else {}
        return args, keywords

    def _call_unknown(self, node: ast.Call, args: list[Value], scope: Scope) -> Value:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("print", "float", "int", "bool", "str", "format"):
            for argument in node.args:
                seen = self.see(argument, scope)
                if name == "print":
                    self.note("shown", node, seen, text=written(argument))
        if name in _THROUGH and args and isinstance(args[0].value, Foreign):
            return args[0]
        if name == "open" and args:
            mode = args[1].value if len(args) > 1 else "r"
            what = "read" if isinstance(mode, str) and mode[:1] == "r" else "write"
            self.note(what, node, args[0], text="open")
        if name in names.FIRST and not args:
            return Value(self.rank == 0, frozenset({RANK}))
        if name in names.RANK_CALLS:
            return Value(self.rank, frozenset({RANK}))
        if name in names.WORLD_CALLS:
            return Value(self.world)
        known = builtin.call(name, args)
        if known is not None:
            return known if known.known else Value(UNKNOWN, only_data(known.marks))
        return self.foreign_result(name, args)

    @staticmethod
    def foreign_result(name: str, args: list[Value]) -> Value:
        """What an unknown function makes of its arguments."""
        if _AGREES.search(name):
            return ANYTHING
        return Value(UNKNOWN, marks_of(args) & {CLOCK, LOCAL})

    def _call_object(self, held: Object, args: list[Value], keywords: dict[str, Value]) -> Value:
        for name in ("__call__", "forward"):
            method = held.of.method(name)
            if method is not None:
                return self.call_function(Function(method, held.of.scope, held), args, keywords)
        return Value(UNKNOWN, only_data(marks_of(args)))

    def make(
        self, of: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """An instance of a class of the program."""
        made = Object(of, line=node.lineno)
        constructor = of.method("__init__")
        if constructor is not None:
            self.call_function(Function(constructor, of.scope, made), args, keywords)
        return Value(made)
