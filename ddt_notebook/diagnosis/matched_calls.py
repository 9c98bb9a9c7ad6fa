"""Matches the calls of all ranks with each other; this yields facts, not yet a diagnosis.

Collectives are matched by group and sequence number; for messages see `matched_messages`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ddt_notebook.model import Call, Snapshot
from ddt_notebook.model.frameworks import meets_by_tensor
from ddt_notebook.model.named_tensors import JOIN, has_joined, tensor_of
from ddt_notebook.model.parity import minority
from ddt_notebook.model.position import Position

from .matched_messages import MessageMismatch, Single, match_messages
from .ways import Ways

Meetings = dict[int, dict[int, Call]]  #: of one group: sequence -> rank -> call


@dataclass(frozen=True, slots=True)
class Side:
    """Ranks that made the same call."""

    ranks: tuple[int, ...]
    call: Call


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One collective that its members entered with different calls.

    Attributes
    ----------
    sides
        The largest first.
    calls
        The call of each rank that entered.
    fields
        What differs, as `Call.differences` names it.
    later
        How many later collectives of the group disagree as well, from the same lines or because
        the ranks were out of step from this one on.
    ways
        Compares the ways of the calls.
    """

    group: str
    sequence: int
    sides: tuple[Side, ...]
    calls: dict[int, Call]
    fields: tuple[str, ...]
    later: int = 0
    ways: Ways = field(default_factory=Ways, repr=False, compare=False)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.calls))

    @property
    def out_of_step(self) -> bool:
        """Whether the ranks were at different lines, so that one of them left the common order.

        Ranks at one line of a helper may have called it from different lines.
        """
        first, *others = self.calls.values()
        return any(not self.ways.meet(first, call) for call in others)

    def place(self, call: Call) -> Position | None:
        """Where a rank was: at the line of its call, or at the one that led it there alone."""
        lines = (self.ways.apart(call, other) for other in self.calls.values())
        return next((at for at in lines if at is not None), call.where)

    @property
    def minority(self) -> tuple[int, ...]:
        """All ranks outside the largest side; all ranks if no side is the largest."""
        return tuple(minority(side.ranks for side in self.sides))


@dataclass(frozen=True, slots=True)
class Absence:
    """A collective that some members of the group never entered."""

    group: str
    sequence: int
    entered: dict[int, Call]
    absent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Swap:
    """Two collectives with the same form that two ranks issued in opposite order of lines."""

    group: str
    sequence: int
    ranks: tuple[int, int]
    calls: tuple[Call, Call]


@dataclass(frozen=True, slots=True)
class Matching:
    """What the call logs of all ranks show together.

    Attributes
    ----------
    collectives, groups, messages
        How many were seen.
    meetings
        The calls with which ranks entered each collective, by group.
    outsiders
        Calls on a group of which the caller is not a member.
    lone_messages
        Sends without a receive, and receives without a send.
    """

    collectives: int
    groups: int
    messages: int
    meetings: dict[str, Meetings]
    mismatches: tuple[Mismatch, ...]
    message_mismatches: tuple[MessageMismatch, ...]
    absences: tuple[Absence, ...]
    lone_messages: tuple[Single, ...]
    outsiders: tuple[Single, ...]
    swaps: tuple[Swap, ...]


