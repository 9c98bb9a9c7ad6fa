"""What an expression in a cell depends on: the rank, a clock, or anything else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any

from ddt_notebook.program.names import (
    AGREED_CALLS,
    AGREEING,
    RANK_CALLS,
    RANK_NAMES,
    RANK_VARIABLES,
    WORLD_CALLS,
    WORLD_NAMES,
)

_RANK_CALLS = RANK_CALLS | {"get_group_rank"}
_SIMPLE_CALLS = _RANK_CALLS | WORLD_CALLS | AGREED_CALLS | {"int", "bool", "min", "max"}
#: What these return is as long as what they are given.
_SAME_LENGTH = frozenset({"enumerate", "zip", "tqdm", "reversed", "list", "tuple"})
_RESIZING = frozenset({"append", "extend", "insert", "remove", "pop", "clear"})
_CLOCKS = frozenset({"monotonic", "perf_counter", "process_time", "time_ns", "monotonic_ns"})
_CLOCK_OWNERS = frozenset({"time", "datetime", "timeit"})

_Operation = Callable[[Any, Any], object]
_OPERATORS: dict[type[ast.AST], _Operation] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}


class _Unknown(Exception):
    """The value depends on something that the source does not tell."""


class Names:
    """Names of all cells whose values derive from the rank or from a clock.

    Parameters
    ----------
    trees
        The parsed cells.
    """

    def __init__(self, trees: Iterable[ast.AST]) -> None:
        self._values: dict[str, ast.expr | None] = {}  # None: assigned more than once
        self._clocks: set[str] = set()
        self._clock_functions: set[str] = set()
        self._agreed: dict[str, int] = {}  # the first line on which it went through a collective
        self.counters: set[str] = set()  # variables that count the rounds of a loop
        self._resized: set[str] = set()  # lists whose length the assignment alone does not tell
        trees = list(trees)
        for tree in trees:
            self._read(tree)
        self._read_arguments([node for tree in trees for node in ast.walk(tree)])

    def _read(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if any(_is_clock_call(inner) for inner in ast.walk(node)):
                    self._clock_functions.add(node.name)
                self._read_returned(node)
                continue
            if isinstance(node, ast.Call) and _called(node) in AGREEING:
                for argument in node.args:
                    if isinstance(argument, ast.Name):
                        first = self._agreed.get(argument.id, node.lineno)
                        self._agreed[argument.id] = min(first, node.lineno)
            self._resized.update(_resized(node))
            self.counters.update(_counting(node))
            for target, value in _assignments(node):
                self._values[target] = None if target in self._values else value
                if self.reads_clock(value):
                    self._clocks.add(target)

    def _read_returned(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function such as ``is_main()``, whose whole result is one expression."""
        returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
        if len(returned) == 1 and returned[0] is not None:
            name = f"{node.name}()"
            self._values[name] = None if name in self._values else returned[0]

    def _read_arguments(self, nodes: list[ast.AST]) -> None:
        """Parameters of functions that are called in one place only have the value given there."""
        calls: dict[str, list[ast.Call]] = {}
        for node in nodes:
            if isinstance(node, ast.Call):
                calls.setdefault(_called(node), []).append(node)
        given: dict[str, list[ast.expr | None]] = {}
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                for name, value in _given(node, calls.get(node.name, [])):
                    given.setdefault(name, []).append(value)
        for name, values in given.items():
            itself = values[0] is not None and _key(values[0]) == name
            if len(values) == 1 and name not in self._values and not itself:
                self._values[name] = values[0]

    def value(self, name: str) -> ast.expr | None:
        """What a name is bound to, None if it is bound more than once or not at all."""
        return self._values.get(name)

    def knows(self, name: str) -> bool:
        """Whether a cell assigns to a name."""
        return name in self._values

    def reads_rank(self, expression: ast.AST) -> bool:
        """Whether the rank, or a name computed from nothing but it, occurs in ``expression``."""
        return any(self._is_rank(node) for node in ast.walk(expression))

    def _is_rank(self, node: ast.AST, depth: int = 0) -> bool:
        if isinstance(node, ast.Constant):
            return node.value in RANK_VARIABLES
        key = _key(node)
        if key is None:
            return False
        if key.strip(".()") in (_RANK_CALLS if isinstance(node, ast.Call) else RANK_NAMES):
            return True
        value = self._values.get(key)
        if value is None or depth > 5 or not _is_simple(value):
            return False
        return any(self._is_rank(inner, depth + 1) for inner in ast.walk(value))

    def reads_clock(self, expression: ast.AST) -> bool:
        """Whether a clock, or a name computed from one, is read in ``expression``."""
        return any(
            _is_clock_call(node)
            or (isinstance(node, (ast.Name, ast.Attribute)) and _key(node) in self._clocks)
            or (isinstance(node, ast.Call) and _called(node) in self._clock_functions)
            for node in ast.walk(expression)
        )

    def is_agreed(self, expression: ast.expr) -> bool:
        """Whether ``expression`` reads what a collective has made the same on every rank."""
        return any(
            isinstance(node, ast.Name)
            and self._agreed.get(node.id, expression.lineno) < expression.lineno
            for node in ast.walk(expression)
        )

    def reads_only(self, expression: ast.AST, names: set[str]) -> bool:
        """Whether ``expression`` depends on ``names`` and constants alone."""
        for node in ast.walk(expression):
            if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
                return False
            if isinstance(node, ast.Name) and node.id not in names:
                value = self._values.get(node.id)
                if not node.id.startswith("__") and not isinstance(value, ast.Constant):
                    return False
        return True

    def is_fixed_range(self, iterable: ast.expr, depth: int = 0) -> bool:
        """Whether a loop over ``iterable`` makes the same number of rounds on every rank."""
        match iterable:
            case ast.Call(args=arguments) if _called(iterable) == "range":
                return all(self.reads_only(argument, set()) for argument in arguments)
            case ast.Call(args=[_, *_] as arguments) if _called(iterable) in _SAME_LENGTH:
                return all(self.is_fixed_range(argument, depth) for argument in arguments)
            case ast.List(elts=[_, *_] as items) | ast.Tuple(elts=[_, *_] as items):
                return not any(isinstance(item, ast.Starred) for item in items)
            case ast.ListComp(generators=parts):
                return all(not p.ifs and self.is_fixed_range(p.iter, depth) for p in parts)
            case ast.Name(id=name) if name not in self._resized and depth < 5:
                value = self._values.get(name)
                return value is not None and self.is_fixed_range(value, depth + 1)
        return False

    def truth(self, test: ast.expr, rank: int, world_size: int) -> bool | None:
        """Whether ``test`` holds on ``rank``; None if the source does not tell."""
        try:
            return bool(self._value(test, rank, world_size))
        except (_Unknown, TypeError, ZeroDivisionError, RecursionError):
            return None

    def _value(  # noqa: PLR0912 - one case for each kind of node
        self, node: ast.expr, rank: int, world_size: int
    ) -> object:
        def value(inner: ast.expr) -> object:
            return self._value(inner, rank, world_size)

        match node:
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name) if name in RANK_NAMES:
                return rank
            case ast.Name(id=name) if name in WORLD_NAMES:
                return world_size
            case ast.Attribute(attr=name) if name in RANK_NAMES:
                return rank
            case ast.Call(args=[]) if _called(node) in _RANK_CALLS:
                return rank
            case ast.Call(args=[]) if _called(node) in WORLD_CALLS:
                return world_size
            case ast.Call(args=[]) if _called(node) in AGREED_CALLS:
                return True
            case ast.Name() | ast.Attribute() | ast.Call(args=[]):
                assigned = self._values.get(_key(node) or "")
                if assigned is None:
                    raise _Unknown
                return value(assigned)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return [value(item) for item in items]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not value(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _apply(ast.Sub, 0, value(operand))
            case ast.BinOp(left=left, op=sign, right=right):
                return _apply(type(sign), value(left), value(right))
            case ast.BoolOp(op=sign, values=values):
                return self._all_or_any(isinstance(sign, ast.And), values, rank, world_size)
            case ast.Compare(left=left, ops=signs, comparators=others):
                sides = [value(left), *map(value, others)]
                pairs = zip(signs, sides, sides[1:], strict=False)
                return all(_apply(type(sign), one, other) for sign, one, other in pairs)
        raise _Unknown

    def _all_or_any(self, every: bool, values: list[ast.expr], rank: int, world_size: int) -> bool:
        """One operand can decide, even if another is unknown."""
        truths = [self.truth(value, rank, world_size) for value in values]
        if (not every) in truths:
            return not every
        if None in truths:
            raise _Unknown
        return every


def _apply(sign: type[ast.AST], one: object, other: object) -> object:
    operation = _OPERATORS.get(sign)
    if operation is None:
        raise _Unknown
    return operation(one, other)


def _key(node: ast.AST) -> str | None:
    """Under what the value of a name, an attribute of any object, or a function is kept."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
        case ast.Call():
            return f"{_called(node)}()"
    return None


def _called(node: ast.Call) -> str:
    """Name of the called function, without its module."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_clock_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = _called(node)
    if name in _CLOCKS:
        return True
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return name in ("time", "now") and (
        owner is None or (isinstance(owner, ast.Name) and owner.id in _CLOCK_OWNERS)
    )


def _is_simple(value: ast.expr) -> bool:
    """An expression that holds a number or a truth value, not a model that was given the rank."""
    allowed = (
        ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Name, ast.Constant, ast.Tuple,
        ast.List, ast.Set, ast.Subscript, ast.Attribute, ast.expr_context, ast.operator,
        ast.cmpop, ast.boolop, ast.unaryop,
    )  # fmt: skip
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            if _called(node) not in _SIMPLE_CALLS:
                return False
        elif not isinstance(node, allowed):
            return False
    return True


def _given(
    function: ast.FunctionDef, calls: list[ast.Call]
) -> Iterable[tuple[str, ast.expr | None]]:
    """Each parameter and what the one call of a function gives for it, None if that is not sure."""
    names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
    positional = [name for name in names if name not in ("self", "cls")]
    one = calls[0] if len(calls) == 1 else None
    plain = one is not None and not any(isinstance(a, ast.Starred) for a in one.args)
    for name in names:
        value = None
        if one is not None and plain:
            value = next((k.value for k in one.keywords if k.arg == name), None)
            position = positional.index(name) if name in positional else len(one.args)
            if value is None and position < len(one.args):
                value = one.args[position]
        yield name, value


def _counting(node: ast.AST) -> Iterable[str]:
    """The variable of a loop over ``range``, or the first of one over ``enumerate``."""
    match node:
        case ast.For(target=ast.Name(id=name), iter=ast.Call() as call):
            if _called(call) == "range":
                yield name
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call() as call):
            if _called(call) == "enumerate":
                yield name


def _resized(node: ast.AST) -> Iterable[str]:
    """Names that are bound otherwise than by an assignment, or lists that change their length."""
    match node:
        case ast.arg(arg=name):
            yield name
        case ast.For(target=target) | ast.comprehension(target=target):
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            if method in _RESIZING:
                yield name
        case ast.Subscript(value=ast.Name(id=name), slice=index, ctx=context):
            whole = isinstance(context, ast.Store) and not isinstance(index, ast.Slice)
            if not whole and not isinstance(context, ast.Load):
                yield name


def _assignments(node: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                key = _key(target)
                if key is not None:
                    yield key, value
                elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    for name, item in zip(target.elts, value.elts, strict=False):
                        if isinstance(name, ast.Name):
                            yield name.id, item
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield _key(target) or "", value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.AugAssign(target=target, value=value):
            # Twice: a name that changes has no one value.
            yield _key(target) or "", value
            yield _key(target) or "", value
