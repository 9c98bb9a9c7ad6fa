"""Finds the rank for which the others wait in most steps."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

from .collective import Call
from .frameworks import is_barrier
from .shares import subtract, union
from .snapshot import Snapshot

# In brackets is the range in which no verdict on the recorded runs changes; it was measured
# with `benchmarks.thresholds`.
#: This many of a rank's longest delays are left out, since a slow rank is late more often than once
#: or twice (1 to 8).
_EXCEPTIONS = 2
#: Delays shorter than this share of the rank's mean delay per step are noise (0.06 to 1).
_NOISE = 0.25
#: Delays are similar if the shortest and the longest differ from the median by at most this
#: factor (0.28 to 0.82).
_EVEN = 0.55


@dataclass(frozen=True, slots=True)
class Laggard:
    """The rank for which the others wait most.

    Attributes
    ----------
    rank
        Global rank.
    held_up_s
        How long the others waited for it, without its longest delays.
    others_s
        The longest time that ranks waited for any other rank.
    times, steps
        In how many steps it was noticeably late, and how many steps there were.
    collectives
        How many collectives of its group were compared.
    window_s
        From the end of the first step to the end of the last.
    call
        A collective that it entered late, the one with the median delay.
    delays_s
        Its delays, ascending; no more than there were steps.
    alone
        Whether all collectives of the run were on this group and there were no messages.
    """

    rank: int
    held_up_s: float
    others_s: float
    times: int
    steps: int
    collectives: int
    window_s: float
    call: Call
    delays_s: tuple[float, ...]
    alone: bool

    @property
    def usual_s(self) -> float:
        """The median delay."""
        return self.delays_s[len(self.delays_s) // 2]

    @property
    def even(self) -> bool:
        """Whether nearly all delays are similar; delays that a busy machine causes are not."""
        few = len(self.delays_s) // 10
        low, high = self.delays_s[few], self.delays_s[-1 - few]
        return low > _EVEN * self.usual_s and high < self.usual_s / _EVEN


@dataclass(frozen=True, slots=True)
class _Delay:
    """The last rank to enter a collective, and when the others (their median) began to wait."""

    rank: int
    since_s: float
    until_s: float
    call: Call

    @property
    def length_s(self) -> float:
        return self.until_s - self.since_s


def laggard(snapshot: Snapshot) -> Laggard | None:
    """The rank for which the others waited longest in the group with most collectives, or None.

    None also if the calls only issued the collectives: a host that is late need not delay a GPU.
    """
    if snapshot.calls_only_issue:
        return None
    by_group = _delays(snapshot)
    if not by_group:
        return None
    group = max(by_group, key=lambda name: len(by_group[name]))
    met = sorted(by_group[group], key=lambda delay: delay.until_s)
    begin, end = met[0].until_s, met[-1].until_s
    delays: dict[int, list[_Delay]] = defaultdict(list)
    for delay in met:
        if delay.since_s >= begin:
            delays[delay.rank].append(delay)
    if not delays:
        return None
    lengths = {rank: _lengths(snapshot, rank, group, found) for rank, found in delays.items()}
    sums = {rank: sum(found[:-_EXCEPTIONS]) for rank, found in lengths.items()}
    rank = max(sums, key=lambda one: sums[one])
    steps = _steps(snapshot, met)
    late = sorted(delays[rank], key=lambda delay: delay.length_s)
    return Laggard(
        rank=rank,
        held_up_s=sums[rank],
        others_s=max((total for one, total in sums.items() if one != rank), default=0.0),
        times=sum(length > _NOISE * sums[rank] / steps for length in lengths[rank][-steps:]),
        steps=steps,
        collectives=len(met),
        window_s=end - begin,
        call=late[len(late) // 2].call,
        delays_s=tuple(lengths[rank][-steps:]),
        alone=len(by_group) == 1 and not _messages(snapshot),
    )


def _delays(snapshot: Snapshot) -> dict[str, list[_Delay]]:
    """The delays in each group's collectives that all members entered, except for barriers."""
    arrivals: dict[tuple[str, int], list[tuple[float, int, Call]]] = defaultdict(list)
    for report in snapshot.ranks:
        for call in report.calls:
            if call.kind == "collective" and call.sequence and call.entered_s is not None:
                key = call.group, call.sequence
                arrivals[key].append((call.entered_s, report.rank, call))
    found: dict[str, list[_Delay]] = defaultdict(list)
    for (group, _), came in arrivals.items():
        last_s, rank, call = max(came, key=lambda one: one[0])
        members = call.members or snapshot.groups.get(group, ())
        if not is_barrier(call.op) and len(came) >= max(2, len(members)):
            others = sorted(entered for entered, one, _ in came if one != rank)
            found[group].append(_Delay(rank, statistics.median(others), last_s, call))
    return found


def _lengths(snapshot: Snapshot, rank: int, group: str, delays: list[_Delay]) -> list[float]:
    """The lengths of the delays, ascending, without the time that the rank itself was blocked."""
    blocked = union(
        (call.entered_s, call.left_s)
        for call in snapshot.rank(rank).calls
        if call.entered_s is not None
        and call.left_s is not None
        and not call.asynchronous
        and (call.kind == "p2p" or call.group != group or call.source == "call log")
    )
    # buckets of one step overlap and count as one delay
    intervals = union((delay.since_s, delay.until_s) for delay in delays)
    return sorted(
        sum(end - start for start, end in subtract([interval], blocked))
        if blocked
        else interval[1] - interval[0]
        for interval in intervals
    )


def _steps(snapshot: Snapshot, met: list[_Delay]) -> int:
    """The number of steps: how often the most frequent call was made, at most the trained steps."""
    trained = max((training.backwards for training in snapshot.training), default=0)
    places = ((delay.call.op, delay.call.where) for delay in met)
    lines = Counter((op, where.file, where.line) if where else (op,) for op, where in places)
    commonest = lines.most_common(1)[0][1]
    return min(trained, commonest) if trained else commonest


def _messages(snapshot: Snapshot) -> bool:
    return any(call.kind == "p2p" for report in snapshot.ranks for call in report.calls)
