"""Who talks to whom: messages from rank to rank, and collectives of each rank in each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .collective import Call
from .meetings import Meeting, call_bytes
from .operations import RECEIVES, SENDS
from .snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What was sent, and how long a rank stood still for it.

    Attributes
    ----------
    times
        The number of messages, or of collectives.
    bytes
        Bytes of the messages, or of the tensors that the rank passed in.
    blocked_s
        Seconds for which the receiver was blocked in its calls, or for which the rank waited for
        the last one of its group. None if that is not known.
    """

    times: int = 0
    bytes: int = 0
    blocked_s: float | None = None

    def __add__(self, other: Traffic) -> Traffic:
        known = [one.blocked_s for one in (self, other) if one.blocked_s is not None]
        return Traffic(
            times=self.times + other.times,
            bytes=self.bytes + other.bytes,
            blocked_s=sum(known) if known else None,
        )


def messages(snapshot: Snapshot) -> dict[tuple[int, int], Traffic]:
    """What each rank sent to each other one, by sender and receiver.

    A message of which only the receiver's call is known counts, too. A receive from any rank does
    not show who sent; that message counts by its send.
    """
    sent: dict[tuple[int, int], list[Call]] = {}
    received: dict[tuple[int, int], list[Call]] = {}
    for report in snapshot.ranks:
        for call in report.calls:
            if call.kind != "p2p" or call.peer is None:
                continue
            if call.op in SENDS:
                sent.setdefault((report.rank, call.peer), []).append(call)
            elif call.op in RECEIVES:
                received.setdefault((call.peer, report.rank), []).append(call)
    timed = not snapshot.calls_only_issue
    return {
        route: _of_route(sent.get(route, []), received.get(route, []), timed=timed)
        for route in sorted(sent.keys() | received.keys())
    }


def in_groups(met: Sequence[Meeting]) -> dict[str, dict[int, Traffic]]:
    """What each rank did in the collectives of each group, by group and rank."""
    found: dict[str, dict[int, Traffic]] = {}
    for meeting in met:
        of = found.setdefault(meeting.group, {})
        for rank, call in meeting.calls.items():
            one = Traffic(times=1, bytes=call_bytes(call) or 0, blocked_s=meeting.wait_s(rank))
            of[rank] = of.get(rank, Traffic()) + one
    return found


def _of_route(sent: Sequence[Call], received: Sequence[Call], *, timed: bool) -> Traffic:
    counted = sent if len(sent) >= len(received) else received
    blocked = [
        call.left_s - call.entered_s
        for call in received
        if call.entered_s is not None and call.left_s is not None and not call.asynchronous
    ]
    return Traffic(
        times=len(counted),
        bytes=sum(call_bytes(call) or 0 for call in counted),
        blocked_s=sum(blocked) if blocked and timed else None,
    )
