"""The timeline of a run in columns, as compact text for the interactive viewer.

The text is base64 of compressed bytes, so no character of a stranger stands in a page as it is.
`extension/src/viewer/data.ts` reads it.
"""

from __future__ import annotations

import base64
import json
import math
import sys
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..formatting import host_shown, naming_hosts, ranks_label
from ..model import Call, Position, Snapshot
from ..model.meetings import Meeting, meetings
from ..model.shares import activities, open_waits
from ..model.timeline import SpanKind
from . import marks, safe, words

#: Largest text; short events that stand together become one event until it fits.
LIMIT_BYTES = 1_000_000
#: The kinds of events; extension/src/viewer has their colours in this order.
KINDS = (
    *("", "forward", "backward", "optimizer", "loading data", "record_function"),
    *("waiting for a rank", "communication", "other own work", "issued, end not known"),
)
_SPANS: dict[SpanKind, int] = {"forward": 1, "backward": 2, "optimizer": 3, "data": 4, "user": 5}
_WAITING, _MOVING, _WORK, _ISSUED = 6, 7, 8, 9
_SEVERAL = 0xFFFFFFFF
#: Name, group, sequence number, line, ranks that entered, the last one, and how late it was.
_CALL_COLUMNS = 7
#: Steps whose ends are shown.
_STEPS = 5000
_TEXT = 160


class Event(NamedTuple):
    """Microseconds since the beginning; ``of``: the number of a name, or of a call."""

    start: int
    length: int
    wait: int
    kind: int
    of: int
    #: How many events it stands for.
    events: int = 1


@dataclass(slots=True)
class _Lane:
    rank: int
    work: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)


