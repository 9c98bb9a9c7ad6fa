"""The trace of a rank: its calls to other ranks as a tree, and the events between them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Literal

from .values import (
    DIFFERS,
    Condition,
    Group,
    Handle,
    HeldElsewhere,
    InFlight,
    LibraryObject,
    Marks,
    Value,
)

#: How a block of statements ends: by this statement, or empty if it runs to its end.
Ending = Literal["", "return", "break", "continue", "raise"]
#: Steps of an optimizer are recorded as calls on this group. They do not communicate, but ranks
#: that step differently hold different models.
OPTIMIZER_STEPS = Group(-3)
#: Messages are recorded as calls on this group.
MESSAGES = Group(-2)


# -- the tree of calls ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupCall:
    """A call that other ranks have to make too, or a message to one of them.

    Attributes
    ----------
    op, line
        The function that is called, and the line of the call.
    group
        The group; None for the group of all ranks.
    root, reduce_op, peer, tag
        Arguments, if they are known.
    tensor
        The source of the tensor argument.
    around
        The conditions and loops around it, outermost first.
    """

    op: str
    line: int
    group: Group | None = None
    root: object = None
    reduce_op: str = ""
    tensor: str = ""
    around: tuple[Condition, ...] = ()
    peer: object = None
    tag: object = 0

    @property
    def differing(self) -> tuple[Condition, ...]:
        """The conditions around it that may differ between ranks, outermost first."""
        return tuple(one for one in self.around if one.marks & DIFFERS)


@dataclass(frozen=True, slots=True)
class Leave:
    """A statement that leaves a function or a loop, on one path of a choice."""

    how: Ending
    line: int


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception that is certainly raised, and that is caught at this line."""

    line: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Two paths of which one is taken; the source does not show which.

    ``vague`` is True if the condition tests whether something is a member of something unknown.
    """

    line: int
    marks: Marks
    paths: tuple[tuple[Item, ...], tuple[Item, ...]]
    vague: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop whose number of iterations is large or not known."""

    line: int
    marks: Marks
    body: tuple[Item, ...]
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """A function, an iteration or a whole loop that some path leaves early by ``how``."""

    line: int
    body: tuple[Item, ...]
    how: Ending = "return"


Item = GroupCall | Leave | Caught | Choice | Loop | Body


def calls(items: Iterable[Item]) -> Iterator[GroupCall]:
    """All calls, in the order of the source."""
    for item in items:
        match item:
            case GroupCall():
                yield item
            case Choice(paths=paths):
                for path in paths:
                    yield from calls(path)
            case Loop(body=body) | Body(body=body):
                yield from calls(body)


def first_call(items: Iterable[Item]) -> GroupCall | None:
    """The first call; None if there is no call."""
    return next(calls(items), None)


def on_group(items: Iterable[Item], group: Group | None) -> list[Item]:
    """The tree without the calls of other groups."""
    kept: list[Item] = []
    for item in items:
        match item:
            case GroupCall():
                kept += [item] if item.group == group else []
            case Choice(paths=(one, other)):
                paths = tuple(on_group(one, group)), tuple(on_group(other, group))
                kept.append(replace(item, paths=paths))
            case Loop() | Body():
                kept.append(replace(item, body=tuple(on_group(item.body, group))))
            case _:
                kept.append(item)
    return kept


def leaves(items: Iterable[Item], how: Ending) -> bool:
    """Whether a path ends with ``return``, ``break`` or ``continue`` that leaves ``items``."""
    for item in items:
        match item:
            case Leave() if item.how == how:
                return True
            case Choice(paths=paths) if any(leaves(path, how) for path in paths):
                return True
            case Loop() if how == "return" and leaves(item.body, how):
                return True
            case Body() if item.how not in (how, "return") and leaves(item.body, how):
                return True
    return False


def bounded(items: Sequence[Item], line: int, how: Ending) -> Sequence[Item]:
    """``items`` as a body, if some path leaves it by ``how``."""
    return [Body(line, tuple(items), how)] if leaves(items, how) else items


# -- the tree without parts that make no difference to other ranks -------------------------------


