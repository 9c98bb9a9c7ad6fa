"""What a variable may hold, as far as the source of a program shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from . import names


class Source(Enum):
    """Why a value may differ between ranks."""

    RANK = "the rank"
    CLOCK = "a clock"
    LOCAL = "the data, the machine or the process of each rank"
    OTHER_RANK = "the number of a rank that a loop goes through, not the rank's own number"
    UNREAD = "a function whose source has not been read"
    RANK_AND_MORE = "the rank, and something that is not known and is the same on every rank"
    MEASURED = "how well a model does on the data of each rank; the value is LOCAL, too"
    DEVICE = "which GPU the rank uses; data on it is not different for that reason"


RANK, CLOCK, LOCAL, OTHER_RANK, UNREAD, RANK_AND_MORE, MEASURED, DEVICE = Source


@dataclass(frozen=True, slots=True)
class InFlight:
    """A tensor that an asynchronous call still uses.

    Attributes
    ----------
    op, line
        The call.
    name
        The variable that holds the tensor.
    sending
        True for a message: the tensor may be read but must not be changed.
    """

    op: str
    line: int
    name: str
    sending: bool = False


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """A tensor whose result another rank holds, after the ``reduce`` at a line.

    ``name`` is the tensor as the call of ``reduce`` writes it.
    """

    rank: int
    line: int
    name: str = ""


Mark = Source | InFlight | HeldElsewhere
Marks = frozenset[Mark]
NO_MARKS: Final[Marks] = frozenset()
DIFFERS: Final[Marks] = frozenset({RANK, CLOCK, LOCAL, RANK_AND_MORE})
ON_RANK: Final[Marks] = frozenset({RANK, RANK_AND_MORE})  #: What shows that the rank decides.


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()  #: Stands for a value that the source does not show.


@dataclass(frozen=True, slots=True)
class Value:
    """A value, as far as it is known, with marks for what it depends on."""

    value: object = UNKNOWN
    marks: Marks = NO_MARKS

    @property
    def known(self) -> bool:
        return self.value is not UNKNOWN

    @property
    def differs(self) -> bool:
        """Whether it may differ between ranks."""
        return bool(self.marks & DIFFERS)

    def marked(self, marks: Iterable[Mark]) -> Value:
        """The same value with further marks."""
        return Value(self.value, self.marks | frozenset(marks))


ANYTHING: Final = Value()


@dataclass(slots=True)
class Items:
    """A list, tuple or set; ``items`` is None if it has changed in an unknown way."""

    items: list[Value] | None


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported object, by its full name: ``torch.distributed.all_reduce``."""

    path: str


@dataclass(slots=True, eq=False)
class Namespace:
    """An object of a library whose attributes the program reads and sets, such as options.

    ``attributes`` holds those that the program has set.
    """

    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessEnds:
    """The value of a call that ends the process: ``sys.exit`` (orderly), or ``os._exit``."""

    orderly: bool


@dataclass(slots=True)
class Scope:
    """The variables of a function or of the module."""

    names: dict[str, Value] = field(default_factory=dict)
    parent: Scope | None = None

    def owner(self, name: str) -> Scope | None:
        """The nearest scope, from here outwards, that binds a name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope

    def get(self, name: str) -> Value | None:
        """The value bound to a name here or in an enclosing scope."""
        owner = self.owner(name)
        return owner.names[name] if owner is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the program; ``owner`` is the object whose method it is."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    owner: Instance | None = None


@dataclass(slots=True, eq=False)
class Class:
    """A class of the program.

    ``bases`` are the full names of its base classes in libraries, ``parents`` its base classes in
    the program.
    """

    node: ast.ClassDef
    scope: Scope
    bases: tuple[str, ...] = ()
    parents: tuple[Class, ...] = ()

    def method(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """A method of the class or of its base classes."""
        for statement in self.node.body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name == name:
                    return statement
        found = (parent.method(name) for parent in self.parents)
        return next((method for method in found if method is not None), None)

    def derives_from(self, *names: str) -> bool:
        """Whether a base class in a library has one of these names."""
        return any(base.rpartition(".")[2] in names for base in self.bases) or any(
            parent.derives_from(*names) for parent in self.parents
        )


@dataclass(slots=True, eq=False)
class Instance:
    """An instance of a class of the program."""

    of: Class
    attributes: dict[str, Value] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition or a loop around a call.

    Attributes
    ----------
    line, branch
        The line of the condition, and the branch that was taken.
    marks
        What the condition depends on.
    loop
        True for a loop.
    sure
        False if the condition could not be evaluated.
    """

    line: int
    branch: int
    marks: Marks
    loop: bool = False
    sure: bool = True


