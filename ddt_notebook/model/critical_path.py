"""The critical path of a run: at each moment, the rank for which no other one had to wait.

It is followed from the end to the start. Where the rank of the path was blocked until another one
came, the path goes on with that one. A faster rank elsewhere would not have ended the run earlier.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .collective import Call
from .meetings import Meeting
from .operations import RECEIVES, SENDS
from .shares import Activity, Interval, TimeWindow
from .snapshot import Snapshot

#: Waits shorter than this do not change the rank of the path: clocks are read after each other.
_LEAST_S = 1e-4


@dataclass(frozen=True, slots=True)
class Wait:
    """Ranks that were blocked until another one entered a collective or sent a message.

    Attributes
    ----------
    until
        The rank that came last.
    ranks
        Those that waited.
    call
        Its call.
    at_s
        When it came, in monotonic seconds.
    longest_s
        How long the first one waited.
    """

    until: int
    ranks: tuple[int, ...]
    call: Call
    at_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """A rank of the path, and when it was on it, in monotonic seconds."""

    rank: int
    start_s: float
    end_s: float


def waits(snapshot: Snapshot, met: Sequence[Meeting], seen: Sequence[Activity]) -> list[Wait]:
    """The waits of a run for a collective or a message, in order of time.

    Parameters
    ----------
    snapshot, met, seen
        A run, its collectives, and what its ranks did. A rank whose collective went on beside its
        own work did not wait.
    """
    if snapshot.calls_only_issue:
        return []
    blocked = {activity.rank: activity.waiting for activity in seen}
    found = [wait for meeting in met if (wait := _in_collective(meeting, blocked))]
    found += _for_messages(snapshot)
    return sorted(found, key=lambda wait: (wait.at_s, wait.until))


def critical_path(
    found: Sequence[Wait], seen: Sequence[Activity], window: TimeWindow
) -> list[Part]:
    """The path through a time window, from its start to its end; empty without a wait.

    Parameters
    ----------
    found
        The waits.
    seen
        What the ranks did.
    window
        The time to look at.
    """
    by_rank: dict[int, list[Wait]] = defaultdict(list)
    for wait in found:
        for rank in wait.ranks:
            by_rank[rank].append(wait)
    inside = [wait for wait in found if window.start_s < wait.at_s <= window.end_s]
    running = [one.rank for one in seen if one.ended_s is None or one.ended_s >= window.end_s]
    if not inside or not running:
        return []
    # all ranks reach the end of the window; the one that was held up last shows what it took
    rank = next((r for wait in reversed(inside) for r in wait.ranks if r in running), running[0])
    times = {one: [wait.at_s for wait in of] for one, of in by_rank.items()}
    path, now = [], window.end_s
    while now > window.start_s:
        at = bisect.bisect_left(times.get(rank, []), now) - 1
        if at < 0 or by_rank[rank][at].at_s <= window.start_s:
            path.append(Part(rank, window.start_s, now))
            break
        wait = by_rank[rank][at]
        path.append(Part(rank, wait.at_s, now))
        rank, now = wait.until, wait.at_s
    return path[::-1]


def _in_collective(meeting: Meeting, blocked: Mapping[int, list[Interval]]) -> Wait | None:
    last, begun = meeting.straggler, meeting.begun_s
    if last is None or begun is None or meeting.issued:
        return None
    waited = {
        rank: begun - arrived
        for rank, arrived in meeting.arrivals_s.items()
        if rank != last
        and begun - arrived >= _LEAST_S
        and _was_in(blocked.get(rank, []), begun - _LEAST_S / 2)
    }
    if not waited:
        return None
    return Wait(last, tuple(sorted(waited)), meeting.calls[last], begun, max(waited.values()))


def _was_in(intervals: list[Interval], at_s: float) -> bool:
    at = bisect.bisect_right(intervals, at_s, key=lambda interval: interval[0]) - 1
    return at >= 0 and intervals[at][1] >= at_s


def _for_messages(snapshot: Snapshot) -> list[Wait]:
    """The blocking receives that were entered before their send."""
    sends = {
        (call.group, report.rank, call.peer, call.tag, call.sequence): call
        for report in snapshot.ranks
        for call in report.calls
        if call.op in SENDS and call.peer is not None and call.sequence is not None
    }
    found = []
    for report in snapshot.ranks:
        for call in report.calls:
            if call.op not in RECEIVES or call.peer is None or call.asynchronous:
                continue
            if call.sequence is None:
                continue
            send = sends.get((call.group, call.peer, report.rank, call.tag, call.sequence))
            if send is None or send.entered_s is None or call.entered_s is None:
                continue
            left_s = call.left_s if call.left_s is not None else send.entered_s
            if call.entered_s + _LEAST_S <= send.entered_s <= left_s:
                waited_s = send.entered_s - call.entered_s
                found.append(Wait(call.peer, (report.rank,), send, send.entered_s, waited_s))
    return found
