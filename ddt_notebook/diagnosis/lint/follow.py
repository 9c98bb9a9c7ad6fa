"""Choices: one rank's way through the branches of a program."""

from __future__ import annotations

import ast

from . import builtin
from .loops import Loops
from .shape import written
from .trace import Caught, Choice, Decision, Item, Leave
from .values import ANYTHING, DIFFERS, LOCAL, NO_MARKS, Scope, Value, join

#: What comes on every rank alike, or from the user.
_EXPECTED = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "KeyboardInterrupt", "SystemExit",
     "StopIteration", "KeyError", "NotImplementedError"}
)  # fmt: skip


class Follower(Loops):
    """Follows one rank's way through a program."""

    def _do_if(self, node: ast.If, scope: Scope) -> str:
        test = self.see(node.test, scope)
        holds = builtin.truth(test)
        if holds is not None:
            branch = node.body if holds else node.orelse
            with self.within(node.lineno, int(not holds), test.marks):
                ended = self.block(branch, scope)
            leaves = ended in ("return", "break", "continue") or (ended and self.ended)
            if leaves and test.marks & DIFFERS:
                self.walk.left.append(Decision(node.lineno, test.marks))
            return ended
        return self._either(node, test, [node.body, node.orelse], scope)

    def _either(
        self, node: ast.stmt, test: Value, bodies: list[list[ast.stmt]], scope: Scope
    ) -> str:
        ways, ends, after = [], [], []
        ended_before = self.ended
        before = dict(scope.names)
        for number, body in enumerate(bodies):
            scope.names = dict(before)
            with self.aside() as calls:
                with self.within(node.lineno, number, test.marks, sure=False):
                    ended = self.block(body, scope)
            if ended:
                line = body[-1].lineno if body else node.lineno
                calls.append(Leave(ended, line))
            self.ended = ended_before
            ways.append(tuple(calls))
            ends.append(ended)
            after.append(scope.names)
        vague = isinstance(node, ast.If) and _is_membership(node.test)
        self.out.append(Choice(node.lineno, test.marks, (ways[0], ways[1]), vague))
        if all(ends):
            scope.names = before
            return ends[0] if ends[0] == ends[1] else "return"
        if any(ends):
            scope.names = after[ends.index("")]
        else:
            scope.names = {
                name: join(after[0].get(name), after[1].get(name))
                for name in {**after[0], **after[1]}
            }
        return ""

    def _do_match(self, node: ast.Match, scope: Scope) -> str:
        test = self.see(node.subject, scope)
        cases = [case.body for case in node.cases]
        for case, body in zip(node.cases, cases, strict=True):
            if isinstance(case.pattern, ast.MatchValue) and test.known:
                same = builtin.compare(ast.Eq(), test, self.eval(case.pattern.value, scope))
                if builtin.truth(same):
                    with self.within(case.pattern.lineno, 0, test.marks):
                        return self.block(body, scope)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                if not test.known or case.guard is not None:
                    continue
                with self.within(case.pattern.lineno, 1, test.marks):
                    return self.block(body, scope)
        if test.known or not cases:
            return ""
        return self._either(node, test, [cases[0], cases[1] if len(cases) > 1 else []], scope)

    def _do_return(self, node: ast.Return, scope: Scope) -> str:
        value = self.eval(node.value, scope)
        if self.frames:
            self.frames[-1][1].append(self._implied(value))
        return "return"

    def _do_break(self, node: ast.Break, scope: Scope) -> str:
        return "break"

    def _do_continue(self, node: ast.Continue, scope: Scope) -> str:
        return "continue"

    def _do_raise(self, node: ast.Raise, scope: Scope) -> str:
        self.eval(node.exc, scope)
        return "raise"

    # -- with and try -----------------------------------------------------------------------------

    def _do_with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> str:
        ended = ""

        def inner(items: list[ast.withitem]) -> None:
            nonlocal ended
            if not items:
                ended = self.block(node.body, scope)
                return
            first, *others = items
            with self.context(first, scope) as generator:
                if generator is None:
                    inner(others)
                    return
                self.hooks.append(lambda: inner(others))
                try:
                    self.call_function(generator, [], {}, as_context=True)
                finally:
                    self.hooks.pop()

        inner(node.items)
        return ended

    _do_asyncwith = _do_with

    def _do_try(self, node: ast.Try, scope: Scope) -> str:
        before = dict(scope.names)
        first = len(self.out)
        ended = self.block(node.body, scope)
        handlers = [handler for handler in node.handlers if not _is_expected(handler)]
        if ended == "raise" and node.handlers and not self.ended:
            self.out.append(Caught(node.lineno))
            ended = self.block(node.handlers[0].body, scope)
        else:
            tried = tuple(self.out[first:])
            for handler in handlers:
                self._handler(node, handler, tried, before, scope)
            if not ended:
                ended = self.block(node.orelse, scope)
        return self.block(node.finalbody, scope) or ended

    _do_trystar = _do_try

    def _handler(
        self,
        node: ast.Try,
        handler: ast.ExceptHandler,
        tried: tuple[Item, ...],
        before: dict[str, Value],
        scope: Scope,
    ) -> None:
        after, scope.names = scope.names, dict(before)
        # In a loop over data, what such an exception decides is decided on one rank alone.
        own = _is_of_data(handler) and any(around.loop for around in self.around)
        marks = frozenset({LOCAL}) if own else NO_MARKS
        if handler.name:
            scope.names[handler.name] = ANYTHING
        hooks, self.hooks = self.hooks, []
        with self.aside() as calls:
            with self.within(handler.lineno, 1, marks, sure=False):
                ended = self.block(handler.body, scope)
        self.hooks = hooks
        self.caught(node, handler, calls, tried, ended)
        if not ended:
            scope.names = {
                name: join(after.get(name), scope.names.get(name))
                for name in {**scope.names, **after}
            }
        else:
            scope.names = after


def _is_membership(test: ast.expr) -> bool:
    """Whether it asks if something is one of several that are not known."""
    return any(
        isinstance(sign, (ast.In, ast.NotIn))
        for node in ast.walk(test)
        if isinstance(node, ast.Compare)
        for sign in node.ops
    )


def _is_of_data(handler: ast.ExceptHandler) -> bool:
    """Whether it catches what one batch or one file may raise."""
    text = written(handler.type) if handler.type is not None else ""
    return any(kind in text for kind in ("RuntimeError", "OutOfMemory", "OSError", "MemoryError"))


def _is_expected(handler: ast.ExceptHandler) -> bool:
    """Whether it catches what comes on every rank alike, or from the user."""
    if handler.type is None:
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(written(kind).rpartition(".")[2] in _EXPECTED for kind in kinds)
