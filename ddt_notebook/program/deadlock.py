"""Simulates messages and collectives, if the source shows all of them, to find deadlocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from ddt_notebook.model.operations import OPERATIONS, RECEIVES, SENDS

from .trace import MESSAGES, OPTIMIZER_STEPS, GroupCall, Item, Trace, first_call

#: Receives that return when the message has arrived.
_RECEIVES = frozenset(op for op in RECEIVES if not OPERATIONS[op].returns_handle)


class Stuck(Enum):
    """Why ranks wait forever."""

    ALL_RECEIVE = auto()  #: all ranks receive before any of them sends
    CYCLE = auto()  #: some ranks wait for a message, others for a collective
    TAG_DIFFERS = auto()  #: the message that was sent has another tag
    NEVER_SENT = auto()
    GROUPS_CROSSED = auto()  #: the ranks use their groups in opposite order
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Ranks that wait forever, for each other or for a message that no rank sends.

    ``at`` holds the call in which each waiting rank waits.
    """

    why: Stuck
    at: dict[int, GroupCall]


@dataclass
class _Play:
    """The calls of each rank, how many of them it has made, and the messages on their way.

    Messages are stored by sender, receiver and tag, so sends do not block.
    """

    calls: list[list[GroupCall]]
    position: list[int] = field(default_factory=list)
    sent: Counter[tuple[int, int, object]] = field(default_factory=Counter)

    def now(self, rank: int) -> GroupCall | None:
        """The call that a rank is in; None if it has made all its calls."""
        mine = self.calls[rank]
        return mine[self.position[rank]] if self.position[rank] < len(mine) else None

    def later(self, rank: int) -> list[GroupCall]:
        """The calls that a rank would make after the current one."""
        return self.calls[rank][self.position[rank] + 1 :]

    def run(self) -> None:
        """Let every rank make calls until all ranks wait or have ended."""
        ranks = range(len(self.calls))
        self.position = [0 for _ in ranks]
        moving = True
        while moving:
            moving = False
            for rank in ranks:
                while self._step(rank):
                    moving = True

    def _step(self, rank: int) -> bool:
        call = self.now(rank)
        if call is None:
            return False
        done = [rank]
        if call.op in SENDS:
            self.sent[rank, int(str(call.peer)), call.tag] += 1
        elif call.op in _RECEIVES:
            arrived = [message for message in self._for(rank, call.peer) if message[2] == call.tag]
            if not arrived:
                return False
            self.sent[arrived[0]] -= 1
        elif rank in (members := self._members(call)):
            here = [self.now(member) for member in members]
            if not all(other is not None and _same_group(other, call) for other in here):
                return False
            done = members
        for one in done:
            self.position[one] += 1
        return True

    def _for(self, rank: int, source: object) -> list[tuple[int, int, object]]:
        """The messages on their way to a rank from ``source``, or from any rank if that is None."""
        return [
            message
            for message, many in self.sent.items()
            if many and message[1] == rank and source in (None, message[0])
        ]

    def _members(self, call: GroupCall) -> list[int]:
        ranks = range(len(self.calls))
        if call.group is None or call.group.members is None:
            return list(ranks)
        return [member for member in call.group.members if member in ranks]

    def why(self, at: dict[int, GroupCall]) -> Stuck:
        """Why the ranks are stuck."""
        receives = {rank: call for rank, call in at.items() if call.op in _RECEIVES}
        if not receives:
            crossed = all(self._comes_later(call, rank, at) for rank, call in at.items())
            return Stuck.GROUPS_CROSSED if crossed else Stuck.OTHER
        if any(self._for(rank, call.peer) for rank, call in receives.items()):
            return Stuck.TAG_DIFFERS
        if not all(self._is_coming(call.peer, rank, at) for rank, call in receives.items()):
            return Stuck.NEVER_SENT
        return Stuck.ALL_RECEIVE if len(receives) == len(at) else Stuck.CYCLE

    def _comes_later(self, call: GroupCall, rank: int, at: dict[int, GroupCall]) -> bool:
        """Whether another waiting rank would make this call later."""
        return any(
            _same_group(later, call) for other in at if other != rank for later in self.later(other)
        )

    def _is_coming(self, source: object, rank: int, at: dict[int, GroupCall]) -> bool:
        """Whether a waiting rank would send a message to ``rank`` later."""
        return (
            isinstance(source, int)
            and source in at
            and any(call.op in SENDS and call.peer == rank for call in self.later(source))
        )


def _same_group(one: GroupCall, other: GroupCall) -> bool:
    return one.group != MESSAGES and one.group == other.group


def deadlock(traces: Sequence[Trace]) -> Deadlock | None:
    """Simulate a program; None if it ends, or if not all of its calls are known."""
    if any(trace.raised for trace in traces):
        return None
    sequences = [_sequence(trace.items) for trace in traces]
    known = [sequence for sequence in sequences if sequence is not None]
    if len(known) < len(sequences):
        return None
    play = _Play(known)
    play.run()
    at = {rank: call for rank in range(len(known)) if (call := play.now(rank)) is not None}
    return Deadlock(play.why(at), at) if at else None


def _sequence(items: Sequence[Item]) -> list[GroupCall] | None:
    """The calls of a rank in order; None if the source does not show all of them."""
    kept: list[GroupCall] = []
    for item in items:
        if not isinstance(item, GroupCall):
            if first_call([item]):
                return None
        elif item.group != OPTIMIZER_STEPS:
            if not _is_known(item):
                return None
            kept.append(item)
    return kept


def _is_known(call: GroupCall) -> bool:
    if call.group == MESSAGES:
        to_anyone = call.op in _RECEIVES and call.peer is None
        return call.op in SENDS | _RECEIVES and (to_anyone or isinstance(call.peer, int))
    return call.group is None or call.group.members is not None
