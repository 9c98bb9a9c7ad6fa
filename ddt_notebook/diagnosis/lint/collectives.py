"""Collectives and messages: what a rank issues, and what its tensors hold afterwards."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from . import builtin, names
from .calls import Calls
from .facts import Event
from .shape import written
from .trace import Issue
from .values import (
    ANYTHING,
    CLOCK,
    LOCAL,
    PENDING,
    RANK,
    SENDING,
    STALE,
    UNKNOWN,
    Foreign,
    Group,
    Handle,
    Items,
    Object,
    Scope,
    Symbol,
    Value,
    marks_of,
)


class Collectives(Calls):
    """Knows what is called by all ranks together."""

    def __init__(self, rank: int, world: int, ready: bool = True) -> None:
        super().__init__(rank, world)
        self.joined = 0  # inside a context in which ranks may have uneven inputs
        self.no_sync = 0
        self.no_gradient = 0
        self.groups = 0
        self.sent: list[Handle] = []
        self.wrapped = False
        self.ready = ready  # whether the process group exists

    def own_rank(self, args: list[Value], keywords: dict[str, Value]) -> Value:
        group = keywords.get("group", args[0] if args else Value(None)).value
        if group is None:
            return Value(self.rank, frozenset({RANK}))
        if isinstance(group, Group) and group.members is not None:
            inside = self.rank in group.members
            number = group.members.index(self.rank) if inside else -1
            return Value(number, frozenset({RANK}))
        return Value(UNKNOWN, frozenset({RANK}))

    def size(self, args: list[Value]) -> Value:
        group = args[0].value if args else None
        if group is None:
            return Value(self.world)
        if isinstance(group, Group) and group.members is not None:
            return Value(len(group.members))
        return ANYTHING

    @staticmethod
    def is_foreign_collective(path: str) -> bool:
        tail = path.rpartition(".")[2]
        if "horovod" in path:
            return f"hvd.{tail}" in names.FOREIGN
        owner = ".".join(path.split(".")[-2:])
        return path.startswith(names.DIST) and owner in names.FOREIGN

    def issue(self, issue: Issue) -> None:
        if not self.joined:
            self.out.append(replace(issue, around=tuple(self.around)))
            self.facts.events.append(Event("issue", issue.line, (), issue.op, tuple(self.around)))

    def collective(
        self, op: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        given = dict(zip(names.COLLECTIVES[op], args, strict=False)) | keywords
        if op == "init_process_group":
            self.note("init", node, given.get("backend", ANYTHING), Value(given))
            self.ready = True
        if op == "new_group":
            return self._new_group(node, given, keywords)
        group = given.get("group", Value(None)).value
        where = group if isinstance(group, Group) else Group(-1) if group is not None else None
        if isinstance(group, Symbol):
            where = None  # dist.group.WORLD
        if group is UNKNOWN and "group" in given and not given["group"].marks:
            where = Group(-1)
        root = given.get("src", given.get("dst"))
        reduce_op = given.get("op", ANYTHING).value
        position = _position(names.COLLECTIVES[op], "tensor")
        expression = _expression(node, "tensor", position)
        text = written(expression) if expression is not None else ""
        self.issue(
            Issue(
                op,
                node.lineno,
                where,
                root.value if root is not None and root.known else None,
                reduce_op.path.rpartition(".")[2] if isinstance(reduce_op, Symbol) else "",
                text,
            )
        )
        if where is not None and where.members is not None and self.rank not in where.members:
            self.note("stranger", node, Value(where), text=op)
        self._settle(op, node, given, scope, where)
        if builtin.truth(given.get("async_op", Value(False))):
            return self._handle(op, node, expression, scope)
        return Value(UNKNOWN) if op == "init_device_mesh" else Value(None)

    def _settle(
        self,
        op: str,
        node: ast.Call,
        given: dict[str, Value],
        scope: Scope,
        group: Group | None,
    ) -> None:
        """What the tensors hold afterwards."""
        if op in names.AGREEING:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                self.set_marks(argument, frozenset(), scope)
                value = self.eval(argument, scope) if isinstance(argument, ast.Name) else ANYTHING
                if isinstance(value.value, Items) and value.value.items is not None:
                    value.value.items = None
        target = given.get("dst", Value(0) if op == "reduce" else None)
        if op == "reduce" and target is not None and isinstance(target.value, int) and not group:
            mark = f"{STALE}\0{node.lineno}\0{target.value}"
            marks = frozenset({mark}) if target.value != self.rank else frozenset()
            if node.args:
                self.set_marks(node.args[0], marks, scope)

    def set_marks(self, node: ast.expr, marks: frozenset[str], scope: Scope) -> None:
        if isinstance(node, ast.Name):
            bound = scope.get(node.id)
            if bound is not None and isinstance(bound.value, (Symbol, Group, Foreign, Object)):
                return
            held = bound.value if bound is not None and isinstance(bound.value, Items) else UNKNOWN
            around: Scope | None = scope
            while around is not None and node.id not in around.names:
                around = around.parent
            (around or scope).names[node.id] = Value(held, marks)
        elif isinstance(node, ast.Attribute):
            owner = self.eval(node.value, scope).value
            if isinstance(owner, Object):
                owner.attributes[node.attr] = Value(UNKNOWN, marks)

    def _handle(self, op: str, node: ast.Call, expression: ast.expr | None, scope: Scope) -> Value:
        made = Handle(op, node.lineno)
        self.facts.handles.append(made)
        if isinstance(expression, ast.Name) and op in ("all_reduce", "broadcast"):
            made.name, made.scope = expression.id, scope
            mark = f"{PENDING}\0{node.lineno}\0{op}\0{expression.id}"
            self.set_marks(expression, frozenset({mark}), scope)
        return Value(made)

    def _new_group(
        self, node: ast.Call, given: dict[str, Value], keywords: dict[str, Value]
    ) -> Value:
        alone = builtin.truth(keywords.get("use_local_synchronization", Value(False)))
        ranks = given.get("ranks", Value(None))
        items = builtin.iterate(ranks)
        members: tuple[int, ...] | None = None
        if items is not None and all(isinstance(one.value, int) for one in items):
            members = tuple(one.value for one in items if isinstance(one.value, int))
        elif ranks.value is None:
            members = tuple(range(self.world))
        self.groups += 1
        if not alone:
            self.issue(Issue("new_group", node.lineno, tensor=written(node)))
        if "timeout" not in given:
            self.note("new_group without timeout", node)
        return Value(Group(node.lineno, members, 0 if alone else self.groups))

    def message(
        self,
        op: str,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        given = dict(zip(names.MESSAGES[op], args, strict=False)) | keywords
        expression = _expression(node, "tensor", 0)
        peer = given.get("dst", given.get("src", Value(None)))
        tag = given.get("tag", Value(0))
        self.out.append(
            Issue(op, node.lineno, Group(-2), peer=peer.value, tag=tag.value,
                  around=tuple(self.around))
        )  # fmt: skip
        for value in given.values():
            if isinstance(value.value, Items) and op.startswith("recv"):
                value.value.items = None
        if op == "isend" and isinstance(expression, ast.Name):
            made = Handle(op, node.lineno, expression.id, scope)
            self.sent.append(made)
            mark = f"{SENDING}\0{node.lineno}\0{op}\0{expression.id}"
            self.set_marks(expression, frozenset({mark}), scope)
            return Value(made)
        return ANYTHING


def data_marks(values: Sequence[Value]) -> frozenset[str]:
    """Marks of a tensor that is computed from these values."""
    inner = [
        item
        for value in values
        if isinstance(value.value, Items)
        for item in value.value.items or ()
    ]
    marks = marks_of([*values, *inner])
    own = {LOCAL} if marks & {LOCAL, RANK} else set()
    return frozenset(own | (marks & {CLOCK}))


def _position(parameters: tuple[str, ...], name: str) -> int | None:
    return parameters.index(name) if name in parameters else None


def _expression(node: ast.Call, name: str, position: int | None) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(node.args):
        return node.args[position]
    return None