def pruned(
    items: Sequence[Item], missed: frozenset[Ending] = frozenset[Ending]()
) -> tuple[Item, ...]:
    """The tree without choices that make no difference to other ranks.

    Parameters
    ----------
    missed
        Statements that would leave ``items`` and miss calls that come later.
    """
    kept: list[Item] = []
    for item in reversed(items):
        match item:
            case Leave(how=how):
                kept += [item] if how in missed else []
            case Choice():
                one, other = (pruned(path, missed) for path in _without_raise(item.paths))
                if list(map(_key, one)) == list(map(_key, other)):
                    kept += reversed(one)
                else:
                    kept.append(replace(item, paths=(one, other)))
            case Loop():
                if first_call(item.body):
                    again = frozenset[Ending]({"return", "break"})  # misses the next iteration
                    kept.append(replace(item, body=pruned(item.body, again)))
            case Body(how=how):
                inner = {one for one in missed if _passes(one, how)}
                body = pruned(item.body, frozenset(inner))
                kept += [replace(item, body=body)] if leaves(body, how) else reversed(body)
            case _:
                kept.append(item)
        if first_call([item]):
            missed = frozenset({"return", "break", "continue"})
    return tuple(reversed(kept))


def _passes(how: Ending, body: Ending) -> bool:
    """Whether a statement that leaves an inner body also leaves the code around it.

    A body for ``continue`` is an iteration, for ``break`` a loop, for ``return`` a function.
    """
    return {"return": body != "return", "break": body == "continue", "continue": body == "break"}[
        how
    ]


