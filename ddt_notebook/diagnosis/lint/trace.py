"""What a rank would do, as a tree: calls that concern other ranks, choices, and loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .values import DIFFERS, Group, Marks


@dataclass(frozen=True, slots=True)
class Around:
    """A choice or a loop around a call.

    Attributes
    ----------
    line, branch
        Where the condition or the loop stands, and which branch was taken.
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


@dataclass(frozen=True, slots=True)
class Issue:
    """One call that concerns other ranks."""

    op: str
    line: int
    group: Group | None = None
    root: object = None
    reduce_op: str = ""
    tensor: str = ""
    around: tuple[Around, ...] = ()
    peer: object = None
    tag: object = 0

    @property
    def conditions(self) -> tuple[Around, ...]:
        """What differs between ranks and decides whether it is issued, outermost first."""
        return tuple(around for around in self.around if around.marks & DIFFERS)


#: What a step of an optimizer is called; it concerns other ranks without a call to them.
STEP = "optimizer.step"
NOWHERE = Group(-3)


@dataclass(frozen=True, slots=True)
class Leave:
    """``return``, ``break`` or ``continue`` on one way of a choice."""

    how: str
    line: int


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception that was raised here for sure, and caught."""

    line: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Two ways, of which the source does not tell which is taken."""

    line: int
    marks: Marks
    ways: tuple[tuple[Item, ...], tuple[Item, ...]]
    vague: bool = False


@dataclass(frozen=True, slots=True)
class Rounds:
    """A loop whose number of rounds is not known, or large."""

    line: int
    marks: Marks
    body: tuple[Item, ...]
    rounds: object = None


@dataclass(frozen=True, slots=True)
class Inside:
    """The body of a function, or a round or all rounds of a loop, that is left on some way."""

    line: int
    body: tuple[Item, ...]
    how: str = "return"


Item = Issue | Leave | Caught | Choice | Rounds | Inside


@dataclass(slots=True)
class Decision:
    """A condition that differs between ranks, after which a loop or a function was left."""

    line: int
    marks: Marks


@dataclass(slots=True)
class Walk:
    """One rank's way through the program, or through one function of it."""

    rank: int
    items: list[Item] = field(default_factory=list)
    left: list[Decision] = field(default_factory=list)
    raised: bool = False


def issues(items: Iterable[Item]) -> Iterator[Issue]:
    """All calls, in the order of the source."""
    for item in items:
        if isinstance(item, Issue):
            yield item
        elif isinstance(item, Choice):
            for way in item.ways:
                yield from issues(way)
        elif isinstance(item, (Rounds, Inside)):
            yield from issues(item.body)


def has_issues(items: Iterable[Item]) -> bool:
    """Whether there is any call."""
    return next(issues(items), None) is not None


def key(item: Item) -> tuple[object, ...]:
    """What two equal items have in common, wherever they stand."""
    match item:
        case Issue():
            return ("issue", item.op, item.group)
        case Leave():
            return ("leave", item.how)
        case Choice():
            return ("choice", item.line, *(tuple(map(key, way)) for way in item.ways))
        case Rounds():
            return ("rounds", item.line, *map(key, item.body))
        case Inside():
            return ("inside", *map(key, item.body))
        case Caught():
            return ("caught",)


def _differ(ways: tuple[tuple[Item, ...], tuple[Item, ...]]) -> bool:
    one, other = ways
    return [key(item) for item in one] != [key(item) for item in other]


def leaves(items: Iterable[Item], how: str) -> bool:
    """Whether ``return``, ``break`` or ``continue`` is left over on some way."""
    for item in items:
        if isinstance(item, Leave) and item.how == how:
            return True
        if isinstance(item, Choice) and any(leaves(way, how) for way in item.ways):
            return True
        crossed = isinstance(item, Rounds) and how == "return"
        crossed = crossed or (isinstance(item, Inside) and item.how not in (how, "return"))
        if crossed and leaves(item.body, how):  # type: ignore[union-attr]
            return True
    return False


def _loud(ways: tuple[tuple[Item, ...], tuple[Item, ...]]) -> tuple[tuple[Item, ...], ...]:
    """A way that ends with an exception does not leave others waiting in silence."""
    for way, other in (ways, ways[::-1]):
        if way and isinstance(way[-1], Leave) and way[-1].how == "raise":
            return other, other
    return ways


@dataclass(frozen=True, slots=True)
class _After:
    """Whether calls follow that are missed by leaving in one of the three ways."""

    ret: bool = False
    brk: bool = False
    cont: bool = False

    def missed(self, how: str) -> bool:
        return {"return": self.ret, "break": self.brk, "continue": self.cont}.get(how, False)


def pruned(items: Iterable[Item], after: _After | None = None) -> tuple[Item, ...]:
    """The tree without choices that make no difference to other ranks."""
    kept: list[Item] = []
    after = after or _After()
    for item in reversed(list(items)):
        match item:
            case Leave(how=how):
                kept += [item] if after.missed(how) else []
            case Choice():
                kept += reversed(_pruned_choice(item, after))
            case Rounds():
                again = has_issues(item.body)
                body = pruned(item.body, _After(after.ret or again, again, False))
                kept += [Rounds(item.line, item.marks, body, item.rounds)] if again else []
            case Inside():
                kept += reversed(_pruned_inside(item, after))
            case _:
                kept.append(item)
        if has_issues([item]):
            after = _After(True, True, True)
    return tuple(reversed(kept))


def _pruned_choice(item: Choice, after: _After) -> Sequence[Item]:
    one, other = (pruned(way, after) for way in _loud(item.ways))
    if not _differ((one, other)):
        return one
    return [Choice(item.line, item.marks, (one, other), item.vague)]


def _pruned_inside(item: Inside, after: _After) -> Sequence[Item]:
    how = item.how
    inner = _After(
        after.ret and how != "return",
        after.brk and how == "continue",
        after.cont and how == "break",
    )
    body = pruned(item.body, inner)
    return [Inside(item.line, body, how)] if leaves(body, how) else body
