"""Matches the calls of all ranks that belong to one collective, with their times.

The views of collectives and of time use these facts, which are derived from observations.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from .collective import Call
from .operations import BLOCKS_HOST, as_recorded, from_recorder
from .snapshot import Snapshot
from .timeline import IN_GRAPH, RankTimeline

#: Bytes of an element. For other types, the digits of the name show it (``float8_e4m3fn``).
_ITEM_BYTES = {"bool": 1, "complex32": 4, "complex64": 8, "complex128": 16}
#: The largest difference between the times of a call's record and of the profiler's span. On the
#: recorded runs, 0.1 to 80 ms match the same spans (`benchmarks.thresholds`).
_TOLERANCE_S = 2e-3
#: A span that belongs to an asynchronous call begins at most this long after the call. On the
#: recorded runs, 10 ms to 4 s match the same spans (`benchmarks.thresholds`).
_LATEST_START_S = 0.1
_BUCKET = "DDP bucket"


@dataclass(frozen=True)
class Meeting:
    """One collective, with the calls of all ranks that entered it.

    Attributes
    ----------
    group, sequence
        The group of the collective, and its number on that group.
    members
        Ranks of the group.
    calls
        The call of each rank that entered.
    ends_s
        When it ended on each rank for which that is known, in monotonic seconds.
    label
        Why a library issued it, such as ``"DDP bucket 1/3"``; empty for the user's own calls.
    issued
        Whether the calls only issued it to a device, so that waits of the ranks are not known.
    inside
        Of each rank, beginning and end of the collectives inside of a graph that it executed; the
        same number of each rank. Empty for a collective of its own, and where nothing was traced.
    """

    group: str
    sequence: int
    members: tuple[int, ...]
    calls: dict[int, Call]
    ends_s: dict[int, float]
    label: str = ""
    issued: bool = False
    inside: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    @cached_property
    def first(self) -> Call:
        """The call of the lowest rank, which shows what was called."""
        return self.calls[min(self.calls)]

    @cached_property
    def arrivals_s(self) -> dict[int, float]:
        """When each rank entered, in order of time."""
        known = {r: c.entered_s for r, c in self.calls.items() if c.entered_s is not None}
        # before the first collective inside of a graph, the rank did its own work
        known |= {rank: spans[0][0] for rank, spans in self.inside.items()}
        return dict(sorted(known.items(), key=lambda item: item[1]))

    @cached_property
    def mismatched(self) -> bool:
        """Whether the ranks entered different operations, so that it did not end well."""
        ways = {call.op for call in self.calls.values()}
        return len(ways) > 1 and any(call.status != "done" for call in self.calls.values())

    @cached_property
    def complete(self) -> bool:
        """Whether every member is known to have entered it, and no other operation instead."""
        return len(self.arrivals_s) >= max(2, len(self.members)) and not self.mismatched

    @property
    def straggler(self) -> int | None:
        """The rank that entered last, None if not all are known."""
        return list(self.arrivals_s)[-1] if self.complete else None

    @cached_property
    def begun_s(self) -> float | None:
        """When the last rank entered, which is when the transfer begins."""
        return list(self.arrivals_s.values())[-1] if self.complete else None

    @cached_property
    def late_s(self) -> float:
        """How much later the last rank entered than the median of the others."""
        if not self.complete:
            return 0.0
        *others, last = self.arrivals_s.values()
        return last - statistics.median(others)

    def wait_s(self, rank: int) -> float | None:
        """How long a rank waited for the last one."""
        begun, arrived = self.begun_s, self.arrivals_s.get(rank)
        if self.issued or begun is None or arrived is None:
            return None
        return max(0.0, min(begun, self.ends_s.get(rank, begun)) - arrived)

    @property
    def is_bucket(self) -> bool:
        """Whether DDP issued it for gradients, during the backward pass."""
        return self.label.startswith(_BUCKET)

    @property
    def transfer_s(self) -> float | None:
        """The time from the last arrival to the end on the last rank; None if not measured."""
        if self.begun_s is None or len(self.ends_s) < len(self.calls):
            return None
        if any(call.status == "failed" for call in self.calls.values()):
            return None
        if self.inside:
            together = zip(*self.inside.values(), strict=True)
            times = [(max(s for s, _ in spans), max(e for _, e in spans)) for spans in together]
            return math.fsum(max(0.0, end - start) for start, end in times)
        return max(0.0, max(self.ends_s.values()) - self.begun_s)

    @property
    def bytes(self) -> int | None:
        """Bytes of the tensors of one rank, None for calls without tensors."""
        return call_bytes(self.first)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes of one rank divided by the time of the transfer."""
        if not self.bytes or not self.transfer_s:
            return None
        return self.bytes / self.transfer_s


