"""Which ranks wait for which others, and which waits can never end.

These are facts derived from observations. The session needs them while a cell runs, to
distinguish a slow rank from a hang, and the diagnosis needs them afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .collective import Call, Fingerprint
from .named_tensors import has_joined, is_unnamed
from .operations import RECEIVES, SENDS
from .rank import RankReport
from .rendezvous import complete_groups

#: States in which a rank can still reach the call in which others wait.
MOVING = frozenset({"running", "silent"})
#: A rank inside of a graph of TensorFlow may stand still for a while after another has ended it:
#: in a healthy program, up to 1.6 s were seen at a load of 15 on 2 cores. In seconds.
_LEFT_FOR_S = 10.0
#: On a busy machine, a call may raise so long after its time limit. Chosen, not measured.
_LATE_S = 5.0
#: A mismatch in these fields keeps two calls of one collective from meeting on gloo.
_KEEPS_APART = frozenset({"op", "root", "shape", "dtype"})


@dataclass(frozen=True, slots=True)
class Wait:
    """What one blocked rank waits for.

    Attributes
    ----------
    call
        The call in which it is blocked.
    missing
        Ranks that have not entered it yet, or that left it when they raised or died (for a
        receive from anyone: any one of them).
    anyone
        True if one of ``missing`` is enough.
    mismatched
        Ranks that are blocked in a different call with the same number on the same group.
    """

    call: Call
    missing: frozenset[int]
    anyone: bool = False
    mismatched: frozenset[int] = field(default=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The longest wait at one moment of a running cell.

    Attributes
    ----------
    ranks
        The ranks that wait in ``call``; empty if a rank is suspended and no other waits.
    call
        The call; None if ``ranks`` is empty.
    waited_s
        How long the first of them has been waiting, in seconds.
    awaited
        The ranks that have to act before the wait can end, those that can act first; ranks at
        the end are blocked themselves. Empty if every member has entered the call.
    """

    ranks: tuple[int, ...] = ()
    call: Call | None = None
    waited_s: float = 0.0
    awaited: tuple[RankReport, ...] = ()


def counterpart(call: Call, other: RankReport) -> Call | None:
    """The call of ``other`` that matches ``call``, None if it was never made or was dropped."""
    if call.kind == "p2p":
        return None
    for candidate in reversed(other.calls):
        if (
            candidate.kind == call.kind
            and candidate.group == call.group
            and candidate.sequence == call.sequence
            and (call.kind == "collective" or candidate.op == call.op)
        ):
            return candidate
    return None


def message_partner(call: Call, caller: int, other: RankReport) -> Call | None:
    """The send of ``other`` that matches a receive, or the reverse; None if it was never made."""
    answers = RECEIVES if call.op in SENDS else SENDS
    found = [
        candidate
        for candidate in other.calls
        if candidate.kind == "p2p"
        and candidate.op in answers
        and candidate.group == call.group
        and candidate.peer in (caller, None)
        and candidate.tag == call.tag
    ]
    return next((c for c in found if c.sequence == call.sequence), None)


def waits(reports: Iterable[RankReport]) -> dict[int, Wait]:
    """What each blocked rank waits for.

    Ranks that wait in the same collective share what is known of it, so that the time grows with
    the number of ranks and not with its square.
    """
    by_rank = {report.rank: report for report in reports}
    blocked: dict[_Name, dict[int, Call]] = defaultdict(dict)
    for report in by_rank.values():
        call = report.blocked_call
        if report.state == "blocked" and call is not None:
            blocked[call.kind, call.group][report.rank] = call
    collectives: dict[tuple[object, ...], list[_Collective]] = defaultdict(list)
    result: dict[int, Wait] = {}
    for rank, call in [each for calls in blocked.values() for each in calls.items()]:
        if call.kind == "p2p":
            result[rank] = _message_wait(call, rank, by_rank)
            continue
        op = call.op if call.kind == "setup" else None
        known = collectives[call.kind, call.group, call.sequence, op]
        found = next((one for one in known if one.is_of(call)), None)
        if found is None:
            found = _Collective(call, by_rank, blocked)
            known.append(found)
        result[rank] = found.wait(call, rank)
    return {rank: result[rank] for rank in by_rank if rank in result}


