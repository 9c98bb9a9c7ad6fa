"""Applies operators and built-in functions to values that may be unknown."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from .values import ANYTHING, DEVICE, LOCAL, RANK, UNKNOWN, Items, Marks, Value, marks_of

_BINARY: Final[dict[type[ast.AST], Callable[[Any, Any], object]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARE: Final[dict[type[ast.AST], Callable[[Any, Any], object]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_LONGEST = 64  #: the longest list whose elements are followed one by one
_NUMBERS = (int, float, bool)
_SIMPLE: Final[dict[str, Callable[..., object]]] = {
    "int": int, "float": float, "str": str, "bool": bool, "abs": abs, "round": round,
}  # fmt: skip
_OVER_ITEMS: Final[dict[str, Callable[..., object]]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "any": any,
    "all": all,
}


def plain(value: Value) -> object:
    """A number, text or list of them; raises `LookupError` if it is not fully known."""
    if isinstance(value.value, Items):
        if value.value.items is None:
            raise LookupError
        return [plain(item) for item in value.value.items]
    if value.value is None or isinstance(value.value, (*_NUMBERS, str, tuple)):
        return value.value
    raise LookupError


def wrap(value: object, marks: Marks) -> Value:
    """The inverse of `plain`."""
    if isinstance(value, float) and RANK in marks:
        marks = marks - {RANK} | {LOCAL}  # a measure, no longer a rank
    if isinstance(value, str) and value.startswith("cuda:") and RANK in marks:
        marks = marks - {RANK} | {DEVICE}
    if isinstance(value, list):
        return Value(Items([wrap(item, marks) for item in value]), marks)
    return Value(value, marks)


def binary(sign: ast.operator, one: Value, other: Value) -> Value:
    """``one + other`` and the like."""
    return _apply(_BINARY.get(type(sign)), one, other)


def compare(sign: ast.cmpop, one: Value, other: Value) -> Value:
    """``one < other`` and the like."""
    if isinstance(sign, (ast.Is, ast.IsNot)) and one.known and other.known:
        same = one.value is other.value
        return Value(same == isinstance(sign, ast.Is), one.marks | other.marks)
    return _apply(_COMPARE.get(type(sign)), one, other)


def _apply(operation: Callable[[Any, Any], object] | None, one: Value, other: Value) -> Value:
    marks = one.marks | other.marks
    if operation is None:
        return Value(UNKNOWN, marks)
    try:
        left, right = plain(one), plain(other)
        if isinstance(left, (list, str)) and isinstance(right, int) and right > _LONGEST:
            return Value(UNKNOWN, marks)
        return wrap(operation(left, right), marks)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return Value(UNKNOWN, marks)


def truth(value: Value) -> bool | None:
    """Whether a condition holds; None if it is not known."""
    held = value.value
    if held is UNKNOWN:
        return None
    if isinstance(held, Items):
        return None if held.items is None else bool(held.items)
    return bool(held)


def iterate(value: Value) -> list[Value] | None:
    """The elements that a loop would go through, if they are known and few."""
    held = value.value
    if isinstance(held, Items):
        return None if held.items is None else [item.marked(value.marks) for item in held.items]
    if isinstance(held, range) and len(held) <= _LONGEST:
        return [Value(number, value.marks) for number in held]
    if isinstance(held, str) and len(held) <= _LONGEST:
        return [Value(letter, value.marks) for letter in held]
    if isinstance(held, dict):
        return [Value(name) for name in held]
    return None


def length(value: Value) -> Value:
    """``len(value)``."""
    if isinstance(value.value, (range, str, dict)):
        return Value(len(value.value), value.marks)
    items = iterate(value)
    if value.value is UNKNOWN:
        return ANYTHING  # batches of a sharded dataset are equally long
    return Value(UNKNOWN if items is None else len(items), value.marks)


def item(value: Value, index: Value) -> Value:
    """``value[index]``."""
    marks = value.marks | index.marks
    held = value.value
    if isinstance(held, dict):
        found = held.get(index.value) if isinstance(index.value, (int, str)) else None
        return Value(found.value, found.marks | marks) if found else Value(UNKNOWN, marks)
    try:
        if isinstance(held, Items) and held.items is not None and isinstance(index.value, int):
            found = held.items[index.value]
            return Value(found.value, found.marks | index.marks)
        if isinstance(held, (range, str)) and isinstance(index.value, int):
            return Value(held[index.value], marks)
    except IndexError:
        return Value(UNKNOWN, marks)
    return Value(UNKNOWN, marks)


def part(value: Value, bounds: tuple[Value, Value, Value]) -> Value:
    """``value[start:stop:step]``."""
    marks = value.marks | marks_of(bounds)
    items = iterate(value)
    numbers: list[int | None] = []
    for bound in bounds:
        if bound.value is not None and not isinstance(bound.value, int):
            return Value(UNKNOWN, marks)
        numbers.append(bound.value)
    start, stop, step = numbers
    if step == 0:
        return Value(UNKNOWN, marks)
    if isinstance(value.value, range):
        return Value(value.value[slice(start, stop, step)], marks)
    if items is None:
        return Value(UNKNOWN, marks)
    return Value(Items(items[slice(start, stop, step)]), marks)


def call(name: str, args: list[Value]) -> Value | None:
    """The result of a built-in function; None if functions named ``name`` are not followed."""
    marks = marks_of(args)
    if name in _SIMPLE and len(args) >= 1:
        return _try(_SIMPLE[name], args[:1], marks)
    if name in _OVER_ITEMS and args:
        return _try(_OVER_ITEMS[name], args, marks)
    if name == "range" and 1 <= len(args) <= 3:
        numbers = [arg.value for arg in args if isinstance(arg.value, int)]
        if len(numbers) == len(args) and numbers[2:] != [0]:
            return Value(range(*numbers), marks)
        return Value(UNKNOWN, marks)
    if name == "len" and args:
        return length(args[0])
    if name in ("list", "tuple", "reversed", "sorted", "set", "enumerate", "zip"):
        return Value(_sequence(name, args), marks)
    return None


def _sequence(name: str, args: list[Value]) -> object:
    many = [iterate(arg) for arg in args]
    if any(items is None for items in many):
        return UNKNOWN
    known = [items for items in many if items is not None]
    if not known:
        return Items([])
    first = known[0]
    if name == "enumerate":
        return Items([Value(Items([Value(i), one])) for i, one in enumerate(first)])
    if name == "zip":
        return Items([Value(Items(list(row))) for row in zip(*known, strict=False)])
    if name == "reversed":
        return Items(first[::-1])
    if name in ("sorted", "set"):
        try:
            numbers = sorted(set(_numbers(first))) if name == "set" else sorted(_numbers(first))
        except LookupError:
            return UNKNOWN
        return Items([Value(number) for number in numbers])
    return Items(list(first))


def _numbers(items: list[Value]) -> Iterator[float]:
    for one in items:
        if not isinstance(one.value, _NUMBERS):
            raise LookupError
        yield one.value


def _try(function: Callable[..., object], args: list[Value], marks: Marks) -> Value:
    try:
        values = []
        for arg in args:
            items = None if isinstance(arg.value, str) else iterate(arg)
            values.append(plain(arg) if items is None else [plain(one) for one in items])
        return wrap(function(*values), marks)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return Value(UNKNOWN, marks) if marks else ANYTHING