def item_bytes(dtype: str) -> int | None:
    """Bytes of one element of ``"float32"``; None if the name does not show it."""
    if dtype in _ITEM_BYTES:
        return _ITEM_BYTES[dtype]
    digits = "".join(ch if ch.isdigit() else " " for ch in dtype.partition("_")[0]).split()
    return max(1, int(digits[0]) // 8) if digits else None


def call_bytes(call: Call) -> int | None:
    """Bytes of the tensors that a rank passed in, None if it passed none."""
    sizes = [item_bytes(dtype) for dtype in call.dtypes]
    if not sizes or len(sizes) != len(call.shapes) or None in sizes:
        return None
    return sum(
        math.prod(shape) * size
        for shape, size in zip(call.shapes, sizes, strict=True)
        if size is not None
    )


def meetings(snapshot: Snapshot) -> list[Meeting]:
    """Every collective of a run, in order of time."""
    timelines = {timeline.rank: timeline for timeline in snapshot.timeline}
    issued = snapshot.calls_only_issue
    found: dict[tuple[str, int], dict[int, Call]] = defaultdict(dict)
    ends: dict[int, dict[int, float]] = {}
    for report in snapshot.ranks:
        ends[report.rank] = call_ends(report.calls, timelines.get(report.rank), issued=issued)
        for call in report.calls:
            if call.kind == "collective" and call.sequence is not None:
                found[call.group, call.sequence][report.rank] = call
    labels = _bucket_labels(found, timelines)
    inside = {rank: _InGraphs(timeline) for rank, timeline in timelines.items()}
    result = [
        Meeting(
            group=group,
            sequence=sequence,
            members=next(iter(calls.values())).members or snapshot.groups.get(group, ()),
            calls=dict(sorted(calls.items())),
            ends_s={
                rank: ends[rank][call.index]
                for rank, call in calls.items()
                if call.index in ends[rank]
            },
            label=labels.get((group, sequence), ""),
            issued=issued and not _blocks_host(next(iter(calls.values()))),
            inside=_all_inside(calls, inside),
        )
        for (group, sequence), calls in found.items()
    ]
    result.sort(key=lambda m: (next(iter(m.arrivals_s.values()), 0.0), m.group, m.sequence))
    return result


def lateness(met: list[Meeting]) -> dict[int, list[float]]:
    """For each rank that entered last, by how much it was late each time, in seconds."""
    found: dict[int, list[float]] = defaultdict(list)
    for meeting in met:
        if meeting.straggler is not None:
            found[meeting.straggler].append(meeting.late_s)
    return dict(found)


def _blocks_host(call: Call) -> bool:
    return call.source == "call log" and call.op in BLOCKS_HOST


def call_ends(
    calls: tuple[Call, ...], timeline: RankTimeline | None, *, issued: bool
) -> dict[int, float]:
    """When each call of one rank ended, by the call's index, if that was measured.

    A synchronous call of the user ends when it returns. Other calls return at once and end with
    the profiler's span, which has the name of the operation and begins where the call was made.
    If calls only issue collectives to a device, both times are those of the host, and no end.
    """
    ends = {
        call.index: call.left_s
        for call in calls
        if call.source == "call log" and not call.asynchronous and call.left_s is not None
        if not issued or _blocks_host(call)
    }
    if timeline is None or issued:
        return ends
    begins: dict[str, list[float]] = defaultdict(list)
    finishes: dict[str, list[float]] = defaultdict(list)
    for span in timeline.spans():
        if span.kind == "collective":
            op = from_recorder(span.name)
            begins[op].append(span.start_s)
            finishes[op].append(span.end_s)
    inside = [
        (call.entered_s, call.left_s) for call in calls if call.index in ends and call.entered_s
    ]
    used = {op: _within(starts, inside) for op, starts in begins.items()}
    for call in calls:
        if call.index in ends or call.entered_s is None:
            continue
        op = call.op if call.source == "flight recorder" else as_recorded(call.op)
        at = _next_span(begins.get(op, []), used.get(op, set()), call.entered_s)
        if at is not None:
            used[op].add(at)
            ends[call.index] = finishes[op][at]
    return ends


class _InGraphs:
    """The collectives that a rank ran inside of graphs, in order of time."""

    def __init__(self, timeline: RankTimeline) -> None:
        spans = (span for span in timeline.spans() if span.name.startswith(IN_GRAPH))
        self._spans = sorted((span.start_s, span.end_s) for span in spans)

    def of(self, call: Call) -> list[tuple[float, float]]:
        """Those of one call."""
        if call.entered_s is None or call.left_s is None:
            return []
        low = bisect.bisect_left(self._spans, (call.entered_s,))
        return self._spans[low : bisect.bisect_right(self._spans, (call.left_s,))]


def _all_inside(
    calls: dict[int, Call], known: dict[int, _InGraphs]
) -> dict[int, list[tuple[float, float]]]:
    """What each rank ran inside of its call; nothing if that is not the same number on each."""
    if not all(rank in known for rank in calls):
        return {}
    found = {rank: known[rank].of(call) for rank, call in calls.items()}
    counts = {len(spans) for spans in found.values()}
    return found if len(counts) == 1 and 0 not in counts else {}


def _within(starts: list[float], calls: list[tuple[float, float | None]]) -> set[int]:
    """The indices of the spans that lie within synchronous calls."""
    taken: set[int] = set()
    for entered, left in calls:
        low = bisect.bisect_left(starts, entered)
        taken.update(range(low, bisect.bisect_right(starts, left or entered)))
    return taken


def _next_span(starts: list[float], used: set[int], entered_s: float) -> int | None:
    """The first unused span that begins when a call was made."""
    at = bisect.bisect_left(starts, entered_s - _TOLERANCE_S)
    while at < len(starts) and at in used:
        at += 1
    return at if at < len(starts) and starts[at] <= entered_s + _LATEST_START_S else None


def _bucket_labels(
    found: dict[tuple[str, int], dict[int, Call]], timelines: dict[int, RankTimeline]
) -> dict[tuple[str, int], str]:
    """Name the collectives that DDP issued for its buckets, found by size and order."""
    layouts = sorted({layout for t in timelines.values() for layout in t.buckets if layout})
    labels = {}
    reached: dict[str, tuple[tuple[int, ...], int]] = {}
    for (group, sequence), calls in sorted(found.items()):
        call = calls[min(calls)]
        if call.source != "flight recorder" or (call.caller is None and call.where is not None):
            continue
        label, size = call.caller or "library", call_bytes(call)
        if call.op == "all_reduce":
            layout, at = reached.get(group, ((), 0))
            if at >= len(layout) or layout[at] != size:
                layout, at = next((b for b in layouts if b[0] == size), ()), 0
            if layout:
                label = f"{_BUCKET} {at + 1}/{len(layout)}"
            reached[group] = (layout, at + 1)
        labels[group, sequence] = label
    return labels