class _Collective:
    """One collective in which ranks wait, or one set-up call, with every member's own call.

    Parameters
    ----------
    call
        The call of one of the ranks that wait in it.
    by_rank
        The report of each rank.
    blocked
        The calls in which ranks are blocked, by kind and group, and rank.
    """

    def __init__(
        self,
        call: Call,
        by_rank: Mapping[int, RankReport],
        blocked: Mapping[_Name, Mapping[int, Call]],
    ) -> None:
        self._by_rank, self._members = by_rank, _awaited(call)
        self._blocked = blocked
        self._absent: set[int] = set()  # have neither made the call nor passed it
        self._left: set[int] = set()  # left it when they raised or died
        self._gone_on: set[int] = set()  # ended this graph, and wait in a later call
        self._made: dict[_Kind, dict[int, Call]] = defaultdict(dict)
        self._waits: dict[_Kind, tuple[frozenset[int], frozenset[int]]] = {}
        self._meeting: dict[str, bool] = {}
        self._others: frozenset[int] | None = None
        # The call that forms the first group has no members yet; it concerns every rank.
        for member in self._members or (by_rank if call.kind == "setup" else ()):
            other = by_rank.get(member)
            theirs = counterpart(call, other) if other is not None else None
            if theirs is not None and other is not None:
                self._made[_kind(theirs)][member] = theirs
                if theirs.status == "failed" or other.state == "died":
                    self._left.add(member)
                elif call.is_graph and _waits_later(call, theirs, other):
                    self._gone_on.add(member)
            elif other is None or not (_passed(call, other) or has_joined(call, other.calls)):
                self._absent.add(member)

    def is_of(self, call: Call) -> bool:
        """Whether a call with its name and number has its members, too."""
        members = _awaited(call)
        return members is self._members or members == self._members

    def wait(self, call: Call, caller: int) -> Wait:
        """What a rank waits for that is blocked in its call of this collective."""
        kind = _kind(call)
        if kind not in self._waits:
            mismatched = frozenset(
                member
                for other, made in self._made.items()
                if other != kind and _KEEPS_APART.intersection(call.differences(_first(made)))
                for member in made
            )
            self._waits[kind] = mismatched | self._absent | self._left, mismatched
        missing, mismatched = self._waits[kind]
        if self._gone_on and self._by_rank[caller].stands_still:
            missing = missing | self._gone_on  # it waits in a collective inside the graph
        if caller in missing:
            missing = missing - {caller}
        if call.rendezvous is not None and not missing and not self._meets(call):
            missing = mismatched = frozenset(self._by_rank) - {caller}
        if not missing:
            missing = mismatched = self._of_another_group(call)
        return Wait(call, missing, mismatched=mismatched)

    def _of_another_group(self, call: Call) -> frozenset[int]:
        """The ranks whose group has the same name and other members.

        Groups are named by the number of the call that makes them. The members of both meet under
        one name in the store, and may be connected crosswise.
        """
        if self._others is None:
            of_names: Iterable[tuple[int, Iterable[Call]]] = ()
            if call.op == "new_group":
                of_names = ((rank, report.calls) for rank, report in self._by_rank.items())
            elif call.kind == "collective":
                beside = self._blocked.get((call.kind, call.group), {})
                of_names = ((rank, [other]) for rank, other in beside.items())
            self._others = frozenset(
                rank
                for rank, others in of_names
                if any(_is_namesake(call, other) for other in others)
            )
        return self._others

    def _meets(self, call: Call) -> bool:
        """Whether a group can form, now that every rank has called ``init_process_group``."""
        here = call.rendezvous.endpoint if call.rendezvous is not None else ""
        if here not in self._meeting:
            joined = [
                made.rendezvous
                for calls in self._made.values()
                for made in calls.values()
                if made.rendezvous is not None
            ]
            if len(joined) < len(self._by_rank) or not all(one.known for one in joined):
                return True  # the missing calls may complete it
            points = (one for one in joined if one.endpoint == here)
            self._meeting[here] = complete_groups(points)
        return self._meeting[here]


#: Kind of a call and name of its group.
_Name = tuple[str, str]
#: Calls of one kind do not differ from each other.
_Kind = tuple[str, Fingerprint]


def _awaited(call: Call) -> tuple[int, ...]:
    """The ranks that a call waits for; a new group forms as soon as its own members call."""
    return call.new_members or call.members


def _is_namesake(call: Call, other: Call) -> bool:
    """Whether the groups of two calls have one name and different members."""
    if call.op == "new_group":
        same = (other.op, other.sequence) == (call.op, call.sequence)
        members = (call.new_members, other.new_members)
    else:
        same = (other.kind, other.group) == (call.kind, call.group)
        members = (call.members, other.members)
    return same and all(members) and members[0] != members[1]


def _kind(call: Call) -> _Kind:
    return call.source, call.fingerprint()


def _first(made: Mapping[int, Call]) -> Call:
    return next(iter(made.values()))


def _waits_later(call: Call, theirs: Call, other: RankReport) -> bool:
    """Whether ``other`` has ended a call, and has long been in a later one of the same group."""
    later = other.blocked_call if other.state == "blocked" else None
    if theirs.status != "done" or later is None or later.group != call.group:
        return False
    if (other.blocked_s or 0.0) < _LEFT_FOR_S:
        return False
    return later.kind == call.kind and (later.sequence or 0) > (call.sequence or 0)