class _Numbers:
    """Numbers things in the order in which they are first seen."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def of(self, thing: Any) -> int:
        return self.known.setdefault(thing, len(self.known))


def encode(snapshot: Snapshot, limit: int = LIMIT_BYTES) -> str:
    """The timeline of a run as text; empty if no time of it is known.

    Parameters
    ----------
    snapshot
        Of any run; one with ``trace=True`` has most to show.
    limit
        Largest length of the text.
    """
    found = _Timeline(snapshot)
    if found.length <= 0 or not any(lane.work or lane.calls for lane in found.lanes):
        return ""
    text = found.encoded(0)
    shortest = max(1, found.length // 100_000)
    while len(text) > limit and shortest < found.length:
        text = found.encoded(shortest)
        shortest *= 4
    return text


class _Timeline:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        met = meetings(snapshot)
        self._waits = open_waits(snapshot)
        self.begun_s, self.ended_s = self._extent(met)
        self.length = self._us(self.ended_s)
        self.names, self.groups, self.places = _Numbers(), _Numbers(), _Numbers()
        self._members: dict[str, tuple[int, ...]] = dict(snapshot.groups)
        self.calls: list[tuple[int, ...]] = []
        self.lanes = [_Lane(r.rank) for r in snapshot.ranks if r.state != "idle"]
        by_rank = {lane.rank: lane for lane in self.lanes}
        self._add_work(by_rank, met)
        self._add_meetings(by_rank, met)
        self._add_messages(by_rank)
        for lane in self.lanes:
            # of events that begin together, the longer is drawn first, below the other
            lane.work.sort(key=lambda event: (event.start, -event.length))
            lane.calls.sort(key=lambda event: (event.start, -event.length))

    def _extent(self, met: Sequence[Meeting]) -> tuple[float, float]:
        times = [s for m in met for s in (*m.arrivals_s.values(), *m.ends_s.values())]
        times += [s for t in self.snapshot.timeline for s in (t.started_s, t.ended_s)]
        times += [s for wait in self._waits.values() for s in wait]
        times += [
            s
            for report in self.snapshot.ranks
            for call in report.calls
            if call.kind == "p2p"
            for s in (call.entered_s, call.left_s)
            if s is not None
        ]
        times = [s for s in times if math.isfinite(s)]
        return min(times, default=0.0), max(times, default=0.0)

    def _us(self, at_s: float) -> int:
        """Microseconds since the beginning, for times of a file that was changed, too."""
        if not math.isfinite(at_s):
            return 0
        return round(1e6 * (min(max(at_s, self.begun_s), self.ended_s) - self.begun_s))

    def _event(self, start_s: float, end_s: float, kind: int, of: int, wait_s: float = 0) -> Event:
        start = self._us(start_s)
        length = max(0, self._us(end_s) - start)
        wait = min(length, round(1e6 * wait_s)) if math.isfinite(wait_s) and wait_s > 0 else 0
        return Event(start, length, wait, kind, of)

    def _add_work(self, lanes: dict[int, _Lane], met: list[Meeting]) -> None:
        kinds = [self.names.of(name) for name in KINDS]
        for timeline in self.snapshot.timeline:
            if (lane := lanes.get(timeline.rank)) is None:
                continue
            until = timeline.traced_until_s or timeline.ended_s
            lane.work.append(self._event(timeline.started_s, until, _WORK, kinds[_WORK]))
            for span in timeline.spans():
                if span.kind in _SPANS:
                    name = self.names.of(safe.one_line(span.name, _TEXT))
                    kind = _SPANS[span.kind]
                    lane.work.append(self._event(span.start_s, span.end_s, kind, name))
        for activity in activities(self.snapshot, met):
            if (lane := lanes.get(activity.rank)) is None:
                continue
            for kind, parts in (
                (_WAITING, activity.waiting),
                (_MOVING, activity.communication),
            ):
                for start, end in parts:
                    lane.work.append(self._event(start, end, kind, kinds[kind]))

    def _add_meetings(self, lanes: dict[int, _Lane], met: Iterable[Meeting]) -> None:
        blocked = {report.rank: report.blocked_in for report in self.snapshot.ranks}
        for meeting in met:
            self._members.setdefault(meeting.group, meeting.members)
            number = len(self.calls)
            last = meeting.straggler
            self.calls.append(
                (
                    *self._named(meeting.first, meeting.label, meeting.sequence),
                    len(meeting.calls),
                    0 if last is None else last + 1,
                    max(0, round(1e6 * meeting.late_s)) if math.isfinite(meeting.late_s) else 0,
                )
            )
            for rank, call in meeting.calls.items():
                if call.entered_s is None or rank not in lanes:
                    continue
                end, wait = meeting.ends_s.get(rank), meeting.wait_s(rank) or 0.0
                kind = _MOVING
                if end is None and blocked.get(rank) == call.index and rank in self._waits:
                    end, kind = self._waits[rank][1], _WAITING
                elif end is None:
                    end, kind = call.entered_s, _ISSUED
                elif not meeting.complete:
                    wait, kind = 0.0, _WAITING
                lanes[rank].calls.append(self._event(call.entered_s, end, kind, number, wait))

    def _add_messages(self, lanes: dict[int, _Lane]) -> None:
        for report in self.snapshot.ranks:
            for call in report.calls:
                if call.kind != "p2p" or call.entered_s is None or report.rank not in lanes:
                    continue
                end, kind = call.left_s, _MOVING
                if report.blocked_in == call.index and report.rank in self._waits:
                    end, kind = self._waits[report.rank][1], _WAITING
                elif end is None or call.asynchronous:
                    end, kind = call.entered_s, _ISSUED
                number = len(self.calls)
                peer = "" if call.peer is None else f"rank {call.peer}"
                self.calls.append((*self._named(call, peer, 0), 0, 0, 0))
                event = self._event(call.entered_s, end, kind, number)
                lanes[report.rank].calls.append(event)

    def _named(self, call: Call, label: str, sequence: int) -> tuple[int, int, int, int]:
        """The numbers of its name, its group and its line, with its sequence number."""
        tensors = f" ({call.tensor_label})" if call.tensor_label else ""
        label = f" · {label}" if label else ""
        name = safe.one_line(f"{call.op.replace(' ', '_')}{tensors}{label}", _TEXT)
        self._members.setdefault(call.group, call.members)
        place = self.places.of(call.where) + 1 if call.where is not None else 0
        return self.names.of(name), self.groups.of(call.group), sequence, place

    # -- as text -----------------------------------------------------------------------------------

    def encoded(self, shortest: int) -> str:
        """The text; events shorter than ``shortest`` microseconds that touch are one event."""
        lanes = [
            (lane.rank, _merged(lane.work, shortest), _merged(lane.calls, shortest))
            for lane in self.lanes
        ]
        used = {e.of for _, _, calls in lanes for e in calls if e.of != _SEVERAL}
        kept = sorted(used) if shortest else range(len(self.calls))
        renumbered = {old: new for new, old in enumerate(kept)}
        with naming_hosts(self.snapshot.hosts):
            hosts = {lane.rank: host_shown((lane.rank,)) for lane in self.lanes}
        # the columns hold 32 bits
        unit = 1 + self.length // 0xFFFFFFFF
        calls = [self.calls[number] for number in kept]
        header = {
            "unit": unit,
            "length": self.length,
            "kinds": KINDS,
            "names": list(self.names.known),
            "groups": [self._group(name) for name in self.groups.known],
            "places": [_place(where) for where in self.places.known],
            "calls": len(calls),
            "steps": self._steps(),
            "notes": self._notes(shortest),
            "lanes": [
                {"rank": rank, "host": hosts[rank], "work": len(work), "calls": len(calls)}
                for rank, work, calls in lanes
            ],
        }
        head = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        packed = zlib.compressobj(9)
        parts = [packed.compress(part) for part in _with_size(head.encode("utf-8", "replace"))]
        columns = [*zip(*calls, strict=True)] if calls else [()] * _CALL_COLUMNS
        columns[-1] = tuple(us // unit for us in columns[-1])  # how late the last rank came
        parts += [packed.compress(_column(column)) for column in columns]
        for _, work, of_calls in lanes:
            parts += map(packed.compress, _columns(work, unit))
            parts += map(packed.compress, _columns(of_calls, unit, renumbered))
        return base64.b64encode(b"".join([*parts, packed.flush()])).decode("ascii")

    def _group(self, name: str) -> dict[str, Any]:
        ranks = sorted(self._members.get(name, ()))
        text = f"group {safe.middle(name)}"
        if ranks:
            text += f": ranks {safe.middle(ranks_label(ranks).partition(' ')[2], 40)}"
        return {"name": name, "text": text, "ranks": ranks}

    def _steps(self) -> list[int]:
        """When the first rank with steps ended each of them."""
        for timeline in self.snapshot.timeline:
            if timeline.steps_us:
                return [self._us(at_s) for at_s in timeline.steps_s[:_STEPS]]
        return []

    def _notes(self, shortest: int) -> list[str]:
        notes = []
        if shortest:
            notes.append(
                f"events shorter than {words.short(shortest / 1e6)} that touch are shown as one, "
                "so that the page stays small"
            )
        if not any(lane.work for lane in self.lanes):
            how = ": %%ddt_debug records it" if self.snapshot.origin == "session" else ""
            notes.append(f"the work between collectives was not recorded{how}")
        empty = [lane.rank for lane in self.lanes if not lane.work and not lane.calls]
        if empty:
            notes.append(f"nothing with a time was recorded of {ranks_label(empty)}")
        states = {report.rank: report.state for report in self.snapshot.ranks}
        finished = [rank for rank, state in states.items() if state == "finished"]
        if finished and "blocked" in states.values():
            what = words.ran(self.snapshot)
            notes.append(f"{ranks_label(finished)} finished the {what}: no more is drawn there")
        if any(timeline.spans_left_out for timeline in self.snapshot.timeline):
            notes.append("the end of a long trace is left out")
        if self.snapshot.calls_only_issue:
            notes.append(words.ISSUED)
        return notes


def _place(where: Position) -> dict[str, Any]:
    cell = where.cell
    return {
        "text": safe.one_line(where.label, _TEXT),
        "cell": cell,
        "line": where.line if cell is not None else None,
        "mark": marks.of_line(where),
    }


def _merged(events: list[Event], shortest: int) -> list[Event]:
    """Events of which short ones that begin in the same stretch of time are one."""
    if not shortest:
        return events
    result: list[Event] = []
    runs: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.length >= shortest:
            result.append(event)
        else:
            runs[event.start // shortest].append(event)
    for run in runs.values():
        result.append(run[0] if len(run) == 1 else _one(run))
    return sorted(result, key=lambda event: (event.start, -event.length))


def _one(run: list[Event]) -> Event:
    taken: Counter[int] = Counter()
    for event in run:
        taken[event.kind] += event.length - event.wait
        taken[_WAITING] += event.wait
    kind = taken.most_common(1)[0][0] if taken.total() else run[0].kind
    end = max(event.start + event.length for event in run)
    count = sum(event.events for event in run)
    return Event(run[0].start, end - run[0].start, 0, kind, _SEVERAL, count)


def _columns(
    events: Sequence[Event], unit: int, renumbered: dict[int, int] | None = None
) -> Iterator[bytes]:
    starts = [event.start // unit for event in events]
    yield _column([now - before for before, now in zip([0, *starts], starts, strict=False)])
    yield _column([event.length // unit for event in events])
    yield _column([event.wait // unit for event in events])
    yield _column([event.kind for event in events])
    yield _column([event.events - 1 for event in events])
    if renumbered is None:
        yield _column([event.of for event in events])
    else:
        yield _column([renumbered.get(event.of, _SEVERAL) for event in events])


def _with_size(head: bytes) -> tuple[bytes, bytes]:
    return len(head).to_bytes(4, "little"), head


def _column(numbers: Iterable[int]) -> bytes:
    """How many bytes each number has, then the lowest of all of them, the next ones, and so on.

    They compress better than whole numbers do. A column of zeros has no byte but the first.
    """
    found = array("I", (max(0, min(number, _SEVERAL)) for number in numbers))
    width = (max(found, default=0).bit_length() + 7) // 8
    if sys.byteorder == "big":
        found.byteswap()
    raw = found.tobytes()
    return bytes([width]) + b"".join(raw[byte::4] for byte in range(width))