def match(snapshot: Snapshot, ways: Ways | None = None) -> Matching:
    """Match the calls of all ranks of a snapshot; ``ways`` compares how they came to them."""
    ways = ways or Ways()
    by_group, outsiders = _meetings(snapshot)
    kept_whole = {report.rank: not report.calls_dropped for report in snapshot.ranks}
    by_tensor = meets_by_tensor(snapshot.framework)
    joined = {
        report.rank: [call for call in report.calls if call.op == JOIN]
        for report in (snapshot.ranks if by_tensor else ())
    }
    mismatches: list[Mismatch] = []
    absences: list[Absence] = []
    swaps: list[Swap] = []
    for group, meetings in sorted(by_group.items()):
        differing = _mismatches(group, meetings, ways)
        missing = _absences(group, meetings, snapshot, kept_whole, joined)
        if (differing or missing) and snapshot.outcome == "ok" and _any_failed(meetings):
            # The other ranks may never have seen a call that raised and was caught.
            reached = _without_failed(meetings)
            if not _mismatches(group, reached, ways) and not _absences(
                group, reached, snapshot, kept_whole, joined
            ):
                continue
        mismatches += differing
        absences += missing
        # a tensor is sent under its own name, whichever line comes first on a rank
        named = by_tensor and any(map(tensor_of, next(iter(meetings.values())).values()))
        if not differing and not missing and not named:
            swaps += _swaps(group, meetings)
    messages, message_mismatches, lone_messages = match_messages(snapshot.ranks)
    return Matching(
        collectives=sum(map(len, by_group.values())),
        groups=len(by_group),
        messages=messages,
        meetings=by_group,
        mismatches=tuple(_by_line(mismatches) if by_tensor else mismatches),
        message_mismatches=tuple(message_mismatches),
        absences=tuple(absences),
        lone_messages=tuple(lone_messages),
        outsiders=tuple(outsiders),
        swaps=tuple(swaps),
    )


def _meetings(snapshot: Snapshot) -> tuple[dict[str, Meetings], list[Single]]:
    by_group: dict[str, Meetings] = defaultdict(dict)
    outsiders = []
    sets: dict[int, frozenset[int]] = {}  # by the tuple that calls of one group share
    for report in snapshot.ranks:
        for call in report.calls:
            if call.kind != "collective":
                continue
            members = sets.get(id(call.members))
            if members is None:
                members = sets[id(call.members)] = frozenset(call.members)
            if call.sequence is None or (members and report.rank not in members):
                outsiders.append(Single(report.rank, call))
            else:
                by_group[call.group].setdefault(call.sequence, {})[report.rank] = call
    return by_group, outsiders


def _without_failed(meetings: Meetings) -> Meetings:
    """Return the same calls with new sequence numbers, without those that raised."""
    counts: Counter[int] = Counter()
    result: Meetings = {}
    for _, calls in sorted(meetings.items()):
        for rank, call in calls.items():
            if call.status != "failed":
                counts[rank] += 1
                result.setdefault(counts[rank], {})[rank] = call
    return result


def _any_failed(meetings: Meetings) -> bool:
    return any(call.status == "failed" for calls in meetings.values() for call in calls.values())


def _form(call: Call) -> tuple[object, ...]:
    return (call.op, call.reduce_op, call.root, call.shapes, call.dtypes, call.source)


def _mismatches(group: str, meetings: Meetings, ways: Ways) -> list[Mismatch]:
    found: dict[tuple[object, ...], Mismatch] = {}
    later: Counter[tuple[object, ...]] = Counter()
    known: dict[object, tuple[str, ...]] = {}
    key: tuple[object, ...] = ()
    out_of_step = False
    for sequence in sorted(meetings):
        mismatch = _mismatch(group, sequence, meetings[sequence], known)
        if mismatch is None:
            continue
        mismatch = replace(mismatch, ways=ways)
        if not out_of_step:
            key = (mismatch.fields, *(_place(side.call.where) for side in mismatch.sides))
        if key in found:
            later[key] += 1
            continue
        found[key] = mismatch
        # Different lines or operations: later mismatches are most likely consequences.
        out_of_step = mismatch.out_of_step or "op" in mismatch.fields
    return [replace(mismatch, later=later[key]) for key, mismatch in found.items()]


