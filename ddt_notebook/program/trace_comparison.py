"""Finds where traces of ranks differ, and the condition, loop or exit that makes them differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from .trace import (
    Body,
    Caught,
    Choice,
    GroupCall,
    Item,
    Loop,
    Trace,
    calls,
    first_call,
    leaves,
    on_group,
    pruned,
)
from .values import CLOCK, DIFFERS, ON_RANK, RANK, RANK_AND_MORE, Condition, Group, Marks


class Reason(Enum):
    """Why ranks make different calls."""

    RANK_CONDITION = auto()  #: a condition on the rank
    LOCAL_CONDITION = auto()  #: a condition on each rank's own data
    RANK_EXIT = auto()  #: a condition on the rank, under which a rank leaves a loop or function
    CLOCK_LOOP = auto()  #: a loop that each rank's own clock ends
    UNEVEN_LOOP = auto()  #: a loop whose number of iterations differs between ranks
    EXCEPTION_CAUGHT = auto()  #: an exception that one rank catches
    DIFFERENT_CALLS = auto()  #: two branches of a condition make different calls
    DIFFERENT_GROUPS = auto()  #: the same line uses different groups
    SWAPPED = auto()  #: the same calls on the same tensors, in a different order
    ROOT_DIFFERS = auto()
    REDUCE_OP_DIFFERS = auto()
    UNKNOWN = auto()  #: a rank makes fewer calls, and the source does not show why


@dataclass(frozen=True, slots=True)
class Divergence:
    """A call that not all ranks make, or that they make differently.

    Attributes
    ----------
    reason
        Why the ranks differ.
    op, line
        The call.
    decided_at
        Line of the condition or loop that makes them differ; 0 if it is not known.
    other, other_line
        What other ranks call or pass instead, and at which line.
    sure
        Whether the path to the call is certain.
    unsure_at
        Line of the innermost condition that is not known and that lies between the deciding
        condition and the call; 0 if there is none.
    """

    reason: Reason
    op: str
    line: int
    decided_at: int = 0
    other: str = ""
    other_line: int = 0
    sure: bool = True
    unsure_at: int = 0


def divergences(traces: Sequence[Trace], group: Group | None = None) -> Iterator[Divergence]:
    """All calls in which some ranks differ from the others.

    Parameters
    ----------
    traces
        One trace per rank.
    group
        The group whose calls are compared; None for the group of all ranks.
    """
    if any(trace.raised for trace in traces):
        return
    trees = [pruned(on_group(trace.items, group)) for trace in traces]
    for tree in trees:
        others = {call for other in trees if other is not tree for call in calls(other)}
        answers = {(call.op, call.line) for call in others if _on_rank(call)}
        yield from _within(tree, answers)
    for trace, tree in zip(traces[1:], trees[1:], strict=True):
        yield from _between(trees[0], tree, traces[0], trace)


# -- one rank: choices and loops that differ between ranks -----------------------------------------


def _within(
    items: Sequence[Item], answers: set[tuple[str, int]], following: GroupCall | None = None
) -> Iterator[Divergence]:
    """The divergences that the way of one rank shows.

    Parameters
    ----------
    answers
        Name and line of the calls that other ranks make under a condition on the rank.
    following
        The first call after the items.
    """
    for index, item in enumerate(items):
        after = first_call(items[index + 1 :]) or following
        match item:
            case Choice(marks=marks) if _differs(item, answers) and not item.vague:
                if not _makes_same_calls(item) and not _answered_below(item, items[index + 1 :]):
                    yield from _choice(item, after)
            case Choice(paths=paths):
                for path in paths:
                    yield from _within(path, answers, after)
            case Loop(marks=marks, body=body):
                call = first_call(body)
                if call is not None and marks & DIFFERS:
                    reason = _reason_of_loop(marks)
                    unsure_at = _unsure_at(call, item.line)
                    yield Divergence(
                        reason, call.op, call.line, item.line, sure=False, unsure_at=unsure_at
                    )
                else:
                    yield from _within(body, answers, call)
            case Body(body=body):
                yield from _within(body, answers, after)


def _on_rank(call: GroupCall) -> bool:
    """Whether a call is under a condition on the rank."""
    return any(one.marks & ON_RANK for one in call.around)


def _differs(item: Choice, answers: set[tuple[str, int]]) -> bool:
    """Whether a condition may differ between ranks, and other ranks make no call in return.

    In `if ready and rank != 0: barrier()` and `if ready and rank == 0: barrier()`, they do.
    """
    if item.marks & DIFFERS - {RANK_AND_MORE}:
        return True
    inside = [call for path in item.paths for call in calls(path)]
    answered = any(op == call.op and line != call.line for call in inside for op, line in answers)
    return RANK_AND_MORE in item.marks and bool(inside) and not answered


def _makes_same_calls(item: Choice) -> bool:
    """Whether both paths make the same kinds of calls."""
    one, other = ({call.op for call in calls(path)} for path in item.paths)
    return bool(one) and one == other


def _answered_below(item: Choice, rest: Sequence[Item]) -> bool:
    """Whether one path calls and leaves, and the other makes the same kinds of calls below."""
    for path, other in (item.paths, item.paths[::-1]):
        below = {call.op for call in calls([*other, *rest])}
        inside = {call.op for call in calls(path)}
        if inside and inside <= below and leaves(path, "return") and not leaves(other, "return"):
            return True
    return False


def _choice(item: Choice, after: GroupCall | None) -> Iterator[Divergence]:
    """A divergence by a condition with unknown value; ``after`` is the first call after it."""
    inside = first_call(item.paths[0]) or first_call(item.paths[1])
    call = inside or after
    if call is None:
        return
    if CLOCK in item.marks:
        reason = Reason.LOCAL_CONDITION if inside else Reason.CLOCK_LOOP
    elif item.marks & ON_RANK:
        reason = Reason.RANK_CONDITION if inside else Reason.RANK_EXIT
    else:
        reason = Reason.LOCAL_CONDITION
    unsure_at = _unsure_at(call, item.line) if inside else 0
    yield Divergence(reason, call.op, call.line, item.line, sure=False, unsure_at=unsure_at)


# -- two ranks: the first items in which they differ -----------------------------------------------


def _between(
    one: Sequence[Item], other: Sequence[Item], first: Trace, second: Trace
) -> Iterator[Divergence]:
    mine = [item for item in one if not isinstance(item, Caught)]
    theirs = [item for item in other if not isinstance(item, Caught)]
    swapped = _swapped(mine, theirs)
    if swapped is not None:
        yield swapped
        return
    for index in range(max(len(mine), len(theirs))):
        left = mine[index] if index < len(mine) else None
        right = theirs[index] if index < len(theirs) else None
        if left is None or right is None or not _alike(left, right):
            if not _may_agree(one, other):
                yield from _Difference(left, right, (one, other), (first, second)).divergence()
            return
        match left, right:
            case GroupCall(), GroupCall():
                extra = _extra(left, right, mine, theirs)
                if extra is not None:
                    yield extra
                    return
                yield from _arguments(left, right)
            case Choice(), Choice():
                for path, their_path in zip(left.paths, right.paths, strict=True):
                    yield from _between(path, their_path, first, second)
            case (Loop(body=body), Loop(body=their)) | (Body(body=body), Body(body=their)):
                yield from _between(body, their, first, second)


def _alike(left: Item, right: Item) -> bool:
    match left, right:
        case GroupCall(), GroupCall():
            return left.op == right.op
        case Loop(), Loop():
            counts = left.iterations, right.iterations
            return left.line == right.line and (None in counts or counts[0] == counts[1])
        case Choice(), Choice() if (
            left.line != right.line or RANK_AND_MORE in left.marks & right.marks
        ):
            # `if ready and rank != 0: barrier()`, then `if ready and rank == 0: barrier()`; or
            # `if ready: barrier()` in both branches of a condition on the rank.
            one, other = ([(call.op, call.group) for call in calls([x])] for x in (left, right))
            return one == other
    return type(left) is type(right) and left.line == right.line


def _swapped(mine: Sequence[Item], theirs: Sequence[Item]) -> Divergence | None:
    """A divergence if two branches make the same calls on the same tensors in different orders."""
    left = [item for item in mine if isinstance(item, GroupCall)]
    right = [item for item in theirs if isinstance(item, GroupCall)]
    if [call.op for call in left] != [call.op for call in right]:
        return None
    tensors = [call.tensor for call in left], [call.tensor for call in right]
    pairs = [sorted((call.op, call.tensor) for call in side) for side in (left, right)]
    if tensors[0] == tensors[1] or pairs[0] != pairs[1]:
        return None
    one, other = next(
        pair for pair in zip(left, right, strict=True) if pair[0].tensor != pair[1].tensor
    )
    if one.line == other.line or not one.differing:
        return None
    decided_at = one.differing[-1].line
    return Divergence(Reason.SWAPPED, one.op, one.line, decided_at, other.op, other.line)


def _extra(
    left: GroupCall, right: GroupCall, mine: Sequence[Item], theirs: Sequence[Item]
) -> Divergence | None:
    """A call under a condition that happens to match a call at another line of the other rank."""
    if left.line == right.line:
        return None
    many, their_many = (sum(1 for _ in calls(items)) for items in (mine, theirs))
    for call, other, more in ((left, right, many > their_many), (right, left, their_many > many)):
        if more and call.differing and not other.differing:
            return _conditional(call)
    return None


def _arguments(left: GroupCall, right: GroupCall) -> Iterator[Divergence]:
    if any(one.marks & DIFFERS and not one.sure for one in (*left.around, *right.around)):
        return
    for reason, mine, theirs in (
        (Reason.ROOT_DIFFERS, left.root, right.root),
        (Reason.REDUCE_OP_DIFFERS, left.reduce_op or None, right.reduce_op or None),
    ):
        if mine is not None and theirs is not None and mine != theirs:
            yield Divergence(reason, left.op, left.line, 0, str(theirs), right.line)


def _may_agree(one: Sequence[Item], other: Sequence[Item]) -> bool:
    """Whether a loop on one rank may make the same calls as several statements on the other."""
    mine, theirs = (
        {item.line for item in items if isinstance(item, Loop) and item.iterations is None}
        for items in (one, other)
    )
    if mine == theirs:
        return False  # no loop, or the same loops on both
    same_calls = {call.op for call in calls(one)} == {call.op for call in calls(other)}
    return same_calls and not all(
        isinstance(item, (GroupCall, Loop)) and item.line == match.line
        for item, match in zip(one, other, strict=False)
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    """The first items in which two ranks differ, the trees of these items, and the two traces."""

    left: Item | None
    right: Item | None
    trees: tuple[Sequence[Item], Sequence[Item]]
    traces: tuple[Trace, Trace]

    @property
    def calls(self) -> tuple[GroupCall | None, GroupCall | None]:
        """The next call of each rank."""
        return first_call([self.left] if self.left else []), first_call(
            [self.right] if self.right else []
        )

    @property
    def sides(self) -> Iterator[tuple[GroupCall, Sequence[Item], Trace]]:
        """The next call of each rank, with the tree and the trace of the other rank."""
        for call, other in zip(self.calls, (1, 0), strict=True):
            if call is not None:
                yield call, self.trees[other], self.traces[other]

    def divergence(self) -> Iterator[Divergence]:
        """The divergence with the best reason, if a reason is found."""
        for reason in (
            self._branches,
            self._groups,
            self._conditions,
            self._exits,
            self._unknown_condition,
            self._iterations,
            self._missing,
        ):
            found = reason()
            if found is not None:
                yield found
                return

    def _branches(self) -> Divergence | None:
        """A divergence if the two calls are in two branches of one condition."""
        mine, theirs = self.calls
        if mine is None or theirs is None:
            return None
        for one in mine.differing:
            for other in theirs.differing:
                if one.line == other.line and one.branch != other.branch and not one.loop:
                    return Divergence(
                        Reason.DIFFERENT_CALLS,
                        mine.op,
                        mine.line,
                        one.line,
                        theirs.op,
                        theirs.line,
                    )
        return None

    def _groups(self) -> Divergence | None:
        """A divergence if the same line uses a different group on the other rank."""
        for call, _, absent in self.sides:
            for other in calls(absent.items):
                if (other.line, other.op) == (call.line, call.op) and other.group is not None:
                    return Divergence(Reason.DIFFERENT_GROUPS, call.op, call.line)
        return None

    def _conditions(self) -> Divergence | None:
        return next((_conditional(call) for call, _, _ in self.sides if call.differing), None)

    def _exits(self) -> Divergence | None:
        """A divergence if the other rank catches an exception or exits a loop or function first."""
        for call, tree, absent in self.sides:
            caught = next((item for item in tree if isinstance(item, Caught)), None)
            if caught is not None:
                return Divergence(Reason.EXCEPTION_CAUGHT, call.op, call.line, caught.line)
            if absent.exits:
                near = [one for one in absent.exits if one.misses(call)]
                last = (near or absent.exits)[-1].condition
                reason = Reason.RANK_EXIT if RANK in last.marks else Reason.LOCAL_CONDITION
                return Divergence(reason, call.op, call.line, last.line)
        return None

    def _unknown_condition(self) -> Divergence | None:
        mine, theirs = self.calls
        for item in (self.left, self.right):
            if isinstance(item, Choice) and item.marks & ON_RANK:
                return next(_choice(item, mine or theirs), None)
        return None

    def _iterations(self) -> Divergence | None:
        mine, theirs = self.calls
        call, left, right = mine or theirs, self.left, self.right
        loops = isinstance(left, Loop) and isinstance(right, Loop)
        if call is None or not loops or left is None or right is None or left.line != right.line:
            return None
        return Divergence(Reason.UNEVEN_LOOP, call.op, call.line, left.line)

    def _missing(self) -> Divergence | None:
        mine, theirs = self.calls
        call = mine or theirs
        if call is None or (mine is not None and theirs is not None):
            return None
        return Divergence(Reason.UNKNOWN, call.op, call.line, sure=False)


def _conditional(call: GroupCall) -> Divergence:
    """The divergence for a call that some ranks miss because of a condition or loop around it."""
    inner = call.differing[-1]
    sure = all(around.sure for around in call.around)
    reason, unsure_at = _reason_of(inner), _unsure_at(call, inner.line)
    return Divergence(reason, call.op, call.line, inner.line, sure=sure, unsure_at=unsure_at)


def _unsure_at(call: GroupCall, decided_at: int) -> int:
    """Line of the innermost unknown condition around a call within the deciding one, or 0."""
    for around in reversed(call.around):
        if around.line == decided_at:
            break
        if not around.sure and not around.loop:
            return around.line
    return 0


def _reason_of(condition: Condition) -> Reason:
    if condition.loop:
        return _reason_of_loop(condition.marks)
    return Reason.RANK_CONDITION if condition.marks & ON_RANK else Reason.LOCAL_CONDITION


def _reason_of_loop(marks: Marks) -> Reason:
    return Reason.CLOCK_LOOP if CLOCK in marks else Reason.UNEVEN_LOOP
