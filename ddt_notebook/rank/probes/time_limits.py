"""Calls that raise after a short time limit, which the program expects and handles.

Ranks of WeNet and CosyVoice find in this way that one of them has no batches left: it does not come
to a `monitored_barrier`, and the others give up there after the limit of their group.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ...wire.records import Group
from .call_arguments import by_name
from .call_sites import CallSite

#: WeNet waits for 30 s and CosyVoice for 60 s, unless the user says otherwise.
_SHORT = timedelta(seconds=60)
#: What a handler names that catches the error of gloo's time limit.
_CAUGHT = frozenset({"RuntimeError", "Exception", "BaseException"})
#: Lines of which it is known whether a handler is around them.
_MOST_LINES = 256


class TimeLimits:
    """The short time limits of this process's groups."""

    def __init__(self) -> None:
        self._groups: dict[str, float] = {}
        #: By file and line, the source and whether a handler is around the line.
        self._handled: dict[tuple[str, int], tuple[list[str], bool]] = {}

    def noted(self, function: Any, recorded: Callable[..., Any], op: str) -> Callable[..., Any]:
        """What notes the time limit that a group is given as it is formed.

        Parameters
        ----------
        function, recorded
            The function of torch, and what is called in its place; it may change the limit.
        op
            Its name.
        """
        if op not in ("init_process_group", "new_group"):
            return recorded

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            limit = by_name(function, args, kwargs)[1].get("timeout")
            result = recorded(*args, **kwargs)
            self.formed(dist.group.WORLD if result is None else result, limit)
            return result

        return call

    def formed(self, group: Any, limit: Any) -> None:
        """Note the time limit that the program gave a group; None if it gave none."""
        if isinstance(group, dist.ProcessGroup):
            self._groups.pop(group.group_name, None)
            if _is_short(limit):
                self._groups[group.group_name] = limit.total_seconds()

    def __contains__(self, group: object) -> bool:
        return getattr(group, "group_name", None) in self._groups

    def forget(self) -> None:
        """Forget all groups."""
        self._groups.clear()

    def of(self, op: str, given: Mapping[str, Any], group: Group) -> float:
        """After how many seconds a call raises; 0 if that is not short.

        The limit of a `monitored_barrier` itself is that of the group's first rank only, which then
        ends it; the others wait for that rank as long as their group lets them.
        """
        if op == "monitored_barrier" and group.members[:1] == (dist.get_rank(),):
            limit = given.get("timeout")
            return float(limit.total_seconds()) if _is_short(limit) else 0.0
        return self._groups.get(group.name, 0.0)

    def is_handled(self, site: CallSite) -> bool:
        """Whether a handler in the function around a call goes on after the error of a limit."""
        file, line = site.file, site.line
        lines = linecache.getlines(file)
        known = self._handled.get((file, line))
        if known is not None and known[0] is lines:
            return known[1]
        handled = False
        with suppress(SyntaxError, ValueError, RecursionError):  # another source than ran
            handled = _is_handled(ast.parse("".join(lines)), line)
        if len(self._handled) >= _MOST_LINES:
            self._handled.clear()
        self._handled[file, line] = lines, handled
        return handled


def _is_short(limit: Any) -> bool:
    return isinstance(limit, timedelta) and timedelta() < limit <= _SHORT


def _is_handled(tree: ast.Module, line: int) -> bool:
    handled = False
    for node, part in _around(tree, line):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                handled = False
            case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers) if part == "body":
                handled = handled or any(map(_goes_on, handlers))
            case ast.With(items=items):
                handled = handled or any(_suppresses(item.context_expr) for item in items)
    return handled


def _around(tree: ast.Module, line: int) -> Iterator[tuple[ast.AST, str]]:
    """The blocks around a line, outermost first, each with the part of it that holds the line."""
    node: ast.AST | None = tree
    while node is not None:
        found = None
        for part, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else ():
                if _first_line(child) <= line <= _last_line(child):
                    found = child
                    yield node, part
                    break
            if found is not None:
                break
        node = found


def _first_line(node: Any) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return node.lineno if isinstance(node, (ast.stmt, ast.ExceptHandler)) else 1


def _last_line(node: Any) -> int:
    last = node.body[-1] if isinstance(node, ast.match_case) else node
    return (last.end_lineno or 0) if isinstance(last, (ast.stmt, ast.ExceptHandler)) else 0


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches the error and does not only raise it again."""
    if handler.type is not None and not _CAUGHT & set(_names(handler.type)):
        return False
    leaves = (ast.Return, ast.Continue, ast.Break)
    return not isinstance(handler.body[-1], ast.Raise) or any(
        isinstance(one, leaves) for one in ast.walk(handler)
    )


def _suppresses(context: ast.expr) -> bool:
    match context:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args):
            return any(_CAUGHT & set(_names(one)) for one in args)
    return False


def _names(types: ast.expr) -> Iterator[str]:
    """The names of one type, or of a tuple of them, without their modules."""
    for one in types.elts if isinstance(types, ast.Tuple) else [types]:
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
