"""Methods and contexts of torch and other libraries, as far as they concern other ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from . import builtin, names
from .collectives import data_marks
from .expressions import SIZES
from .imported import Imported
from .shape import written
from .trace import NOWHERE, STEP, Issue, Item, has_issues, issues
from .values import (
    ANYTHING,
    LOCAL,
    PENDING,
    RANK,
    SENDING,
    STALE,
    UNKNOWN,
    Foreign,
    Function,
    Handle,
    Items,
    Object,
    Scope,
    Symbol,
    Value,
)

_WAITS = frozenset({"wait", "is_completed", "synchronize", "result", "wait_all"})
_WITHOUT_GRADIENT = frozenset({"no_grad", "inference_mode"})
_MOVES = frozenset({"to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16"})
_LONGEST = 64  #: elements of a list that is followed
_FACTORIES = frozenset({"prepare", "setup", "setup_dataloaders", "initialize"})


class Library(Imported):
    """Knows the methods and contexts of objects from elsewhere."""

    # -- methods -----------------------------------------------------------------------------------

    def call_method(
        self,
        receiver: Value,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        assert isinstance(node.func, ast.Attribute)
        name, held = node.func.attr, receiver.value
        if name == "backward":
            self._backward(node, receiver)
            return Value(None)
        if name in _WAITS:
            self._wait(held)
        if name in names.RANK_CALLS:
            return Value(self.rank, frozenset({RANK}))
        if name in names.FIRST and not args:
            return Value(self.rank == 0, frozenset({RANK}))
        kind = held.kind if isinstance(held, Foreign) else ""
        if name in names.FOREIGN_METHODS or name in names.ENGINES.get(kind, ()):
            self.issue(Issue(name, node.lineno))
            return ANYTHING
        if isinstance(held, Items):
            return self._list_method(held, name, args, receiver)
        if name in _MOVES and isinstance(held, (Foreign, Object)):
            self.note("moved", node, receiver, *args, text=name)
            return receiver
        if name in _FACTORIES:
            return ANYTHING
        parts = name in ("parameters", "state_dict", "named_parameters") and not args
        if parts and isinstance(held, (Foreign, Object)):
            return Value(Foreign(name, node.lineno, (receiver,)))
        if isinstance(held, Foreign):
            self.note(f".{name}", node, receiver, *args, text=written(node.func.value))
            held.facts[name] = True
            if name == "step" and str(held.facts.get("path", "")).startswith("torch.optim."):
                self.issue(Issue(STEP, node.lineno, NOWHERE))
            return Value(Symbol(name)) if name == "no_sync" else Value(UNKNOWN, data_marks(args))
        return self._unknown_method(receiver, node.func, args, scope)

    def _unknown_method(
        self, receiver: Value, node: ast.Attribute, args: list[Value], scope: Scope
    ) -> Value:
        """A method of something unknown, most often of a tensor."""
        name = node.attr
        if name in ("cuda", "to"):
            self.note("moved", node, receiver, *args, text=name)
        elif name in ("load_state_dict", "state_dict", "step", "set_epoch", "no_sync", "join"):
            self.note(f".{name}", node, receiver, *args, text=written(node.value))
        if name.endswith("_") and not name.startswith("_"):
            self.changes(receiver, node)
            self.set_marks(node.value, data_marks([receiver, *args]), scope)
        else:
            self.use(node.value, scope)
        if name in SIZES:
            return ANYTHING
        kept = {mark for mark in receiver.marks if mark.startswith(STALE)}
        return Value(UNKNOWN, data_marks([receiver, *args]) | kept)

    @staticmethod
    def _list_method(held: Items, name: str, args: list[Value], receiver: Value) -> Value:
        if name == "append" and held.items is not None and args and len(held.items) < _LONGEST:
            held.items.append(args[0])
            return Value(None)
        if name in ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"):
            held.items = None
        return Value(UNKNOWN, receiver.marks)

    def _wait(self, held: object) -> None:
        """A handle is waited for; if it is not known which, it may be any."""
        chosen = [held] if isinstance(held, Handle) else [*self.facts.handles, *self.sent]
        for handle in chosen:
            if handle.scope is None or handle.name is None:
                continue
            bound = handle.scope.get(handle.name)
            pending = (PENDING, SENDING)
            if bound is not None and any(mark.startswith(pending) for mark in bound.marks):
                handle.scope.names[handle.name] = Value(UNKNOWN)

    def _backward(self, node: ast.Call, receiver: Value) -> None:
        self.note("backward", node, receiver, text="no_sync" if self.no_sync else "")
        if self.wrapped and not self.no_sync:
            self.issue(Issue("backward", node.lineno))

    def call_wrapper(self, wrapper: Value, node: ast.Call) -> Value:
        held = wrapper.value
        assert isinstance(held, Foreign)
        held.facts["called"] = True
        if held.kind == "FullyShardedDataParallel" or _has_buffers(held.argument("module", 0)):
            self.issue(Issue("forward", node.lineno))
        own = not self.no_gradient and not held.facts.get("eval")
        return Value(UNKNOWN, frozenset({LOCAL}) if own else frozenset())

    # -- contexts, loops, exceptions ---------------------------------------------------------------

    @contextmanager
    def context(self, item: ast.withitem, scope: Scope) -> Iterator[Function | None]:
        """Enter what stands behind ``with``; a function of the program is handed back."""
        expression = item.context_expr
        name = ""
        if isinstance(expression, ast.Call):
            target = expression.func
            name = getattr(target, "attr", getattr(target, "id", ""))
        counter = {"no_sync": "no_sync", "join": "joined", "Join": "joined"}.get(name)
        if name in _WITHOUT_GRADIENT:
            counter = "no_gradient"
        if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name):
            bound = scope.get(expression.func.id)
            if bound is not None and isinstance(bound.value, Function):
                yield bound.value
                return
        value = self.eval(expression, scope)
        if isinstance(value.value, Symbol) and value.value.path == "no_sync":
            counter = "no_sync"
        if item.optional_vars is not None:
            self.assign(item.optional_vars, value, scope)
        if counter is None:
            yield None
            return
        setattr(self, counter, getattr(self, counter) + 1)
        try:
            yield None
        finally:
            setattr(self, counter, getattr(self, counter) - 1)

    @contextmanager
    def decorated(self, node: ast.AST) -> Iterator[None]:
        """The body of a function runs without gradients if a decorator says so."""
        quiet = any(
            name in written(decorator)
            for decorator in getattr(node, "decorator_list", [])
            for name in _WITHOUT_GRADIENT
        )
        self.no_gradient += quiet
        try:
            yield
        finally:
            self.no_gradient -= quiet

    def rounds_of(self, value: Value) -> object:
        """How many rounds a loop makes, if it is known."""
        loader = value.value
        if not isinstance(loader, Foreign) or loader.kind != "DataLoader":
            return builtin.length(value).value
        data, size = loader.argument("dataset", 0), loader.argument("batch_size", 1)
        given = data.value if data is not None else None
        if not isinstance(given, Foreign) or given.kind != "Subset" or _has_sampler(loader):
            return UNKNOWN
        chosen = given.argument("indices", 1)
        many = builtin.length(chosen).value if chosen is not None else UNKNOWN
        each = size.value if size is not None else 1
        if not isinstance(many, int) or not isinstance(each, int) or each < 1:
            return UNKNOWN
        dropped = loader.argument("drop_last")
        if dropped is not None and dropped.value is not False:
            return many // each if dropped.value is True else UNKNOWN
        return -(-many // each)

    @staticmethod
    def batch_of(loader: Foreign) -> Value:
        """An element of somebody else's iterable."""
        sampler = loader.argument("sampler")
        own = sampler is not None and getattr(sampler.value, "kind", "") == "DistributedSampler"
        return Value(UNKNOWN, frozenset({LOCAL}) if own else frozenset())

    def caught(
        self,
        node: ast.Try,
        handler: ast.ExceptHandler,
        calls: Sequence[Item],
        tried: Sequence[Item],
        ended: str,
    ) -> None:
        """Note what an exception on one rank alone would do to the others."""
        inside = [item for item in issues(tried) if _in_world(item)]
        answer = [item for item in issues(calls) if _in_world(item)]
        risk = _risk(node, {issue.line for issue in inside})
        if risk is None or ended == "raise" or (has_issues(calls) and len(inside) == len(answer)):
            return
        if answer and not inside:
            self.note("handler issues", handler, text=f"{answer[0].line}\0{answer[0].op}\0{risk}")
        elif inside and not answer and any(issue.line >= risk for issue in inside):
            first = next(issue for issue in inside if issue.line >= risk)
            if any(around.loop for around in self.around):
                self.note("swallowed", handler, text=f"{first.line}\0{first.op}\0{risk}")


