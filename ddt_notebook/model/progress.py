"""Which ranks wait for which others, and which waits can never end.

These are facts derived from observations. The session needs them while a cell runs, to
distinguish a slow rank from a hang, and the diagnosis needs them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .collective import Call
from .operations import RECEIVES, SENDS
from .rank import RankReport
from .rendezvous import complete_groups

#: States in which a rank can still reach the call in which others wait.
MOVING = frozenset({"running", "silent"})
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
    """What each blocked rank waits for."""
    by_rank = {report.rank: report for report in reports}
    result: dict[int, Wait] = {}
    for report in by_rank.values():
        call = report.blocked_call
        if report.state != "blocked" or call is None:
            continue
        if call.kind == "p2p":
            result[report.rank] = _message_wait(call, report.rank, by_rank)
        else:
            result[report.rank] = _collective_wait(call, report.rank, by_rank)
    return result


def _collective_wait(call: Call, caller: int, by_rank: dict[int, RankReport]) -> Wait:
    missing, mismatched = set(), set()
    # The call that forms the first group has no members yet; it concerns every rank.
    for member in call.members or (by_rank if call.kind == "setup" else ()):
        other = by_rank.get(member)
        if member == caller:
            continue
        theirs = counterpart(call, other) if other is not None else None
        if theirs is None:
            if other is None or not _passed(call, other):
                missing.add(member)
        elif _KEEPS_APART.intersection(call.differences(theirs)):
            missing.add(member)
            mismatched.add(member)
        elif theirs.status == "failed" or (other is not None and other.state == "died"):
            missing.add(member)
    if call.rendezvous is not None and not missing and not _meets(call, caller, by_rank):
        missing = mismatched = set(by_rank) - {caller}
    return Wait(call, frozenset(missing), mismatched=frozenset(mismatched))


def _meets(call: Call, caller: int, by_rank: dict[int, RankReport]) -> bool:
    """Whether a group can form, now that every rank has called ``init_process_group``."""
    calls = [
        call if rank == caller else counterpart(call, other) for rank, other in by_rank.items()
    ]
    joined = [one.rendezvous for one in calls if one is not None and one.rendezvous is not None]
    if len(joined) < len(by_rank) or not all(one.known for one in joined):
        return True  # perhaps
    here = call.rendezvous.meeting_point if call.rendezvous is not None else ""
    return complete_groups(one for one in joined if one.meeting_point == here)


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


def cannot_complete(reports: Iterable[RankReport]) -> frozenset[int]:
    """Blocked ranks whose wait can never end, whatever the other ranks do.

    A wait can end if every missing rank can still enter the call, because it runs code or is itself
    blocked in a wait that can end. Waits in a cycle cannot end (least fixed point from the moving
    ranks). A blocked rank without missing ranks is assumed to be transferring data.
    """
    reports = list(reports)
    waiting = waits(reports)
    can_move = {report.rank for report in reports if report.state in MOVING}
    while True:
        freed = {
            rank
            for rank, wait in waiting.items()
            if rank not in can_move and _can_end(wait, can_move)
        }
        if not freed:
            return frozenset(waiting) - can_move
        can_move |= freed


def _can_end(wait: Wait, can_move: set[int]) -> bool:
    if wait.anyone:
        return not wait.missing or bool(wait.missing & can_move)
    return wait.missing <= can_move
