"""Why ranks part: the condition, the loop or the early exit that sends them different ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .trace import Around, Caught, Choice, Issue, Item, Rounds, Walk, issues
from .values import CLOCK, RANK, Marks


@dataclass(frozen=True, slots=True)
class Parting:
    """One place at which ranks part.

    Attributes
    ----------
    cause
        Id of a fault card.
    line
        Of the call that not all ranks make, or make differently.
    op
        That call.
    why
        Line of the condition or loop that parts the ranks, 0 if none is known.
    other
        What other ranks call instead.
    other_line
        And where.
    sure
        Whether the way to it is certain.
    """

    cause: str
    line: int
    op: str
    why: int = 0
    other: str = ""
    other_line: int = 0
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Apart:
    """The first items in which two ranks differ, what they are part of, and the two ranks."""

    left: Item | None
    right: Item | None
    trees: tuple[Sequence[Item], Sequence[Item]]
    walks: tuple[Walk, Walk]

    @property
    def calls(self) -> tuple[Issue | None, Issue | None]:
        """The next call of each."""
        return _first(self.left), _first(self.right)

    @property
    def sides(self) -> Iterator[tuple[Issue, Sequence[Item], Walk]]:
        """For each call: what the other rank does instead, and that rank."""
        mine, theirs = self.calls
        if mine is not None:
            yield mine, self.trees[1], self.walks[1]
        if theirs is not None:
            yield theirs, self.trees[0], self.walks[0]


def _first(item: Item | None) -> Issue | None:
    return next(issues([item]), None) if item is not None else None


def blame(apart: Apart) -> Iterator[Parting]:
    """The best reason there is, if there is any."""
    for reason in (_branches, _groups, _conditions, _exits, _unknown, _rounds, _missing):
        found = reason(apart)
        if found is not None:
            yield found
            return


def _branches(apart: Apart) -> Parting | None:
    """Two branches of one condition make two calls."""
    mine, theirs = apart.calls
    if mine is None or theirs is None:
        return None
    for one in mine.conditions:
        for other in theirs.conditions:
            if one.line == other.line and one.branch != other.branch and not one.loop:
                return Parting(
                    "different-collectives", mine.line, mine.op, one.line, theirs.op, theirs.line
                )
    return None


def _groups(apart: Apart) -> Parting | None:
    """The same line uses another group on the other rank."""
    for call, _, absent in apart.sides:
        for issue in issues(absent.items):
            if issue.line == call.line and issue.op == call.op and issue.group is not None:
                return Parting("different-groups", call.line, call.op)
    return None


def _conditions(apart: Apart) -> Parting | None:
    for call, _, _ in apart.sides:
        if call.conditions:
            return conditional(call)
    return None


def conditional(call: Issue) -> Parting:
    """A call that a condition or loop around it keeps from some ranks."""
    inner = call.conditions[-1]
    sure = all(around.sure for around in call.around)
    return Parting(_cause_of(inner), call.line, call.op, inner.line, sure=sure)


def _cause_of(around: Around) -> str:
    if around.loop:
        return "loop-ends-by-clock" if CLOCK in around.marks else "uneven-iterations"
    return _condition_on(around.marks)


def _condition_on(marks: Marks) -> str:
    on_rank = RANK in marks
    return "collective-under-rank-condition" if on_rank else "collective-under-local-condition"


def _exits(apart: Apart) -> Parting | None:
    """The other rank has caught an exception, or left a loop or function, before the call."""
    for call, tree, absent in apart.sides:
        caught = next((item for item in tree if isinstance(item, Caught)), None)
        if caught is not None:
            return Parting("exception-swallowed", call.line, call.op, caught.line)
        if absent.left:
            last = absent.left[-1]
            on_rank = RANK in last.marks
            cause = "early-exit-on-rank-condition" if on_rank else _condition_on(last.marks)
            return Parting(cause, call.line, call.op, last.line)
    return None


def _unknown(apart: Apart) -> Parting | None:
    mine, theirs = apart.calls
    for item in (apart.left, apart.right):
        if isinstance(item, Choice) and RANK in item.marks:
            return next(choice(item, mine or theirs), None)
    return None


def choice(item: Choice, after: Issue | None) -> Iterator[Parting]:
    """A condition that is not known, and comes out differently on each rank."""
    calls = [next(issues(way), None) for way in item.ways]
    call = calls[0] or calls[1]
    leaves = call is None
    call = call or after
    if call is None:
        return
    if CLOCK in item.marks:
        cause = "loop-ends-by-clock" if leaves else "collective-under-local-condition"
    elif RANK in item.marks and leaves:
        cause = "early-exit-on-rank-condition"
    else:
        cause = _condition_on(item.marks)
    yield Parting(cause, call.line, call.op, item.line, sure=False)


def loop(item: Rounds, call: Issue) -> Parting:
    """A loop that ends differently on each rank."""
    cause = "loop-ends-by-clock" if CLOCK in item.marks else "uneven-iterations"
    return Parting(cause, call.line, call.op, item.line, sure=False)


def _rounds(apart: Apart) -> Parting | None:
    mine, theirs = apart.calls
    call, left, right = mine or theirs, apart.left, apart.right
    if call is None or not isinstance(left, Rounds) or not isinstance(right, Rounds):
        return None
    if left.line != right.line:
        return None
    return Parting("uneven-iterations", call.line, call.op, left.line)


def _missing(apart: Apart) -> Parting | None:
    mine, theirs = apart.calls
    call = mine or theirs
    if call is None or (mine is not None and theirs is not None):
        return None
    return Parting("rank-skips-collective", call.line, call.op, sure=False)