def needs_all_calls(waiting: Iterable[Wait], reports: Iterable[RankReport]) -> bool:
    """Whether these reports are too short to tell who has made a call without a name.

    Its number does not count the calls of its group, so a later call of another rank does not show
    that it has made this one, too.
    """
    unnamed = [w.call for w in waiting if not w.missing and is_unnamed(w.call)]
    return any(
        call.sequence is not None and counterpart(call, other) is None and _passed(call, other)
        for call in unnamed
        for other in reports
        if other.rank in call.members
    )


def _passed(call: Call, other: RankReport) -> bool:
    """Whether ``other`` has passed this call, whose record was dropped because it had matched."""
    if not other.calls_dropped or call.sequence is None:
        return False
    reached = [
        c.sequence
        for c in other.calls
        if c.group == call.group and c.sequence and c.kind == call.kind
    ]
    return bool(reached) and min(reached) > call.sequence


def _message_wait(call: Call, caller: int, by_rank: dict[int, RankReport]) -> Wait:
    if call.peer is None:
        others = frozenset(member for member in call.members if member != caller)
        return Wait(call, others, anyone=True)
    other = by_rank.get(call.peer)
    if other is None or message_partner(call, caller, other) is None:
        return Wait(call, frozenset({call.peer}))
    return Wait(call, frozenset())


def lock_holders(reports: Iterable[RankReport]) -> dict[int, int]:
    """For each rank that waits for the lock of a file that another rank holds, that other rank."""
    reports = list(reports)
    by_pid = {(report.host, report.pid): report.rank for report in reports}
    result = {}
    for report in reports:
        seen = report.activity
        if report.state == "running" and seen is not None and not seen.computes:
            holder = by_pid.get((report.host, seen.held_by)) if seen.held_by is not None else None
            if holder not in (None, report.rank):
                result[report.rank] = holder
    return result


def cannot_complete(waiting: Mapping[int, Wait], reports: Iterable[RankReport]) -> frozenset[int]:
    """Blocked ranks whose wait can never end, whatever the other ranks do.

    A wait can end if every missing rank can still enter the call, because it runs code or is itself
    blocked in a wait that can end. Waits in a cycle cannot end (least fixed point from the moving
    ranks). A blocked rank without missing ranks is assumed to be transferring data. A rank that
    waits for a file's lock can go on when the rank that holds the lock can. A call whose
    `Call.gives_up_after_s` has not passed ends by itself.

    Parameters
    ----------
    waiting
        As `waits` returns it for these reports.
    """
    reports = list(reports)
    # a rank that asks for a lock again and again may give up
    asks = {r.rank for r in reports if r.activity and r.activity.waits_for == "busy lock"}
    holders = {rank: one for rank, one in lock_holders(reports).items() if rank not in asks}
    alike: dict[tuple[frozenset[int], bool], list[int]] = defaultdict(list)
    on_devices = {report.rank for report in reports if report.device_waits}
    # a stream runs what was issued in its order: nothing takes the place of a call that differs
    never = {rank for rank, wait in waiting.items() if wait.mismatched and rank in on_devices}
    for rank, wait in waiting.items():
        if rank not in never:
            alike[wait.missing, wait.anyone].append(rank)
    for rank, holder in holders.items():
        alike[frozenset({holder}), False].append(rank)
    needs = {key: min(len(key[0]), 1) if key[1] else len(key[0]) for key in alike}
    needed_by: dict[int, list[tuple[frozenset[int], bool]]] = defaultdict(list)
    for key in alike:
        for rank in key[0]:
            needed_by[rank].append(key)
    end = {r.rank for r in reports if r.rank in waiting and gives_up(r, waiting[r.rank].call)}
    moving = [
        r.rank
        for r in reports
        if (r.state in MOVING and r.rank not in holders and not r.waits_for_ever)
        or (r.rank in waiting and (r.may_go_on or r.rank in end))
    ]
    moving += [rank for key, many in needs.items() if not many for rank in alike[key]]
    can_move = set(moving)
    while moving:
        for key in needed_by[moving.pop()]:
            needs[key] -= 1
            if needs[key] == 0:
                freed = set(alike[key]) - can_move
                can_move |= freed
                moving += freed
    # the host of a rank may go on although its device waits for ever
    return frozenset(
        rank
        for rank, wait in waiting.items()
        if rank in never or (needs[wait.missing, wait.anyone] > 0 and rank not in end)
    )


def gives_up(report: RankReport, call: Call) -> bool:
    """Whether a call in which a rank is blocked is about to raise, and the program expects it."""
    limit = call.gives_up_after_s
    if limit is None or report.state != "blocked":
        return False
    return (report.blocked_s or 0.0) <= limit + _LATE_S
