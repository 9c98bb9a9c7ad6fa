"""Functions of the program: what they are given, and what they hand back."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator

from . import names
from .library import Library
from .shape import is_generator
from .trace import Inside, Item, leaves
from .values import ANYTHING, RANK, Class, Function, Object, Scope, Value, join

_DEPTH = 16


class Functions(Library):
    """Follows calls into the functions of the program."""

    def __init__(self, rank: int, world: int, ready: bool = True) -> None:
        super().__init__(rank, world, ready)
        self.called: set[ast.AST] = set()
        self.frames: list[tuple[ast.AST, list[Value]]] = []
        self.raised = False  # by the function that was just called

    @abstractmethod
    def block(self, statements: list[ast.stmt], scope: Scope) -> str:
        """Follow statements one after the other."""

    def call_function(
        self,
        function: Function,
        args: list[Value],
        keywords: dict[str, Value],
        *,
        as_context: bool = False,
    ) -> Value:
        node = function.node
        self.called.add(node)
        if len(self.frames) >= _DEPTH or any(f[0] is node for f in self.frames):
            return ANYTHING
        if self._only_first(node) and self.rank != 0:
            return ANYTHING
        own = function.owner
        given = [Value(own), *args] if own is not None and not _is_static(node) else args
        scope = Scope(self._bound(node, given, keywords, function.scope), function.scope)
        if isinstance(node, ast.Lambda):
            return self.eval(node.body, scope)
        if is_generator(node) and not as_context:
            return ANYTHING
        returned: list[Value] = []
        self.frames.append((node, returned))
        outer_hooks = self.hooks
        if not as_context:
            self.hooks = []
        with self.aside() as calls, self.decorated(node):
            self.raised = self.block(node.body, scope) == "raise"
        self.hooks = outer_hooks
        self.frames.pop()
        self.out += scoped(calls, node.lineno, "return")
        result = returned[0] if returned else Value(None)
        for other in returned[1:]:
            result = join(result, other)
        return result

    def _only_first(self, node: ast.AST) -> bool:
        decorators = getattr(node, "decorator_list", [])
        found = {getattr(d, "attr", getattr(d, "id", "")) for d in decorators}
        return bool(found & names.FIRST_ONLY)

    def _bound(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> dict[str, Value]:
        spec = node.args
        parameters = [*spec.posonlyargs, *spec.args]
        bound: dict[str, Value] = {}
        defaults = dict(
            zip([p.arg for p in parameters[len(parameters) - len(spec.defaults) :]], spec.defaults,
                strict=True)
        )  # fmt: skip
        for only, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if default is not None:
                defaults[only.arg] = default
        for parameter, value in zip(parameters, args, strict=False):
            bound[parameter.arg] = value
        for parameter in (*parameters, *spec.kwonlyargs):
            name = parameter.arg
            if name in keywords:
                bound[name] = keywords[name]
            elif name not in bound:
                if name in defaults:
                    bound[name] = self.eval(defaults[name], scope)
                else:
                    own = Value(self.rank, frozenset({RANK}))
                    bound[name] = own if name in names.RANKS else ANYTHING
        for rest in (spec.vararg, spec.kwarg):
            if rest is not None:
                bound[rest.arg] = ANYTHING
        return bound

    def entries(self, scope: Scope) -> Iterator[Function]:
        """Functions and methods that nothing has called."""
        for value in list(scope.names.values()):
            held = value.value
            if isinstance(held, Function) and held.node not in self.called:
                yield held
            elif isinstance(held, Class):
                made = None
                for method in held.node.body:
                    if isinstance(method, ast.FunctionDef) and method not in self.called:
                        if method.name == "__init__":
                            continue
                        if made is None:
                            made = Object(held)
                            constructor = held.method("__init__")
                            if constructor is not None:
                                with self.aside():
                                    self.call_function(
                                        Function(constructor, held.scope, made), [], {}
                                    )
                        yield Function(method, held.scope, made)


def scoped(calls: list[Item], line: int, how: str) -> list[Item]:
    """Calls of a function or loop that may be left early on some way."""
    return [Inside(line, tuple(calls), how)] if leaves(calls, how) else calls


def _is_static(node: ast.AST) -> bool:
    return any(getattr(d, "id", "") == "staticmethod" for d in getattr(node, "decorator_list", []))