@dataclass(slots=True, eq=False)
class LibraryObject:
    """An instance of a class of a library, and what the program has done with it.

    Attributes
    ----------
    kind
        The last part of the full name of its class, or another name for what it is:
        ``"DataLoader"``, ``"state_dict"``.
    line
        The line that made it.
    path
        The full name of its class.
    args, keywords
        The arguments that it was made with.
    around
        The conditions and loops around the line.
    methods
        Names of the methods that were called on it; ``"__call__"`` for calls of the object itself.
    """

    kind: str
    line: int
    args: tuple[Value, ...] = ()
    keywords: dict[str, Value] = field(default_factory=dict)
    path: str = ""
    around: tuple[Condition, ...] = ()
    methods: set[str] = field(default_factory=set)

    def argument(self, name: str, position: int | None = None) -> Value | None:
        """An argument by its name or position; None if it was not given."""
        if name in self.keywords:
            return self.keywords[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None

    def given(self, name: str, position: int | None = None) -> object:
        """The value of an argument, as far as it is known; None if it was not given."""
        value = self.argument(name, position)
        return value.value if value is not None else None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of ranks that the program made; ``members`` is None if they are not known.

    ``number`` counts the groups that all ranks form together; it is 0 if only the members form it.
    """

    line: int
    members: tuple[int, ...] | None = None
    number: int = 0


UNKNOWN_GROUP: Final = Group(-1)


@dataclass(slots=True, eq=False)
class Handle:
    """The handle of an asynchronous call; ``name`` in ``scope`` is bound to its tensor."""

    op: str
    line: int
    name: str | None = None
    scope: Scope | None = None


def marks_of(values: Iterable[Value]) -> Marks:
    """All marks of several values."""
    return NO_MARKS.union(*(value.marks for value in values))


def as_data(marks: Marks) -> Marks:
    """The marks of a value that is computed from a value with these marks.

    A value computed from the rank is no longer the rank itself, but data of this rank.
    """
    kept = {
        mark
        for mark in marks
        if mark in (CLOCK, LOCAL, MEASURED) or isinstance(mark, HeldElsewhere)
    }
    return frozenset(kept | {LOCAL} if marks & ON_RANK else kept)


def computed_from(values: Iterable[Value]) -> Marks:
    """Marks of a tensor that is computed from these values, and from the elements of lists."""
    marks: Marks = NO_MARKS
    for value in values:
        items = value.value.items if isinstance(value.value, Items) else None
        marks |= value.marks | marks_of(items or ())
    return frozenset(mark for mark in as_data(marks) if isinstance(mark, Source))


def is_wrapper(value: object) -> bool:
    """Whether a value is a model wrapped for parallel training."""
    return isinstance(value, LibraryObject) and value.kind in names.WRAPPERS


def join(one: Value | None, other: Value | None) -> Value:
    """What is known about a value that may be either of two values."""
    if one is None or other is None:
        # Unbound on one path: if the program uses the name, it has taken the other path.
        return one or other or ANYTHING
    marks = one.marks | other.marks
    if one.value is other.value:
        return Value(one.value, marks)
    for value in (one.value, other.value):
        # In `if args.distributed: model = DDP(model)`, the wrapped model is the case of interest.
        if is_wrapper(value) or getattr(value, "kind", "") == "DistributedSampler":
            return Value(value, marks)
    simple = isinstance(one.value, (int, float, str, bool, tuple))
    if simple and type(one.value) is type(other.value) and one.value == other.value:
        return Value(one.value, marks)
    return Value(UNKNOWN, marks)
