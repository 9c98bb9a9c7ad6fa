"""Converts dataclasses to JSON and back, as their type hints describe them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import DdtError

T = TypeVar("T")


class FormatError(DdtError, ValueError):
    """The data does not have the expected format."""


#: JSON represents values of these types directly.
_PLAIN = frozenset({str, int, float, bool, type(None)})


#: Where a number may be too large to be calculated with; most files need no closer look.
_LARGE = re.compile(r"\d{19}|[eE]\+?\d{2}")
#: Counts and sizes have at most 64 bits. The factor of a gradient scaler may be any float32.
_MOST_WHOLE, _MOST_REAL = 2.0**64, 2.0**128
#: An escaped half of a character; JSON allows one without its other half, UTF-8 does not.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def parse(text: str) -> Any:
    """The plain data in a JSON text whose numbers can all be calculated with.

    Raises
    ------
    FormatError
        If it is not JSON, is nested too deeply, or holds NaN, infinity or a number that no time,
        count or size can be.
    """
    numbers: dict[str, Any] = {}
    if _LARGE.search(text):
        numbers = {
            "parse_int": _bounded(int, _MOST_WHOLE),
            "parse_float": _bounded(float, _MOST_REAL),
        }
    try:
        plain = json.loads(text, parse_constant=_refuse, **numbers)
        if _HALF.search(text):
            halves = json.dumps(plain, ensure_ascii=False).encode("utf-16", "surrogatepass")
            plain = json.loads(halves.decode("utf-16", "replace"))
    except RecursionError as error:
        raise FormatError("it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise FormatError(str(error)) from error
    return plain


def _refuse(number: str) -> Any:
    shown = number if len(number) <= 40 else f"{number[:40]}…"
    raise FormatError(f"it holds the number {shown}, which no time, count or size can be")


def _bounded(kind: Callable[[str], Any], most: float) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        if not math.fabs(float(text)) <= most:
            _refuse(text)
        return kind(text)

    return number


def to_plain(value: Any) -> Any:
    """Turn dataclasses, tuples and dicts into data that ``json.dumps`` accepts.

    Fields that hold their default are left out, so that files stay small and an older reader
    finds a new field only if it is used.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if hasattr(kind, "__dataclass_fields__"):
        plain = {}
        for name, default in _defaults(typing.cast(Any, kind)):
            item = getattr(value, name)
            if default is dataclasses.MISSING or item != default:
                plain[name] = to_plain(item)
        return plain
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


@functools.cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


def from_plain(kind: type[T], plain: Any) -> T:
    """Build ``kind`` from the result of `to_plain`; unknown fields are ignored.

    Raises
    ------
    FormatError
        If a field is missing or is not of its declared type.
    """
    try:
        return typing.cast(T, _builder(typing.cast(Any, kind))(plain))
    except _Unfit as unfit:
        path = ".".join([kind.__name__, *reversed(unfit.path)])
        raise FormatError(f"{path}{unfit.what}") from unfit


class _Unfit(Exception):
    """A value does not have its declared type; holds the reason and the fields, innermost first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


#: Builds a value of one type from plain data, and raises `_Unfit` if that is not possible.
_Build = Callable[[Any], Any]


@functools.cache
def _builder(kind: Any) -> _Build:
    """The function that builds one type; cached, since inspecting types is slow."""
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if kind is Any:
        return lambda plain: plain
    if origin in (types.UnionType, typing.Union):
        return _optional(_builder(next(a for a in arguments if a is not type(None))))
    if origin is typing.Literal:
        return _literal(arguments)
    if origin in (tuple, list):
        return _sequence(origin, _builder(arguments[0]))
    if origin is dict:
        return _mapping(arguments[0], _builder(arguments[1]))
    if dataclasses.is_dataclass(kind):
        return _dataclass(typing.cast(type, kind))
    return _number if kind is float else _instance(kind)


def _optional(build: _Build) -> _Build:
    return lambda plain: None if plain is None else build(plain)


def _literal(values: tuple[Any, ...]) -> _Build:
    def build(plain: Any) -> Any:
        if plain not in values:
            raise _Unfit(f" is {_short(plain)}, not one of {', '.join(map(str, values))}")
        return plain

    return build


def _sequence(kind: type, item: _Build) -> _Build:
    def build(plain: Any) -> Any:
        if not isinstance(plain, list):
            raise _Unfit(" is not a list")
        return kind([item(one) for one in plain])

    return build


def _mapping(key: Any, value: _Build) -> _Build:
    def build(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _Unfit(" is not an object")
        return {_key(key, name): value(item) for name, item in plain.items()}

    return build


def _key(kind: Any, key: str) -> Any:
    try:
        return int(key) if kind is int else key
    except ValueError as error:
        raise _Unfit(f" has the key {key!r}, not a number") from error


def _dataclass(kind: type) -> _Build:
    hints = typing.get_type_hints(kind)
    # a type may refer to itself, so its fields are inspected when its first value is built
    fields: list[tuple[str, _Build]] = []

    def build(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _Unfit(" is not an object")
        if not fields:
            fields.extend((f.name, _builder(hints[f.name])) for f in dataclasses.fields(kind))
        values = {}
        for name, field in fields:
            if name in plain:
                try:
                    values[name] = field(plain[name])
                except _Unfit as unfit:
                    unfit.path.append(name)
                    raise
        try:
            return kind(**values)
        except (TypeError, ValueError) as error:
            raise _Unfit(f": {error}") from error

    return build


def _number(plain: Any) -> float:
    if isinstance(plain, float):
        return plain
    if isinstance(plain, int) and not isinstance(plain, bool):
        try:
            return float(plain)
        except OverflowError as error:
            raise _Unfit(" is too large") from error
    raise _Unfit(f" is {_short(plain)}, not float")


def _short(plain: Any) -> str:
    text = repr(plain)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _instance(kind: type) -> _Build:
    def build(plain: Any) -> Any:
        # Python counts True as an integer
        if not isinstance(plain, kind) or (plain is True or plain is False) is not (kind is bool):
            raise _Unfit(f" is {_short(plain)}, not {kind.__name__}")
        return plain

    return build