def _has_sampler(loader: Foreign) -> bool:
    return any(loader.argument(name) is not None for name in ("sampler", "batch_sampler"))


def _has_buffers(model: Value | None) -> bool:
    """Whether a model is known to have buffers, which the wrapper sends around."""
    held = model.value if model is not None else None
    if isinstance(held, Object):
        return re.search(r"BatchNorm|register_buffer", written(held.of.node)) is not None
    if isinstance(held, Foreign):
        return "BatchNorm" in held.kind or any(map(_has_buffers, held.args))
    return False


def _in_world(issue: Issue) -> bool:
    return issue.group is None and issue.op != "init_process_group"


def _risk(node: ast.Try, known: set[int]) -> int | None:
    """The first line in a ``try`` that may well raise on one rank alone: it calls something."""
    harmless = {"print", "len", "range", "int", "float", "str", "append", "info", "debug", "item"}
    raising = {
        inner
        for statement in node.body
        for raised in ast.walk(statement)
        if isinstance(raised, ast.Raise)
        for inner in ast.walk(raised)
    }
    for statement in node.body:
        for inner in ast.walk(statement):
            if not isinstance(inner, ast.Call) or inner.lineno in known or inner in raising:
                continue
            text = written(inner.func)
            last = text.rpartition(".")[2]
            if last in harmless or text.startswith(("torch.", "dist.", "time.")):
                continue
            return inner.lineno
    return None