def _by_line(mismatches: list[Mismatch]) -> Iterator[Mismatch]:
    """Yield one mismatch of those that one line makes with tensors of several names."""
    together: dict[tuple[object, ...], list[Mismatch]] = defaultdict(list)
    for one in mismatches:
        together[one.fields, *(_place(side.call.where) for side in one.sides)].append(one)
    for alike in together.values():
        raised = [one for one in alike if any(c.status == "failed" for c in one.calls.values())]
        first = (raised or alike)[0]
        yield replace(first, later=sum(one.later for one in alike) + len(alike) - 1)


def _mismatch(
    group: str, sequence: int, calls: dict[int, Call], known: dict[object, tuple[str, ...]]
) -> Mismatch | None:
    """Return the mismatch in one collective; ``known`` caches the fields in which forms differ."""
    forms = {rank: _form(call) for rank, call in calls.items()}
    if len(set(forms.values())) < 2:
        return None

    def differences(one: int, other: int) -> tuple[str, ...]:
        key = (forms[one], forms[other])
        if key not in known:
            known[key] = calls[one].differences(calls[other])
        return known[key]

    sides: list[list[int]] = []
    for rank in sorted(calls):
        side = next((side for side in sides if not differences(side[0], rank)), None)
        if side is None:
            sides.append([rank])
        else:
            side.append(rank)
    if len(sides) < 2:
        return None
    sides.sort(key=lambda side: -len(side))
    fields = dict.fromkeys(
        field for side in sides[1:] for field in differences(sides[0][0], side[0])
    )
    return Mismatch(
        group=group,
        sequence=sequence,
        sides=tuple(Side(tuple(side), calls[side[0]]) for side in sides),
        calls=calls,
        fields=("op",) if "op" in fields else tuple(fields),
    )


def _absences(
    group: str,
    meetings: Meetings,
    snapshot: Snapshot,
    kept_whole: Mapping[int, bool],
    joined: Mapping[int, Sequence[Call]],
) -> list[Absence]:
    """Return what some members never entered.

    ``kept_whole``: ranks with all their calls; ``joined``: their calls of ``hvd.join()``.
    """
    first_kept: dict[int, int] = {}
    for sequence in sorted(meetings):
        for rank in meetings[sequence]:
            first_kept.setdefault(rank, sequence)
    absences = []
    for sequence, entered in sorted(meetings.items()):
        first = next(iter(entered.values()))
        members = first.members or snapshot.groups.get(group, ())
        if len(entered) >= len(members):
            continue
        absent = tuple(
            rank
            for rank in members
            if rank in kept_whole
            and rank not in entered
            and not has_joined(first, joined.get(rank, ()))
            and (kept_whole[rank] or first_kept.get(rank, sequence + 1) <= sequence)
        )
        if absent:
            absences.append(Absence(group, sequence, entered, absent))
    return absences


def _swaps(group: str, meetings: Meetings) -> list[Swap]:
    """Return swapped call sites of two ranks at k and k+1, at most one for each pair of lines."""
    found: dict[frozenset[object], Swap] = {}
    for sequence, calls in sorted(meetings.items()):
        following = meetings.get(sequence + 1)
        if following is None or len({_place(call.where) for call in calls.values()}) < 2:
            continue
        one, first = min(calls.items())
        for other, second in sorted(calls.items()):
            if one not in following or other not in following:
                continue
            crossed = _crossed(first, following[one], second, following[other])
            if crossed and _form(first) == _form(following[one]):
                swap = Swap(group, sequence, (one, other), (first, second))
                found.setdefault(frozenset(crossed), swap)
    return list(found.values())


def _crossed(first: Call, then: Call, second: Call, after: Call) -> tuple[object, object] | None:
    """Return the two sites, by line or its text, if two ranks reached them in opposite order."""
    for site in (_place, _code):
        here, there = site(first.where), site(second.where)
        crossed = (here, there) == (site(after.where), site(then.where))
        if here and there and here != there and crossed:
            return here, there
    return None


def _place(where: Position | None) -> tuple[str, int] | None:
    return (where.file, where.line) if where else None


def _code(where: Position | None) -> str | None:
    return where.code if where else None
