"""How each rank spent its time: on its own work, waiting, communication and loading data."""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .meetings import Meeting
from .rank import RankReport
from .snapshot import Snapshot
from .timeline import RankTimeline, SpanKind

Interval = tuple[float, float]
#: With at least this many steps, the first one (which sets things up) is left out, so that two
#: steps remain to be averaged.
_STEPS_FOR_A_WINDOW = 3
#: While a rank does one of these, concurrent collectives do not delay it.
_WORK: tuple[SpanKind, ...] = ("backward", "optimizer", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """How one rank spent its time.

    The four parts add up to ``window_s``, unless the rank ended before the window did.

    Attributes
    ----------
    rank
        Global rank.
    window_s
        Length of the time window.
    waiting_s
        Waited because another rank had not entered a collective yet.
    communication_s
        Waited while data was transferred, or in a message.
    data_s
        Fetched batches from a DataLoader.
    compute_s
        The remaining time, in which the rank did its own work. In a run that was not traced, it
        includes collectives of DDP and asynchronous ones.
    """

    rank: int
    window_s: float
    waiting_s: float
    communication_s: float
    data_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The part of the run for which shares are computed, in monotonic seconds.

    Attributes
    ----------
    start_s, end_s
        When it begins and ends.
    first_step, last_step
        The steps that it contains, counted from 1; None if it is the whole cell.
    """

    start_s: float
    end_s: float
    first_step: int | None = None
    last_step: int | None = None

    @property
    def name(self) -> str:
        """``steps 2 to 20`` or ``step 7``; empty for the whole run."""
        if self.first_step is None:
            return ""
        if self.first_step == self.last_step:
            return f"step {self.first_step}"
        return f"steps {self.first_step} to {self.last_step}"


def time_window(snapshot: Snapshot, met: list[Meeting]) -> TimeWindow | None:
    """From the end of the first step to the end of the last, or the whole observed time."""
    timelines = snapshot.timeline
    count = min((len(timeline.steps_us) for timeline in timelines), default=0)
    if count >= _STEPS_FOR_A_WINDOW:
        start = min(timeline.steps_s[0] for timeline in timelines)
        end = max(timeline.steps_s[count - 1] for timeline in timelines)
        return TimeWindow(start, end, 2, count)
    starts = [t.started_s for t in timelines]
    ends = [t.traced_until_s or t.ended_s for t in timelines]
    if not timelines:
        waits = open_waits(snapshot).values()
        starts = [s for m in met for s in m.arrivals_s.values()] + [start for start, _ in waits]
        ends = starts + [s for m in met for s in m.ends_s.values()] + [end for _, end in waits]
    return TimeWindow(min(starts), max(ends)) if starts and ends else None


def step_starts(snapshot: Snapshot, window: TimeWindow) -> dict[int, float]:
    """When the first rank began each step of a window; empty if it is the whole cell."""
    steps = range(window.first_step or 1, (window.last_step or 0) + 1)
    courses = [timeline.steps_s for timeline in snapshot.timeline]
    return {step: min(course[step - 2] for course in courses) for step in steps}


def typical_step(snapshot: Snapshot, window: TimeWindow) -> TimeWindow | None:
    """The step of a window that took the median time; None if the window is the whole cell."""
    starts = step_starts(snapshot, window)
    if not starts:
        return None
    courses = [timeline.steps_s for timeline in snapshot.timeline]
    last = {step: max(course[step - 1] for course in courses) for step in starts}
    lengths = sorted((last[step] - start, step) for step, start in starts.items())
    _, step = lengths[(len(lengths) - 1) // 2]
    return TimeWindow(starts[step], last[step], step, step)


@dataclass(frozen=True, slots=True)
class Activity:
    """The activities of one rank, as intervals in monotonic seconds that do not overlap.

    Attributes
    ----------
    rank
        Global rank.
    waiting
        Waited because another rank had not entered a collective yet.
    communication
        Waited while data was transferred, or in a message.
    data
        Fetched batches from a DataLoader.
    ended_s
        When the rank was last seen at work, if it ended before the others; else None.
    """

    rank: int
    waiting: list[Interval]
    communication: list[Interval]
    data: list[Interval]
    ended_s: float | None = None

    def share(self, window: TimeWindow) -> RankShare:
        """How much of a window each activity took."""
        clip = [(window.start_s, window.end_s)]
        parts = [intersect(p, clip) for p in (self.waiting, self.communication, self.data)]
        waiting, communication, data = (sum(end - start for start, end in p) for p in parts)
        end = window.end_s if self.ended_s is None else min(self.ended_s, window.end_s)
        return RankShare(
            rank=self.rank,
            window_s=window.end_s - window.start_s,
            waiting_s=waiting,
            communication_s=communication,
            data_s=data,
            compute_s=max(0.0, end - window.start_s - waiting - communication - data),
        )


def activities(snapshot: Snapshot, met: list[Meeting]) -> list[Activity]:
    """The activities of each rank that ran the cell."""
    traced = {timeline.rank: timeline for timeline in snapshot.timeline}
    timelines = {rank: timeline.intervals() for rank, timeline in traced.items()}
    by_rank: dict[int, list[Meeting]] = defaultdict(list)
    for meeting in met:
        for rank in meeting.calls:
            by_rank[rank].append(meeting)
    waits = open_waits(snapshot)
    result = []
    for report in snapshot.ranks:
        if report.state == "idle":
            continue
        spans = timelines.get(report.rank, {})
        blocked, waiting = _standing_still(
            report.rank, by_rank[report.rank], spans, broken_off=snapshot.outcome != "ok"
        )
        blocked += [
            (call.entered_s, call.left_s)
            for call in report.calls
            if call.kind == "p2p" and not call.asynchronous and call.entered_s and call.left_s
            if not snapshot.calls_only_issue
        ]
        if report.rank in waits:
            blocked.append(waits[report.rank])
            waiting.append(waits[report.rank])
        still = union(blocked)
        waited = intersect(still, union(waiting))
        data = subtract(union(spans.get("data", [])), still)
        ended = _last_seen(report, traced.get(report.rank)) if snapshot.outcome != "ok" else None
        result.append(Activity(report.rank, waited, subtract(still, waited), data, ended))
    return result


def untimed(snapshot: Snapshot) -> bool:
    """Whether some calls have no measured end, so that their time counts as the ranks' own work."""
    return not snapshot.timeline and any(
        (call.left_s is None or snapshot.calls_only_issue) and call.index != report.blocked_in
        for report in snapshot.ranks
        for call in report.calls
        if call.kind != "setup"
    )


def open_waits(snapshot: Snapshot) -> dict[int, Interval]:
    """The wait in which each blocked rank was when the ranks were last seen."""
    waits = {
        report.rank: (call.entered_s, report.blocked_s)
        for report in snapshot.ranks
        if (call := report.blocked_call) is not None
        and call.entered_s is not None
        and report.blocked_s is not None
    }
    # a rank may enter an asynchronous call long before it waits for it
    seen_s = max((entered_s + waited_s for entered_s, waited_s in waits.values()), default=0.0)
    return {rank: (seen_s - waited_s, seen_s) for rank, (_, waited_s) in waits.items()}


def _last_seen(report: RankReport, timeline: RankTimeline | None) -> float | None:
    """When a rank that no longer runs was last seen at work, 0 if never; None if it runs."""
    if report.state not in ("finished", "raised", "died"):
        return None
    if timeline is not None:
        return timeline.ended_s
    times = [s for call in report.calls for s in (call.entered_s, call.left_s) if s is not None]
    if report.error is not None and report.error.at_s is not None:
        times.append(report.error.at_s)
    return max(times, default=0.0)


def held_up(met: list[Meeting], seen: list[Activity] | None) -> dict[int, float]:
    """How long the others waited for each rank that entered last, in seconds (their mean).

    Parameters
    ----------
    met
        The collectives to look at.
    seen
        The activities of the ranks; None if the run was not traced. Then the result is the total
        delay of each rank, since it is not known what the others did meanwhile.
    """
    spans: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    for meeting in met:
        last, begun = meeting.straggler, meeting.begun_s
        if last is None or begun is None or meeting.issued:
            continue
        for rank, arrived in meeting.arrivals_s.items():
            if rank != last:
                spans[last, rank].append((arrived, begun))
    waiting = {activity.rank: activity.waiting for activity in seen or ()}
    by_last: dict[int, list[float]] = defaultdict(list)
    for (last, rank), intervals in spans.items():
        whole = union(intervals)
        parts = whole if seen is None else _overlap(whole, waiting.get(rank, []))
        by_last[last].append(sum(end - start for start, end in parts))
    return {last: statistics.fmean(sums) for last, sums in by_last.items()}


def _overlap(few: list[Interval], many: list[Interval]) -> list[Interval]:
    """The same as `intersect`, for a first list that is much shorter than the second."""
    found = []
    for start, end in few:
        at = bisect.bisect_right(many, start, key=lambda interval: interval[1])
        while at < len(many) and many[at][0] < end:
            found.append((max(start, many[at][0]), min(end, many[at][1])))
            at += 1
    return found


def _standing_still(
    rank: int,
    met: list[Meeting],
    spans: Mapping[SpanKind, list[Interval]],
    *,
    broken_off: bool,
) -> tuple[list[Interval], list[Interval]]:
    """When the rank was blocked in collectives, and when the collectives waited for other ranks."""
    blocked, waiting, beside = [], [], []
    for meeting in met:
        call = meeting.calls[rank]
        if rank in meeting.inside:
            for at, (start, ended) in enumerate(meeting.inside[rank]):
                begun = max(spans_of[at][0] for spans_of in meeting.inside.values())
                beside.append((start, ended))
                waiting.append((start, min(begun, ended)))
            continue
        end = meeting.ends_s.get(rank)
        if call.entered_s is None or (end is None and not call.asynchronous):
            continue
        wait = meeting.wait_s(rank)
        if end is None:  # the waits for its handle are measured on their own
            if wait:
                waiting.append((call.entered_s, call.entered_s + wait))
            continue
        if broken_off and len(meeting.calls) < len(meeting.members):  # waited in vain
            wait = end - call.entered_s
        if wait:
            waiting.append((call.entered_s, call.entered_s + wait))
        if meeting.is_bucket:
            beside.append((call.entered_s, end))
        elif call.source == "flight recorder" or not call.asynchronous:
            blocked.append((call.entered_s, end))
    # buckets are reduced during backward; only the time after it delays the rank
    work = [i for kind in _WORK for i in spans.get(kind, [])]
    blocked += subtract(union(beside), union(work))
    blocked += spans.get("wait", [])
    return blocked, waiting


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals in order; those that touch are joined."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def intersect(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """The intersection of two unions."""
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
    """The part of one union that is not in another."""
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
