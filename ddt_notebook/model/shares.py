"""How each rank spent its time: its own work, waiting for others, moving data, loading data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .meetings import Meeting
from .snapshot import Snapshot
from .timeline import RankTimeline

Interval = tuple[float, float]
#: With at least this many steps, the first one (which sets things up) is left out.
_STEPS_FOR_A_WINDOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """Where one rank's time went; the four parts add up to ``window_s``.

    Attributes
    ----------
    rank
        Global rank.
    window_s
        Length of the time that was looked at.
    waiting_s
        Stood still because another rank had not come to a collective yet.
    communication_s
        Stood still while data moved, or in a message.
    data_s
        Fetched batches from a DataLoader.
    compute_s
        The rest: its own work.
    waiting, communication, data
        The same as intervals in monotonic seconds.
    """

    rank: int
    window_s: float
    waiting_s: float
    communication_s: float
    data_s: float
    compute_s: float
    waiting: tuple[Interval, ...] = ()
    communication: tuple[Interval, ...] = ()
    data: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The part of the run of which shares are told, in monotonic seconds.

    Attributes
    ----------
    start_s, end_s
        Where it begins and ends.
    first_step, last_step
        The steps that it holds, counted from 1; None if it is the whole cell.
    """

    start_s: float
    end_s: float
    first_step: int | None = None
    last_step: int | None = None

    @property
    def name(self) -> str:
        """``steps 2 to 20``, or ``the whole cell``."""
        if self.first_step is None:
            return "the whole cell"
        return f"steps {self.first_step} to {self.last_step}"


def time_window(snapshot: Snapshot, met: list[Meeting]) -> TimeWindow | None:
    """From the end of the first step to the end of the last, or all that was seen."""
    timelines = snapshot.timeline
    count = min((len(timeline.steps_us) for timeline in timelines), default=0)
    if count >= _STEPS_FOR_A_WINDOW:
        start = min(timeline.steps_s[0] for timeline in timelines)
        end = max(timeline.steps_s[count - 1] for timeline in timelines)
        return TimeWindow(start, end, 2, count)
    starts = [t.started_s for t in timelines]
    ends = [t.traced_until_s or t.ended_s for t in timelines]
    if not timelines:
        starts = [s for m in met for s in m.arrivals_s.values()]
        ends = starts + [s for m in met for s in m.ends_s.values()]
    return TimeWindow(min(starts), max(ends)) if starts and ends else None


def shares(snapshot: Snapshot, met: list[Meeting], window: TimeWindow) -> list[RankShare]:
    """The share of each rank that ran the cell."""
    timelines = {timeline.rank: timeline for timeline in snapshot.timeline}
    by_rank: dict[int, list[Meeting]] = defaultdict(list)
    for meeting in met:
        for rank in meeting.calls:
            by_rank[rank].append(meeting)
    result = []
    for report in snapshot.ranks:
        if report.state == "idle":
            continue
        timeline = timelines.get(report.rank)
        blocked, waiting = _standing_still(report.rank, by_rank[report.rank], timeline)
        blocked += [
            (call.entered_s, call.left_s)
            for call in report.calls
            if call.kind == "p2p" and not call.asynchronous and call.entered_s and call.left_s
        ]
        clip = (window.start_s, window.end_s)
        still = intersect(union(blocked), [clip])
        waited = intersect(still, union(waiting))
        moving = subtract(still, waited)
        data = subtract(intersect(union(_of_kind(timeline, "data")), [clip]), still)
        length = window.end_s - window.start_s
        parts = [sum(end - start for start, end in part) for part in (waited, moving, data)]
        result.append(
            RankShare(
                rank=report.rank,
                window_s=length,
                waiting_s=parts[0],
                communication_s=parts[1],
                data_s=parts[2],
                compute_s=max(0.0, length - sum(parts)),
                waiting=tuple(waited),
                communication=tuple(moving),
                data=tuple(data),
            )
        )
    return result


def _standing_still(
    rank: int, met: list[Meeting], timeline: RankTimeline | None
) -> tuple[list[Interval], list[Interval]]:
    """When the rank did nothing else but take part in collectives, and when these waited."""
    blocked, waiting, beside = [], [], []
    for meeting in met:
        call = meeting.calls[rank]
        end = meeting.ends_s.get(rank)
        if call.entered_s is None or end is None:
            continue
        wait = meeting.wait_s(rank)
        if wait:
            waiting.append((call.entered_s, call.entered_s + wait))
        if call.source == "call log":
            if not call.asynchronous:
                blocked.append((call.entered_s, end))
        elif "bucket" in meeting.label:
            beside.append((call.entered_s, end))
        else:
            blocked.append((call.entered_s, end))
    # buckets are reduced beside the backward pass: only what outlasts it holds the rank up
    work = [s for kind in ("backward", "optimizer", "data") for s in _of_kind(timeline, kind)]
    blocked += subtract(union(beside), union(work))
    blocked += _of_kind(timeline, "wait")
    return blocked, waiting


def _of_kind(timeline: RankTimeline | None, kind: str) -> list[Interval]:
    if timeline is None:
        return []
    return [(span.start_s, span.end_s) for span in timeline.spans() if span.kind == kind]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in order, those that touch as one."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def intersect(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """What two unions have in common."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < end:
            found.append((start, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def subtract(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """What one union has beyond another."""
    found, j = [], 0
    for start, end in one:
        while j < len(other) and other[j][1] <= start:
            j += 1
        k = j
        while k < len(other) and other[k][0] < end:
            if other[k][0] > start:
                found.append((start, other[k][0]))
            start = max(start, other[k][1])
            k += 1
        if start < end:
            found.append((start, end))
    return found
