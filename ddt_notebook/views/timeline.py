"""When each rank worked, waited and moved data, from measured times only."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from ..model import Snapshot
from ..model.meetings import Meeting, lateness, meetings
from ..model.shares import RankShare, TimeWindow, shares, time_window
from ..model.timeline import Span
from . import export, figures, flags, html, observed, strips, table, text, words
from .figures import Bar, Figure, Figured, Kind, Lanes
from .times import rate, short, straggler_flags

#: With more ranks than this, the ones that waited least and most are shown in a terminal.
ROWS = 16

_HEAD = ("rank", "own work", "waiting", "communication", "data", "came last", "cost the others")
_TEXT_HEAD = ("rank", "own work", "waiting", "comm.", "data", "came last", "cost others")

# the rank itself, and below it the collectives that run beside it
_WAITING = Kind("waiting for a rank", "#E69F00", "/")
_MOVING = Kind("communication", "#56B4E9", "x")
_SPANS = {
    "forward": Kind("forward", "#009E73"),
    "backward": Kind("backward", "#0072B2", "\\"),
    "optimizer": Kind("optimizer", "#CC79A7"),
    "data": Kind("loading data", "#D55E00", "."),
    "user": Kind("record_function", "#999999", "-", -0.33, 0.12),
}
_COLLECTIVE = {
    "waiting": Kind("collective: waiting for a rank", "#E69F00", "/", 0.36, 0.16),
    "transfer": Kind("collective: transfer", "#56B4E9", "x", 0.36, 0.16),
}


class TimelineView(Figured):
    """The time of each rank: a picture, the share of each activity, the stragglers.

    Parameters
    ----------
    snapshot
        Of a run with ``trace=True``; of any other, the user's own synchronous collectives.
    """

    __slots__ = ("_met", "_shares", "flags", "snapshot", "window")

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._met = meetings(snapshot)
        self.window: TimeWindow | None = time_window(snapshot, self._met)
        inside = self._met
        if self.window is not None and self.window.first_step is not None:
            inside = [m for m in inside if m.begun_s is None or m.begun_s >= self.window.start_s]
        self._shares = shares(snapshot, self._met, self.window) if self.window else []
        length = self.window.end_s - self.window.start_s if self.window else 0.0
        self.flags = straggler_flags(inside, length)

    # -- faces ---------------------------------------------------------------------------------

    def to_text(self) -> str:
        """The shares, and a strip of signs for each rank."""
        lines = [self._title(), *flags.to_text(self.flags, self._healthy())]
        if self.window is not None:
            lines += text.wrap("", self._summary())
            shown = self._shown()
            lines += table.columns([self._row(s) for s in shown], _TEXT_HEAD, range(1, 7))
            width = max(len(str(share.rank)) for share in shown)
            for share in shown:
                kinds = strips.strip(share, self.window.start_s)
                lines.append(f"  rank {share.rank:>{width}} │{strips.as_text(kinds)}│")
            if len(shown) < len(self._shares):
                lines.append(f"  and {words.count(len(self._shares) - len(shown), 'more rank')}")
            lines.append(f"  {strips.legend()}")
        return "\n".join([*lines, *(f"  {note}" for note in self._notes())])

    def to_html(self) -> str:
        """The same, with the strips in colour and the table below."""
        parts: list[str] = [observed.heading(self._title())]
        parts += flags.to_html(self.flags, self._healthy())
        if self.window is not None:
            parts.append(html.line(self._summary()))
            rows = [
                (str(s.rank), strips.as_html(strips.strip(s, self.window.start_s)))
                for s in self._shares
            ]
            parts.append(html.table(rows, ("rank", strips.legend())))
            shares_table = html.table(map(self._row, self._shares), _HEAD)
            parts.append(html.details("share of time of each rank", shares_table))
        parts += map(html.line, self._notes())
        return html.view(*parts)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each rank: its time in milliseconds."""
        late = lateness(self._met)
        columns = ("rank", "compute_ms", "waiting_ms", "communication_ms", "data_ms")
        rows = [
            {
                "rank": s.rank,
                "compute_ms": 1e3 * s.compute_s,
                "waiting_ms": 1e3 * s.waiting_s,
                "communication_ms": 1e3 * s.communication_s,
                "data_ms": 1e3 * s.data_s,
                "came_last": len(late.get(s.rank, ())),
                "cost_ms": 1e3 * sum(late.get(s.rank, ())),
            }
            for s in self._shares
        ]
        return observed.frame(rows, (*columns, "came_last", "cost_ms"))

    def to_plotly(self) -> Figure:
        """A Gantt chart; close spans are drawn as one where there are too many."""
        lanes, length_ms = self._lanes()
        distance = lanes.thin(length_ms)
        ranks = [report.rank for report in self.snapshot.ranks]
        plain = figures.gantt(lanes, ranks, self._describe)
        if distance:
            note = f"spans less than {short(distance / 1e3)} apart are drawn as one"
            plain["layout"]["annotations"] = [
                {"text": note, "xref": "paper", "yref": "paper", "x": 1, "y": 0, "showarrow": False}
            ]
        return plain

    # -- export --------------------------------------------------------------------------------

    def save_chrome_trace(self, path: str | Path) -> Path:
        """Write a trace of all ranks for Perfetto (https://ui.perfetto.dev); returns the path."""
        return export.chrome_trace(self.snapshot, self._met, path)

    def save_hta(self, folder: str | Path) -> Path:
        """Write a folder with one trace for each rank, as Holistic Trace Analysis reads it."""
        return export.hta_folder(self.snapshot, self._met, folder)

    # -- words ---------------------------------------------------------------------------------

    def _title(self) -> str:
        return observed.title("timeline", self.snapshot, len(self._shares))

    def _healthy(self) -> str:
        if self.window is None:
            return "no collective was called, and the run was not traced"
        return "no rank made the others wait for long"

    def _summary(self) -> str:
        assert self.window is not None
        length = self.window.end_s - self.window.start_s
        parts = [f"{self.window.name}, {short(length)}"]
        steps = [
            after - before
            for timeline in self.snapshot.timeline
            for before, after in zip(timeline.steps_s, timeline.steps_s[1:], strict=False)
        ]
        if steps:
            parts.append(f"step {short(statistics.median(steps))} (median)")
        moved = [m for m in self._met if m.bytes and m.transfer_s]
        busy = sum(m.transfer_s or 0 for m in moved)
        if busy:
            moving = rate(sum(m.bytes or 0 for m in moved) / busy)
            parts.append(f"collectives moved {moving} from each rank while they transferred")
        return " · ".join(parts)

    def _notes(self) -> list[str]:
        notes = []
        if not self.snapshot.timeline:
            notes.append("not traced: %%ddt_debug also shows steps and collectives of DDP")
        for timeline in self.snapshot.timeline:
            until = timeline.traced_until_s
            if until is not None and until < timeline.ended_s - 0.5:
                notes.append(f"rank {timeline.rank}: recorded for the first {short(until - timeline.started_s)}")
            if timeline.spans_left_out:
                left_out = words.count(timeline.spans_left_out, "later span")
                notes.append(f"rank {timeline.rank}: {left_out} left out")
        return notes[:4]

    def _shown(self) -> list[RankShare]:
        if len(self._shares) <= ROWS:
            return self._shares
        by_wait = sorted(self._shares, key=lambda share: (share.waiting_s, share.rank))
        chosen = by_wait[: ROWS // 2] + by_wait[-ROWS // 2 :]
        return sorted(chosen, key=lambda share: share.rank)

    def _row(self, share: RankShare) -> tuple[str, ...]:
        late = lateness(self._met).get(share.rank, [])
        return (
            str(share.rank),
            _percent(share.compute_s, share.window_s),
            _percent(share.waiting_s, share.window_s),
            _percent(share.communication_s, share.window_s),
            _percent(share.data_s, share.window_s),
            f"{len(late)}×",
            short(sum(late)) if late else "",
        )

    # -- the picture ---------------------------------------------------------------------------

    def _lanes(self) -> tuple[Lanes, float]:
        lanes = Lanes()
        starts = [t.started_s for t in self.snapshot.timeline]
        if self.window is not None:
            starts.append(self.window.start_s)
        start = min(starts, default=0.0)
        end = start
        for timeline in self.snapshot.timeline:
            by_kind: dict[str, list[Bar]] = {}
            for span in timeline.spans():
                if span.kind in _SPANS:
                    bar = (1e3 * (span.start_s - start), 1e3 * (span.end_s - start), span)
                    by_kind.setdefault(span.kind, []).append(bar)
            for name, kind in _SPANS.items():
                lanes.add(kind, timeline.rank, by_kind.get(name, []))
            end = max(end, timeline.ended_s)
        for share in self._whole():
            for kind, intervals in ((_WAITING, share.waiting), (_MOVING, share.communication)):
                bars = [(1e3 * (a - start), 1e3 * (b - start), (kind, b - a)) for a, b in intervals]
                lanes.add(kind, share.rank, bars)
        for rank, bars_by_name in self._collective_bars(start).items():
            for name, bars in bars_by_name.items():
                lanes.add(_COLLECTIVE[name], rank, bars)
        ends = [bars[-1][1] for bars in lanes.bars.values()]
        return lanes, max([*ends, 1e3 * (end - start)])

    def _whole(self) -> list[RankShare]:
        """Waiting and communication over the whole cell, not of the window only."""
        times = [s for m in self._met for s in (*m.arrivals_s.values(), *m.ends_s.values())]
        if not times:
            return []
        return shares(self.snapshot, self._met, TimeWindow(min(times), max(times)))

    def _collective_bars(self, start: float) -> dict[int, dict[str, list[Bar]]]:
        found: dict[int, dict[str, list[Bar]]] = {}
        for meeting in self._met:
            begun = meeting.begun_s
            for rank, arrived in meeting.arrivals_s.items():
                end = meeting.ends_s.get(rank)
                if begun is None or end is None:
                    continue
                middle = min(max(arrived, begun), end)
                bars = found.setdefault(rank, {"waiting": [], "transfer": []})
                came, left = 1e3 * (arrived - start), 1e3 * (end - start)
                if middle > arrived:
                    bars["waiting"].append((came, 1e3 * (middle - start), meeting))
                if end > middle:
                    bars["transfer"].append((1e3 * (middle - start), left, meeting))
        return found

    def _describe(self, what: Any, rank: int) -> str:
        if isinstance(what, Span):
            return f"{what.name} · {short(what.end_s - what.start_s)}"
        if isinstance(what, Meeting):
            return _describe_meeting(what, rank)
        kind, seconds = what
        return f"{kind.name} · {short(seconds)}"


def _describe_meeting(meeting: Meeting, rank: int) -> str:
    call = meeting.calls[rank]
    parts = [call.label]
    if meeting.label:
        parts.append(meeting.label)
    if meeting.bytes is not None:
        parts.append(words.size(meeting.bytes))
    wait = meeting.wait_s(rank)
    if wait and meeting.straggler is not None:
        parts.append(f"waited {short(wait)} for rank {meeting.straggler}")
    if meeting.transfer_s is not None:
        parts.append(f"transfer {short(meeting.transfer_s)}")
    if call.where is not None:
        parts.append(call.where.label)
    return " · ".join(parts)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""
