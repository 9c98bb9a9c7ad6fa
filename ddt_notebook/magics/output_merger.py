"""Merges the output lines of several ranks: equal lines are shown once."""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Content = TypeVar("Content", bound=Hashable)


@dataclass(slots=True)
class Entry(Generic[Content]):
    """Output of one or more ranks.

    Attributes
    ----------
    content
        What it is.
    depth
        Number of this entry on its rank since all ranks had written equally many.
    first
        The rank that wrote it first.
    since_s
        When.
    alone
        Whether it is never merged with equal entries.
    ranks
        All ranks that wrote it.
    """

    content: Content
    depth: int
    first: int
    since_s: float
    alone: bool
    ranks: set[int] = field(default_factory=set)

    @property
    def order(self) -> tuple[int, int]:
        """Sorts by depth, then by rank: the n-th lines of all ranks stand together."""
        return (self.depth, self.first)


class Merger(Generic[Content]):
    """Holds entries for a moment so that equal ones of other ranks can join them.

    The order of each rank's own entries is kept.

    Parameters
    ----------
    running
        The ranks that may write; an entry of all of them need not be held.
    hold_s
        For how long an entry is held.
    """

    def __init__(self, running: Iterable[int], hold_s: float = 0.15) -> None:
        self._running = frozenset(running)
        self._hold_s = hold_s
        self._queue: list[Entry[Content]] = []
        self._open: dict[Content, list[Entry[Content]]] = {}
        self._depths: dict[int, int] = {}
        self._taken_depth = 0

    def add(self, rank: int, content: Content, now_s: float, *, alone: bool = False) -> None:
        """Add an entry, or join an equal one; ``alone``: never join it with another."""
        reached = max(self._depths.get(rank, 0), self._taken_depth)
        equal = [e for e in self._open.get(content, ()) if e.depth > reached]
        if equal and not alone:
            entry = min(equal, key=lambda e: e.depth)
        else:
            entry = Entry(content, reached + 1, rank, now_s, alone)
            bisect.insort(self._queue, entry, key=lambda e: e.order)
            self._offer(entry)
        entry.ranks.add(rank)
        self._depths[rank] = entry.depth

    def take(self, now_s: float, *, everything: bool = False) -> list[Entry[Content]]:
        """Return the entries that are complete or were held long enough, in order."""
        held_long = [i for i, e in enumerate(self._queue) if now_s - e.since_s >= self._hold_s]
        number = held_long[-1] + 1 if held_long else 0
        while number < len(self._queue) and self._queue[number].ranks >= self._running:
            number += 1
        if everything:
            number = len(self._queue)
        ready, self._queue = self._queue[:number], self._queue[number:]
        if ready:
            self._taken_depth = ready[-1].depth
            self._open = {}
            for entry in self._queue:
                self._offer(entry)
            if self._queue:  # other ranks may still join the remaining entries of this depth
                self._taken_depth = min(self._taken_depth, self._queue[0].depth - 1)
        return ready

    def _offer(self, entry: Entry[Content]) -> None:
        """Let equal output of other ranks join this entry."""
        if not entry.alone:
            self._open.setdefault(entry.content, []).append(entry)
