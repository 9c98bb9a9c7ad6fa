"""What a variable may hold while a program is followed without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

#: Marks of a value that may differ between ranks, and why.
RANK: Final = "rank"
CLOCK: Final = "clock"
LOCAL: Final = "local"
#: Marks of a tensor that does not yet, or not on this rank, hold what a collective computes.
PENDING: Final = "pending"
STALE: Final = "stale"
#: Of one that is being sent: it may be read, not changed.
SENDING: Final = "sending"
#: Of the numbers of ranks that a loop goes through.
OTHER: Final = "other"
DIFFERS: Final = frozenset({RANK, CLOCK, LOCAL})

Marks = frozenset[str]
NO_MARKS: Final[Marks] = frozenset()


class _Unknown:
    """Stands for a value that the source does not tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, slots=True)
class Value:
    """A value, as far as it is known, and on what it depends."""

    value: object = UNKNOWN
    marks: Marks = NO_MARKS

    @property
    def known(self) -> bool:
        return self.value is not UNKNOWN

    def marked(self, *marks: str) -> Value:
        """The same, with further marks."""
        return Value(self.value, self.marks | set(marks))


ANYTHING: Final = Value()


@dataclass(slots=True)
class Items:
    """A list or tuple; ``items`` is None when it has changed in an unknown way."""

    items: list[Value] | None


@dataclass(frozen=True, slots=True)
class Symbol:
    """Something imported, by its full name: ``torch.distributed.all_reduce``."""

    path: str


@dataclass(slots=True)
class Scope:
    """The variables of a function or of the module."""

    names: dict[str, Value] = field(default_factory=dict)
    parent: Scope | None = None

    def get(self, name: str) -> Value | None:
        """What is bound to a name here or around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        return self if self.parent is None else self.parent.module


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the program itself."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    owner: Object | None = None


@dataclass(slots=True, eq=False)
class Class:
    """A class of the program itself, and the full names of its foreign bases."""

    node: ast.ClassDef
    scope: Scope
    bases: tuple[str, ...] = ()
    parents: tuple[Class, ...] = ()

    def method(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """A method of the class or of those it derives from."""
        for statement in self.node.body:
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if statement.name == name:
                return statement
        found = (parent.method(name) for parent in self.parents)
        return next((method for method in found if method is not None), None)

    def derives_from(self, *names: str) -> bool:
        """Whether one of its foreign bases has one of these names."""
        return any(base.rpartition(".")[2] in names for base in self.bases) or any(
            parent.derives_from(*names) for parent in self.parents
        )


@dataclass(slots=True, eq=False)
class Object:
    """An instance of a class of the program."""

    of: Class
    attributes: dict[str, Value] = field(default_factory=dict)
    line: int = 0


@dataclass(slots=True, eq=False)
class Foreign:
    """An instance of somebody else's class, with what it was made of.

    ``kind`` is the last part of the full name: ``"DataLoader"``.
    """

    kind: str
    line: int
    args: tuple[Value, ...] = ()
    keywords: dict[str, Value] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)

    def argument(self, name: str, position: int | None = None) -> Value | None:
        """An argument by its name or position."""
        if name in self.keywords:
            return self.keywords[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of ranks that the program made; ``members`` is None when they are not known."""

    line: int
    members: tuple[int, ...] | None = None
    number: int = 0


@dataclass(slots=True, eq=False)
class Handle:
    """What an asynchronous call returns."""

    op: str
    line: int
    name: str | None = None
    scope: Scope | None = None


def marks_of(values: Iterable[Value]) -> Marks:
    """All marks of several values."""
    found: Marks = NO_MARKS
    for value in values:
        found |= value.marks
    return found


def is_wrapper(value: object) -> bool:
    """Whether it is a model wrapped for parallel training."""
    return isinstance(value, Foreign) and value.kind in WRAPPERS


WRAPPERS: Final = frozenset({"DistributedDataParallel", "FullyShardedDataParallel"})


def join(one: Value | None, other: Value | None) -> Value:
    """What is known when either may be the case."""
    if one is None or other is None:
        # The name is unbound on one way: the program means the other.
        return one or other or ANYTHING
    marks = one.marks | other.marks
    if one.value is other.value:
        return Value(one.value, marks)
    for value in (one.value, other.value):
        # `if args.distributed: model = DDP(model)`: the case of interest.
        if is_wrapper(value):
            return Value(value, marks)
    simple = isinstance(one.value, (int, float, str, bool, tuple))
    if simple and type(one.value) is type(other.value) and one.value == other.value:
        return Value(one.value, marks)
    return Value(UNKNOWN, marks)
