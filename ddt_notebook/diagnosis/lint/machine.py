"""Messages and collectives played through, where the source tells all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .trace import STEP, Issue, Item, Walk, has_issues

_SENDS = frozenset({"send", "isend", "send_object_list"})
_RECEIVES = frozenset({"recv", "recv_object_list"})


@dataclass(frozen=True, slots=True)
class Stuck:
    """Ranks that wait for each other for ever, or for a message that nobody sends.

    Attributes
    ----------
    cause
        Id of a fault card.
    at
        For each rank that waits, the call in which it does.
    """

    cause: str
    at: dict[int, Issue]


@dataclass
class _Play:
    calls: list[list[Issue]]
    position: list[int] = field(default_factory=list)
    sent: dict[tuple[int, int, object], int] = field(default_factory=lambda: defaultdict(int))

    def now(self, rank: int) -> Issue | None:
        """The call in which a rank is; None at its end."""
        mine = self.calls[rank]
        return mine[self.position[rank]] if self.position[rank] < len(mine) else None

    def later(self, rank: int) -> list[Issue]:
        return self.calls[rank][self.position[rank] + 1 :]

    def run(self) -> None:
        """As far as it goes: a message waits in a mailbox, so that only receives block."""
        ranks = range(len(self.calls))
        self.position = [0 for _ in ranks]
        moved = True
        while moved:
            moved = False
            for rank in ranks:
                while self._step(rank):
                    moved = True

    def _step(self, rank: int) -> bool:
        call = self.now(rank)
        if call is None:
            return False
        if call.op in _SENDS:
            self.sent[rank, int(str(call.peer)), call.tag] += 1
            self.position[rank] += 1
            return True
        if call.op in _RECEIVES:
            return self._receive(rank, call)
        members = self._members(call)
        if rank not in members:
            self.position[rank] += 1
            return True
        here = [self.now(member) for member in members]
        if not all(other is not None and _same_group(other, call) for other in here):
            return False
        for member in members:
            self.position[member] += 1
        return True

    def _receive(self, rank: int, call: Issue) -> bool:
        for (source, target, tag), many in self.sent.items():
            fits = call.peer is None or source == call.peer
            if many and target == rank and fits and tag == call.tag:
                self.sent[source, target, tag] -= 1
                self.position[rank] += 1
                return True
        return False

    def _members(self, call: Issue) -> Sequence[int]:
        if call.group is None or call.group.members is None:
            return range(len(self.calls))
        return [member for member in call.group.members if member < len(self.calls)]


def _same_group(one: Issue, other: Issue) -> bool:
    if one.op in _SENDS | _RECEIVES:
        return False
    return one.group == other.group


def stuck(walks: Sequence[Walk]) -> Stuck | None:
    """Play a program through; None if it comes to its end, or is not known well enough."""
    if any(walk.raised for walk in walks):
        return None
    calls = []
    for walk in walks:
        flat = _flat(walk.items)
        if flat is None:
            return None
        calls.append(flat)
    play = _Play(calls)
    play.run()
    at = {rank: call for rank in range(len(calls)) if (call := play.now(rank)) is not None}
    return Stuck(_cause(play, at), at) if at else None


def _flat(items: Sequence[Item]) -> list[Issue] | None:
    kept = []
    for item in items:
        if isinstance(item, Issue) and item.op == STEP:
            continue
        if isinstance(item, Issue):
            if not _is_known(item):
                return None
            kept.append(item)
        elif has_issues([item]):
            return None
    return kept


def _is_known(call: Issue) -> bool:
    if call.op in _SENDS:
        return isinstance(call.peer, int)
    if call.op in _RECEIVES:
        return call.peer is None or isinstance(call.peer, int)
    if call.op == "irecv":
        return False
    return call.group is None or call.group.members is not None


def _cause(play: _Play, at: dict[int, Issue]) -> str:
    receives = {rank: call for rank, call in at.items() if call.op in _RECEIVES}
    if not receives:
        crossed = all(
            any(
                _same_group(later, call)
                for other in at
                if other != rank
                for later in play.later(other)
            )
            for rank, call in at.items()
        )
        return "groups-in-opposite-order" if crossed else ""
    for rank, call in receives.items():
        waiting = [
            tag
            for (source, target, tag), many in play.sent.items()
            if many and target == rank and call.peer in (None, source)
        ]
        if waiting:
            return "message-tags-differ"
    for rank, call in receives.items():
        source = call.peer
        coming = (
            isinstance(source, int)
            and source in at
            and any(other.op in _SENDS and other.peer == rank for other in play.later(source))
        )
        if not coming:
            return "message-without-partner"
    return "both-sides-wait" if len(receives) == len(at) else "wait-cycle"
