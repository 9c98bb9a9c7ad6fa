"""Reads the values of the names in a condition, without running any code of the user.

Only plain numbers, short texts, truth values, sizes of containers and scalars on the CPU are read.
Attributes are looked up in the instance's dictionary, so no property is called.
"""

from __future__ import annotations

import ast
import functools
import linecache
import types
from types import FrameType
from typing import Any

import torch

from ..model.expression_guards import ExpressionGuard, expression_guards
from .probes.frames import local_variables

_MOST_NAMES = 8
_MOST_CHARACTERS = 40
_CONTAINERS = (list, tuple, dict, set, frozenset, bytes, bytearray)
_MISSING = object()


def values_at(file: str, line: int, frame: FrameType) -> dict[str, str]:
    """The values of the names in the condition or loop at a line, as short texts.

    Parameters
    ----------
    file, line
        The line.
    frame
        The frame that runs it.
    """
    names = _names_of(file).get(line, ())
    if not names:
        return {}
    local, scope = local_variables(frame), frame.f_globals
    found = {}
    for path in names:
        value = local.get(path[0], _MISSING)
        if value is _MISSING:
            value = scope.get(path[0], _MISSING)
        for part in path[1:]:
            value = _attribute(value, part[1:]) if part[0] == "." else _item(value, part)
        text = _text(value)
        if text is not None:
            found["".join(path)] = text
    return found


@functools.lru_cache(maxsize=64)
def _names_of(file: str) -> dict[int, tuple[tuple[str, ...], ...]]:
    """For each line with a condition or a loop, the names that decide it: ``("self", ".best")``."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, tuple[tuple[str, ...], ...]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.Assert)):
            decides: ast.expr = node.test
        elif isinstance(node, ast.For):
            decides = node.iter
        elif isinstance(node, ast.Match):
            decides = node.subject
        else:
            continue
        for inner in range(node.lineno, (decides.end_lineno or node.lineno) + 1):
            found.setdefault(inner, _names_in(decides))
    for line, guards in guards_in(file).items():
        found.setdefault(line, _names_in(guards[0].test))
    return found


def _names_in(decides: ast.expr) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(filter(None, map(_path, _outermost(decides)))))[:_MOST_NAMES]


@functools.lru_cache(maxsize=64)
def guards_in(file: str) -> dict[int, list[ExpressionGuard]]:
    """The conditions inside expressions of a file, by the lines of the expressions."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[int, list[ExpressionGuard]] = {}
    for guard in expression_guards(tree):
        for line in range(guard.node.lineno, (guard.node.end_lineno or 0) + 1):
            found.setdefault(line, []).append(guard)
    return found


def forget_sources() -> None:
    """Read sources again: a cell with the same number may have another text now."""
    _names_of.cache_clear()
    guards_in.cache_clear()


def _outermost(node: ast.AST) -> list[ast.expr]:
    """The names, attributes and items in an expression, without the names of called functions."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and _path(node) is not None:
        return [node]
    inner = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        inner = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            inner.append(node.func.value)
    return [found for child in inner for found in _outermost(child)]


def _path(node: ast.AST) -> tuple[str, ...] | None:
    """``("self", ".best", "['loss']")`` for ``self.best['loss']``; None for other expressions."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(f".{node.attr}")
        elif isinstance(node.slice, ast.Constant) and type(node.slice.value) in (str, int):
            parts.append(f"[{node.slice.value!r}]")
        else:
            return None
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None


def _item(value: Any, part: str) -> object:
    """An item of a plain dictionary, list or tuple; no method of the user runs."""
    try:
        return value[ast.literal_eval(part)[0]] if type(value) in (dict, list, tuple) else _MISSING
    except (LookupError, TypeError):
        return _MISSING


def _attribute(value: object, name: str) -> object:
    """An attribute that is plain data of the instance or of its class; no descriptor runs."""
    if value is _MISSING or isinstance(value, types.ModuleType):
        return _MISSING
    for owner in type(value).__mro__:
        known = owner.__dict__.get(name, _MISSING)
        if isinstance(known, types.MemberDescriptorType):  # a slot
            try:
                return known.__get__(value)
            except AttributeError:
                return _MISSING
        if known is not _MISSING and hasattr(type(known), "__set__"):
            return _MISSING
    try:
        own = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        own = {}
    if type(own) is dict and name in own:
        return own[name]
    for owner in type(value).__mro__:
        known = owner.__dict__.get(name, _MISSING)
        if known is not _MISSING:
            return _MISSING if hasattr(type(known), "__get__") else known
    return _MISSING


def _text(value: Any) -> str | None:
    """A short text for a simple value; None for any other."""
    kind = type(value)
    if kind is float:
        return f"{value:.6g}"
    if kind in (bool, types.NoneType):
        return str(value)
    if kind is int:
        return str(value) if value.bit_length() < 64 else None
    if kind is str:
        return repr(value if len(value) <= _MOST_CHARACTERS else value[:_MOST_CHARACTERS] + "…")
    if kind in _CONTAINERS:
        return f"{len(value)} items"
    if kind is torch.Tensor and value.device.type == "cpu" and value.dim() == 0:
        try:
            return _text(value.detach().item())
        except RuntimeError:  # no data, as inside a transformation of functions
            return None
    return None
