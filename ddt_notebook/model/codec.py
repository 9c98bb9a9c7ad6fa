"""Converts dataclasses to JSON and back, as their type hints describe them."""

from __future__ import annotations

import dataclasses
import functools
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
            raise _Unfit(f" is {plain!r}, not one of {', '.join(map(str, values))}")
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
        except TypeError as error:
            raise _Unfit(f": {error}") from error

    return build


def _number(plain: Any) -> float:
    if isinstance(plain, float):
        return plain
    if isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    raise _Unfit(f" is {plain!r}, not float")


def _instance(kind: type) -> _Build:
    def build(plain: Any) -> Any:
        if not isinstance(plain, kind):
            raise _Unfit(f" is {plain!r}, not {kind.__name__}")
        return plain

    return build
