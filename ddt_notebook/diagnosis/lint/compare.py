"""Where ranks part: calls that some of them make and others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .blame import Apart, Parting, blame, choice, conditional, loop
from .trace import Caught, Choice, Inside, Issue, Item, Rounds, Walk, issues, pruned
from .values import DIFFERS, Group


def partings(walks: Sequence[Walk], group: Group | None = None) -> Iterator[Parting]:
    """All places at which some of several ranks part from the others.

    Parameters
    ----------
    walks
        One for each rank.
    group
        Whose calls are looked at; None stands for those of all ranks.
    """
    if any(walk.raised for walk in walks):
        return
    trees = [pruned(_shared(walk.items, group)) for walk in walks]
    for walk, tree in zip(walks, trees, strict=True):
        yield from _unknown_ways(tree, walk)
    first = walks[0]
    for walk, tree in zip(walks[1:], trees[1:], strict=True):
        yield from _sequence(trees[0], tree, first, walk)


def _shared(items: Sequence[Item], group: Group | None) -> list[Item]:
    """Without the calls of other groups."""
    kept: list[Item] = []
    for item in items:
        match item:
            case Issue():
                if item.group == group:
                    kept.append(item)
            case Choice():
                one, other = (tuple(_shared(way, group)) for way in item.ways)
                kept.append(Choice(item.line, item.marks, (one, other), item.vague))
            case Rounds():
                kept.append(
                    Rounds(item.line, item.marks, tuple(_shared(item.body, group)), item.rounds)
                )
            case Inside():
                kept.append(Inside(item.line, tuple(_shared(item.body, group)), item.how))
            case _:
                kept.append(item)
    return kept


# -- ways that are not known, on one rank ---------------------------------------------------------


def _unknown_ways(
    items: Sequence[Item], walk: Walk, following: Issue | None = None
) -> Iterator[Parting]:
    """Choices and loops that come out differently on each rank by what they depend on."""
    for index, item in enumerate(items):
        after = next(issues(items[index + 1 :]), following)
        match item:
            case Choice():
                if item.marks & DIFFERS and not item.vague:
                    if not _same_calls(item):
                        yield from choice(item, after)
                else:
                    for way in item.ways:
                        yield from _unknown_ways(way, walk, after)
            case Rounds():
                call = next(issues(item.body), None)
                if call is not None and item.marks & DIFFERS:
                    yield loop(item, call)
                else:
                    yield from _unknown_ways(item.body, walk, call)
            case Inside():
                yield from _unknown_ways(item.body, walk, after)


# -- two ranks side by side -----------------------------------------------------------------------


def _sequence(
    one: Sequence[Item], other: Sequence[Item], first: Walk, second: Walk
) -> Iterator[Parting]:
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
                yield from blame(Apart(left, right, (one, other), (first, second)))
            return
        if isinstance(left, Issue) and isinstance(right, Issue):
            extra = _extra(left, right, mine, theirs)
            if extra is not None:
                yield extra
                return
            yield from _arguments(left, right)
        elif isinstance(left, Choice) and isinstance(right, Choice):
            for mine_way, their_way in zip(left.ways, right.ways, strict=True):
                yield from _sequence(mine_way, their_way, first, second)
        elif (isinstance(left, Rounds) and isinstance(right, Rounds)) or (
            isinstance(left, Inside) and isinstance(right, Inside)
        ):
            yield from _sequence(left.body, right.body, first, second)


def _alike(left: Item, right: Item) -> bool:
    if isinstance(left, Issue) and isinstance(right, Issue):
        return left.op == right.op
    if isinstance(left, Rounds) and isinstance(right, Rounds):
        counts = left.rounds, right.rounds
        return left.line == right.line and (None in counts or counts[0] == counts[1])
    return type(left) is type(right) and getattr(left, "line", 0) == getattr(right, "line", 0)


def _swapped(mine: Sequence[Item], theirs: Sequence[Item]) -> Parting | None:
    """The same calls on the same tensors in another order, in two branches on the rank."""
    calls = [[item for item in items if isinstance(item, Issue)] for items in (mine, theirs)]
    if not calls[0] or len(calls[0]) != len(calls[1]):
        return None
    texts = [[(issue.op, issue.tensor) for issue in side] for side in calls]
    if texts[0] == texts[1] or sorted(texts[0]) != sorted(texts[1]):
        return None
    if [op for op, _ in texts[0]] != [op for op, _ in texts[1]]:
        return None
    at = next(i for i, (a, b) in enumerate(zip(*texts, strict=True)) if a != b)
    left, right = calls[0][at], calls[1][at]
    if left.line == right.line or not left.conditions:
        return None
    return Parting(
        "swapped-collectives", left.line, left.op, left.conditions[-1].line, right.op, right.line
    )


def _same_calls(item: Choice) -> bool:
    """Whether both ways make the same kinds of calls: the senders here, the receivers there."""
    one, other = ({issue.op for issue in issues(way)} for way in item.ways)
    return bool(one) and one == other


def _extra(
    left: Issue, right: Issue, mine: Sequence[Item], theirs: Sequence[Item]
) -> Parting | None:
    """A call under a condition that only happens to meet the same one of the other ranks."""
    if left.line == right.line:
        return None
    many = [sum(1 for _ in issues(items)) for items in (mine, theirs)]
    for call, other, more in ((left, right, many[0] > many[1]), (right, left, many[1] > many[0])):
        if more and call.conditions and not other.conditions:
            return conditional(call)
    return None


def _arguments(left: Issue, right: Issue) -> Iterator[Parting]:
    for around in (*left.around, *right.around):
        if around.marks & DIFFERS and not around.sure:
            return
    if left.root is not None and right.root is not None and left.root != right.root:
        yield Parting("root-differs", left.line, left.op, 0, f"rank {right.root}", right.line)
    if left.reduce_op and right.reduce_op and left.reduce_op != right.reduce_op:
        yield Parting("reduce-op-differs", left.line, left.op, 0, right.reduce_op, right.line)


def _may_agree(one: Sequence[Item], other: Sequence[Item]) -> bool:
    """Whether a loop on one side may stand for several calls on the other."""
    if not any(isinstance(item, Rounds) and item.rounds is None for item in (*one, *other)):
        return False
    return {issue.op for issue in issues(one)} == {issue.op for issue in issues(other)} and not all(
        isinstance(item, (Issue, Rounds)) and getattr(item, "line", 0) == getattr(match, "line", 0)
        for item, match in zip(one, other, strict=False)
    )
