"""Where the values that functions of the cells return are kept by their callers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import syntax
from .source import Sources
from .usage import FORMS, called_name, key, reads

#: Decorators that leave what a function returns as it is.
_PLAIN = frozenset({"no_grad", "inference_mode", "staticmethod", "classmethod"})
_DEPTH = 3

Part = int | str | None  #: position or key of one of several returned values, None for all


class Returned:
    """Finds them; only where they are surely what the function has returned on the same rank.

    Parameters
    ----------
    sources
        The cells.
    carriers
        Names of functions that may carry values from rank to rank.
    """

    def __init__(self, sources: Sources, carriers: frozenset[str]) -> None:
        self._sources, self._carriers = sources, carriers

    def receivers(
        self, function: ast.FunctionDef, part: Part, depth: int = 0
    ) -> Iterator[tuple[int, ast.stmt, str]]:
        """The assignments that keep a returned value: cell, statement and name of the value."""
        if depth > _DEPTH or not self._gives_back(function):
            return
        for cell, statement in self._sources.statements_calling(function.name):
            match statement:
                case (
                    ast.Assign(targets=[target], value=value)
                    | ast.AnnAssign(target=target, value=ast.expr() as value)
                ) if self._is_result(value, function, part):
                    name = self._kept(target, part)
                    if name is not None:
                        yield cell, statement, name
                case ast.Return(value=ast.expr() as value) if self._is_result(
                    value, function, part
                ):
                    outer = syntax.following(self._sources.trees[cell], statement)[1]
                    if outer is not None:
                        yield from self.receivers(outer, part, depth + 1)

    def prints(self, function: ast.FunctionDef, part: Part) -> Iterator[tuple[int, ast.stmt, str]]:
        """The statements that print a returned value at once: cell, statement and what it says."""
        if not self._gives_back(function) or any(map(self._sources.defines, ("print", "stdout"))):
            return
        for cell, statement in self._sources.statements_calling(function.name):
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=shown)) if any(
                    self._is_result(one, function, part) for one in shown
                ):
                    texts = (node for one in shown for node in ast.walk(one))
                    said = [str(n.value) for n in texts if isinstance(n, ast.Constant)]
                    yield cell, statement, " ".join(said)

    def _gives_back(self, function: ast.FunctionDef) -> bool:
        """Whether a call by this name surely gives what the function returns, of this rank."""
        name = function.name
        if name in self._carriers or self._sources.names.knows(name):
            return False
        return len(self._sources.functions[name]) == 1 and _decorators(function) <= _PLAIN

    def _is_result(self, value: ast.expr, function: ast.FunctionDef, part: Part) -> bool:
        """Whether an expression is what a function returns, or all of that in another form."""
        calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
        own = [call for call in calls if called_name(call) == function.name]
        if len(own) != 1 or isinstance(own[0].func, ast.Attribute) is not _is_method(function):
            return False
        if part is not None:
            return value is own[0]
        around = [call for call in calls if call is not own[0] and own[0] in ast.walk(call)]
        return not self._sources.names.reads_rank(value) and all(
            called_name(call) in FORMS - self._carriers for call in around
        )

    def _kept(self, target: ast.expr, part: Part) -> str | None:
        """Under which name an assignment keeps a part of a value."""
        if isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(one, ast.Starred) for one in target.elts)
            if not isinstance(part, int) or starred or part >= len(target.elts):
                return None
            return key(target.elts[part])
        whole = key(target)
        if whole is None or part is None:
            return whole
        return f"{whole}[{part!r}]" if self._read_by_items(whole) else None

    def _read_by_items(self, whole: str) -> bool:
        """Whether a collection is read item by item, so that nothing may change one unseen."""
        bare = items = 0
        for tree in self._sources.trees.values():
            for node in ast.walk(tree):
                if isinstance(getattr(node, "ctx", None), ast.Load) and key(node) == whole:
                    bare += 1
                if isinstance(node, ast.Subscript) and key(node.value) == whole:
                    items += isinstance(node.ctx, ast.Load) and key(node) is not None
        return bare == items


def parts(returned: ast.expr, keys: tuple[str, ...]) -> list[Part]:
    """Which of several returned values hold one of ``keys``."""
    match returned:
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return [at for at, value in enumerate(values) if reads(value, keys)]
        case ast.Dict(keys=names, values=values):
            return [
                name.value
                for name, value in zip(names, values, strict=True)
                if isinstance(name, ast.Constant)
                and isinstance(name.value, str)
                and reads(value, keys)
            ]
    return [None]


def _is_method(function: ast.FunctionDef) -> bool:
    first = [one.arg for one in function.args.args[:1]]
    return first in (["self"], ["cls"]) or "staticmethod" in _decorators(function)


def _decorators(function: ast.FunctionDef) -> set[str]:
    found = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return {str(getattr(one, "attr", getattr(one, "id", ""))) for one in found}