def _without_raise(
    paths: tuple[tuple[Item, ...], tuple[Item, ...]],
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Drop a path that ends with an exception: it does not leave other ranks waiting silently."""
    for path, other in (paths, paths[::-1]):
        if path and isinstance(path[-1], Leave) and path[-1].how == "raise":
            return other, other
    return paths


def _key(item: Item) -> tuple[object, ...]:
    """A key that is the same for two equal items."""
    match item:
        case GroupCall():
            return ("call", item.op, item.group)
        case Leave():
            return ("leave", item.how)
        case Choice():
            return ("choice", item.line, *(tuple(map(_key, path)) for path in item.paths))
        case Loop():
            return ("loop", item.line, *map(_key, item.body))
        case Body():
            return ("body", *map(_key, item.body))
        case Caught():
            return ("caught",)


# -- events and the trace of a rank --------------------------------------------------------------


class Kind(Enum):
    """What an event is."""

    GROUP_FORMED = auto()  #: values: the backend, and a table of all arguments
    GROUP_DESTROYED = auto()
    SUBGROUP_FORMED = auto()  #: values: a table of all arguments
    GROUP_CALL = auto()
    NOT_A_MEMBER = auto()  #: the rank calls ``op`` on a group that it is not in
    READ_IN_FLIGHT = auto()  #: ``text`` is read while the asynchronous call in ``about`` runs
    CHANGED_IN_FLIGHT = auto()  #: the same, changed
    READ_ELSEWHERE = auto()  #: ``text`` is read, and ``about`` names the rank that has the result;
    #: ``op`` is ``"unknown"`` if a function reads it whose source is not known
    HANDLER_SKIPS_CALL = auto()  #: an exception handler goes on without the call in ``about``
    HANDLER_CALLS = auto()  #: an exception handler makes the call in ``about``
    MADE = auto()  #: values: a `LibraryObject` of class ``op``
    CALLED = auto()  #: values: a model that is called
    INNER_MODULE_CALLED = auto()  #: values: a wrapper whose ``module`` is called
    WRAPPER_ATTRIBUTE = auto()  #: values: a wrapper that is asked for the attribute ``op``
    METHOD = auto()  #: values: the object whose method ``op`` is called, and the arguments
    MOVED = auto()  #: the same, for methods that move a model or a tensor to a device
    BACKWARD = auto()  #: values: the loss; ``op`` is ``"no_sync"`` inside such a context
    LOOP = auto()  #: values: what the loop iterates over, or its condition
    SHOWN = auto()  #: values: what is printed
    SAVED = auto()  #: values: the arguments of ``torch.save``
    LOADED = auto()  #: values: the arguments of ``torch.load``, with ``map_location`` last
    FILE_READ = auto()  #: values: the path; ``op`` is the function that reads it
    FILE_WRITTEN = auto()  #: values: the path
    FOLDER_MADE = auto()  #: values: the path, which must not exist
    SEEDED = auto()  #: values: the seed
    PROCESS_ENDED = auto()  #: by ``os._exit``
    UNKNOWN_CALL = auto()  #: a function is called whose source is not known, e.g. of another file


@dataclass(frozen=True, slots=True)
class Risk:
    """A call that an exception on one rank affects.

    Attributes
    ----------
    raises_at
        The line that may raise on one rank alone.
    op, line
        The call that this rank then misses or makes alone.
    sure
        False for an exception of the program's own, which may be raised on every rank.
    """

    raises_at: int
    op: str
    line: int
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a line.

    Attributes
    ----------
    kind, line
        What happens, and at which line.
    op
        The function, method or class that is called.
    values
        The values that it concerns; see `Kind`.
    text
        The expression that it concerns, as written.
    around
        The conditions and loops around it, outermost first.
    about
        What happened before to the value that it concerns.
    """

    kind: Kind
    line: int
    op: str = ""
    values: tuple[Value, ...] = ()
    text: str = ""
    around: tuple[Condition, ...] = ()
    about: InFlight | HeldElsewhere | Risk | None = None

    def held(self, position: int = 0) -> object:
        """The object that a value holds; None if the event has fewer values."""
        return self.values[position].value if position < len(self.values) else None

    @property
    def may_not_happen(self) -> bool:
        """Whether an unknown condition decides whether it happens."""
        return any(not one.sure and not one.loop for one in self.around)

    @property
    def loops(self) -> list[Condition]:
        """The loops around it, outermost first."""
        return [one for one in self.around if one.loop]


@dataclass(frozen=True, slots=True)
class Exit:
    """Where a rank left a loop or a function under a condition that differs between ranks.

    ``last_line`` is that of the function; 0 outside functions.
    """

    condition: Condition
    last_line: int = 0

    def misses(self, call: GroupCall) -> bool:
        """Whether the call, or a condition around it, is below the exit in the same function."""
        lines = (call.line, *(one.line for one in call.around))
        return any(self.condition.line < line <= self.last_line for line in lines)


@dataclass(slots=True)
class Trace:
    """The way of one rank through the program, or through one of its functions.

    Attributes
    ----------
    rank
        The rank.
    items
        Its calls to other ranks, as a tree.
    exits
        Where the rank left a loop or a function under a condition that differs between ranks.
    raised
        Whether it certainly ends with an exception.
    events
        The events, in the order in which they happen.
    objects
        Instances of libraries' classes: samplers, loaders, wrappers, optimizers.
    handles
        The handles of asynchronous collectives.
    """

    rank: int
    items: list[Item] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    raised: bool = False
    events: list[Event] = field(default_factory=list)
    objects: list[LibraryObject] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Event]:
        """All events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    def made(self, *kinds: str) -> list[LibraryObject]:
        """All instances of these classes of libraries."""
        return [one for one in self.objects if one.kind in kinds]


class Recorder:
    """Writes the trace of one rank."""

    def __init__(self, rank: int) -> None:
        self.restart(rank)

    def restart(self, rank: int) -> None:
        """Begin a new trace."""
        self.trace = Trace(rank)
        self.items: list[Item] = self.trace.items
        self.around: list[Condition] = []
        self.waited: set[int] = set()  # lines of asynchronous calls that have been waited for

    @property
    def unsure(self) -> bool:
        """Whether the statement that is followed now may not run."""
        return any(not one.sure for one in self.around)

    def event(
        self,
        kind: Kind,
        node: ast.AST,
        *values: Value,
        op: str = "",
        text: str = "",
        about: InFlight | HeldElsewhere | Risk | None = None,
    ) -> None:
        """Record an event at a node of the syntax tree."""
        line = getattr(node, "lineno", 0)
        around = tuple(self.around)
        self.trace.events.append(Event(kind, line, op, values, text, around, about))

    def call(self, call: GroupCall) -> None:
        """Record a call to other ranks."""
        call = replace(call, around=tuple(self.around))
        self.items.append(call)
        if call.group != MESSAGES:
            self.trace.events.append(Event(Kind.GROUP_CALL, call.line, call.op, around=call.around))

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Record nothing of what happens inside."""
        outer, self.trace = self.trace, Trace(self.trace.rank)
        around, self.around = self.around, []
        try:
            with self.aside():
                yield
        finally:
            self.trace, self.around = outer, around

    @contextmanager
    def under(
        self, line: int, branch: int, marks: Marks, *, loop: bool = False, sure: bool = True
    ) -> Iterator[None]:
        """Record what happens inside as under a condition or in a loop."""
        self.around.append(Condition(line, branch, marks, loop, sure))
        try:
            yield
        finally:
            self.around.pop()

    @contextmanager
    def aside(self) -> Iterator[list[Item]]:
        """Collect the calls made inside in a separate list."""
        outer, self.items = self.items, []
        try:
            yield self.items
        finally:
            self.items = outer
