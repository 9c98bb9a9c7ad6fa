"""Dataclasses to JSON and back, driven by their type hints."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

from .errors import DdtError

T = TypeVar("T")


class FormatError(DdtError, ValueError):
    """The data is not what its format says it is."""


def to_plain(value: Any) -> Any:
    """Turn dataclasses, tuples and dicts into what ``json.dumps`` takes.

    Fields that hold their default are left out, so files stay small and an
    older reader does not trip over a field that says nothing.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.default is not dataclasses.MISSING and item == field.default:
                continue
            plain[field.name] = to_plain(item)
        return plain
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], plain: Any) -> T:
    """Build ``kind`` from what `to_plain` made; unknown fields are ignored.

    Raises
    ------
    FormatError
        If a field is missing or is not of its declared type.
    """
    return typing.cast(T, _build(kind, plain, kind.__name__))


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build(kind: Any, plain: Any, path: str) -> Any:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if kind is Any:
        return plain
    if origin in (types.UnionType, typing.Union):
        if plain is None:
            return None
        return _build(next(a for a in arguments if a is not type(None)), plain, path)
    if origin is typing.Literal:
        if plain not in arguments:
            raise FormatError(f"{path} is {plain!r}, not one of {', '.join(map(str, arguments))}")
        return plain
    if origin in (tuple, list):
        if not isinstance(plain, list):
            raise FormatError(f"{path} is not a list")
        return origin(_build(arguments[0], item, path) for item in plain)
    if origin is dict:
        if not isinstance(plain, dict):
            raise FormatError(f"{path} is not an object")
        return {
            _key(arguments[0], key, path): _build(arguments[1], value, path)
            for key, value in plain.items()
        }
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(typing.cast(type, kind), plain, path)
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if not isinstance(plain, kind):
        raise FormatError(f"{path} is {plain!r}, not {kind.__name__}")
    return plain


def _build_dataclass(kind: type, plain: Any, path: str) -> Any:
    if not isinstance(plain, dict):
        raise FormatError(f"{path} is not an object")
    hints = _hints(kind)
    values = {
        field.name: _build(hints[field.name], plain[field.name], f"{path}.{field.name}")
        for field in dataclasses.fields(kind)
        if field.name in plain
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise FormatError(f"{path}: {error}") from error


def _key(kind: Any, key: str, path: str) -> Any:
    try:
        return int(key) if kind is int else key
    except ValueError as error:
        raise FormatError(f"{path} has the key {key!r}, which is no number") from error
