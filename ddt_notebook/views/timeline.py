"""When each rank worked, waited and moved data, from measured times only."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from ..formatting import naming_hosts, ranks_label
from ..model import Call, Snapshot
from ..model.critical_path import Part, Wait, critical_path, waits
from ..model.frameworks import known_operation
from ..model.meetings import Meeting, lateness, meetings
from ..model.shares import (
    RankShare,
    TimeWindow,
    activities,
    held_up,
    step_starts,
    subtract,
    time_window,
    typical_step,
    union,
    untimed,
)
from ..model.timeline import Span, SpanKind
from ..model.torch_features import TIMELINE
from . import chrome_trace, figures, flags, html, marks, safe, sparklines, terminal, words
from .figures import Bar, Figure, Figured, Kind, Lanes
from .html import Markup
from .run_view import RunView
from .source_positions import group
from .sparklines import slots
from .stragglers import straggler_flags, waited_without_flag
from .words import rate, short

#: With more ranks than this, the ones that waited least and most are shown: in a terminal, in HTML.
ROWS, HTML_ROWS = 16, 64
#: Height of a lane that is drawn in slots, and the smallest part of it that is drawn.
_LANE, _VISIBLE = 0.8, 0.03

#: The longest waits that are listed, and the ranks of the critical path that are named.
_WAITS = 5
#: The longest name of a lane in a terminal: with a strip it fits 80 columns.
_LABEL = 17
#: The smallest share of the critical path that is named.
_SHOWN_SHARE = 0.01

_ARROWS = "● came last, and the ranks at ↑ and ↓ had waited for it"
_WAIT_HEAD = ("came last", "who waited", "longest", "at", "collective", "line")
_HEAD = ("rank", "own work", "waiting", "communication", "data", "came last", "cost the others")
_TEXT_HEAD = ("rank", "own work", "waiting", "comm.", "data", "came last", "cost others")


# the rank itself, and below it the collectives, also those that run beside its work
_WAITING = Kind("waiting for a rank", "#E69F00", "/")
_MOVING = Kind("communication", "#56B4E9", "x")
_COLLECTIVE_WAITS = Kind("collective: waiting", "#E69F00", "/", 0.36, 0.16)
_COLLECTIVE_MOVES = Kind("collective: transfer", "#56B4E9", "x", 0.36, 0.16)
_PHASES: dict[SpanKind, Kind] = {
    "forward": Kind("forward", "#009E73"),
    "backward": Kind("backward", "#0072B2", "\\"),
    "optimizer": Kind("optimizer", "#CC79A7"),
    "data": Kind("loading data", "#D55E00", "."),
}
_SPANS = _PHASES | {"user": Kind("record_function", "#999999", "-", -0.33, 0.12)}


#: The sign's name for each slot of a lane; a row of a picture: ranks and their lane, or a title and
#: signs as they are.
Kinds: TypeAlias = list[str]
_Row: TypeAlias = tuple[list[int] | str, Kinds | str]


class TimelineView(RunView, Figured):
    """How each rank spent its time: a picture, the share of each activity, the stragglers.

    Parameters
    ----------
    snapshot
        Of a run with ``trace=True``; any other run has only the user's own synchronous collectives.
    """

    __slots__ = (
        *("_activities", "_costs", "_late", "_met", "_path", "_shares", "_step", "_untimed"),
        *("_waits", "window"),
    )

    name = "timeline"
    columns = (
        *("rank", "compute_ms", "waiting_ms", "communication_ms", "data_ms"),
        *("came_last", "cost_ms"),
    )

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._met = meetings(snapshot)
        self._late = lateness(self._met)
        self._activities = activities(snapshot, self._met)
        self._costs = self._held_up(self._met)
        self._untimed = untimed(snapshot)
        self.window = time_window(snapshot, self._met)
        self._shares = [a.share(self.window) for a in self._activities] if self.window else []
        self._step = typical_step(snapshot, self.window) if self.window else None
        self._waits: list[Wait] = []
        self._path: list[Part] = []
        if self.window:
            found = waits(snapshot, self._met, self._activities)
            if not self._untimed:
                self._path = critical_path(found, self._activities, self.window)
            begin, end = self.window.start_s, self.window.end_s
            self._waits = [wait for wait in found if begin < wait.at_s <= end]
        self.flags = self._stragglers()

    def _stragglers(self) -> list[flags.Flag]:
        if self.window is None:
            return []
        inside, costs = self._met, self._costs
        if self.window.first_step is not None:
            start = self.window.start_s
            inside = [m for m in self._met if m.begun_s is not None and m.begun_s >= start]
            costs = self._held_up(inside)
        return straggler_flags(
            self.snapshot, inside, costs, self.window.end_s - self.window.start_s
        )

    def _held_up(self, met: list[Meeting]) -> dict[int, float]:
        return held_up(met, self._activities if self.snapshot.timeline else None)

    # -- forms ---------------------------------------------------------------------------------

    def _text(self) -> list[str]:
        lines: list[str] = []
        if self.window is not None:
            lines += terminal.wrap("", self._summary())
            shown = self._shown(ROWS)
            lines += terminal.columns(self._rows(shown), _TEXT_HEAD, range(1, 7))
            whole = self._picture(self.window, shown)
            lines += _in_text(whole)
            if len(shown) < len(self._shares):
                lines.append(f"  and {words.count(len(self._shares) - len(shown), 'more rank')}")
            lines += terminal.wrap("", f"{sparklines.legend(self._signs())}{self._blank()}")
            lines += terminal.wrap("", _ARROWS) if _has_arrows(whole) else []
            lines += terminal.wrap("", self._path_words()) if self._path else []
            if self._step is not None:
                lines += terminal.wrap("", self._about_step())
                step = self._picture(self._step, shown)
                lines += _in_text(step)
                lines += terminal.wrap("", _ARROWS) if _has_arrows(step) else []
            if self._waits:
                lines += terminal.columns(self._wait_rows(brief=True), _WAIT_HEAD, indent=4)
        return [*lines, *(line for note in self._notes() for line in terminal.wrap("", note))]

    def _html(self) -> list[Markup]:
        parts = []
        if self.window is not None:
            parts.append(html.line(self._summary()))
            shown = self._shown(HTML_ROWS)
            legend = sparklines.legend_as_html(self._signs())
            parts.append(html.line(Markup(f"{legend}{self._blank()}")))
            whole = self._picture(self.window, shown)
            parts.append(_in_html(whole))
            if len(shown) < len(self._shares):
                rest = words.count(len(self._shares) - len(shown), "more rank")
                parts.append(html.line(f"and {rest}, which waited neither least nor most"))
            if _has_arrows(whole):
                parts.append(html.line(_ARROWS))
            if self._path:
                parts.append(html.line(self._path_words()))
            if self._step is not None:
                parts.append(html.heading(self._about_step()))
                step = self._picture(self._step, self._shown(ROWS))
                parts.append(_in_html(step))
                parts += [html.line(_ARROWS)] if _has_arrows(step) else []
            if self._waits:
                roles = [_role(wait.call) for wait in self._longest()]
                listed = html.table(self._wait_rows(), _WAIT_HEAD, roles=roles)
                parts.append(html.tag("div", listed, role="waits"))
            shares_table = html.table(self._rows(shown), _HEAD)
            parts.append(html.details("share of time of each rank", shares_table))
        return [*parts, *map(html.line, self._notes())]

    def to_frame(self) -> Any:
        """One row for each rank, as a pandas DataFrame.

        The first four times are parts of the stretch of time that the title of the view names.

        - ``rank``: global rank
        - ``compute_ms``: the rank's own work, in milliseconds; in a run that was not traced with
          the collectives of DDP and asynchronous ones
        - ``waiting_ms``: waiting for other ranks, in milliseconds
        - ``communication_ms``: moving bytes while the rank did nothing else, in milliseconds
        - ``data_ms``: loading data, in milliseconds
        - ``came_last``: number of collectives to which the rank came last
        - ``cost_ms``: milliseconds for which it made the other ranks wait
        """
        return super().to_frame()

    def _records(self) -> list[dict[str, Any]]:
        return [
            {
                "rank": s.rank,
                "compute_ms": 1e3 * s.compute_s,
                "waiting_ms": 1e3 * s.waiting_s,
                "communication_ms": 1e3 * s.communication_s,
                "data_ms": 1e3 * s.data_s,
                "came_last": len(self._late.get(s.rank, ())),
                "cost_ms": 1e3 * self._costs.get(s.rank, 0.0),
            }
            for s in self._shares
        ]

    def to_plotly(self) -> Figure:
        """A Gantt chart of the whole cell; see `zoom`."""
        return self.zoom()

    def zoom(self, start_ms: float | None = None, end_ms: float | None = None) -> Figure:
        """A Gantt chart of a part of the cell; a shorter part is drawn in more detail.

        Parameters
        ----------
        start_ms, end_ms
            Milliseconds since the cell began; default: all of it.
        """
        begin, finish = self._extent()
        low = begin if start_ms is None else begin + start_ms / 1e3
        high = finish if end_ms is None else begin + end_ms / 1e3
        with naming_hosts(self.snapshot.hosts):
            return self._drawn(begin, low, high)

    def _drawn(self, begin: float, low: float, high: float) -> Figure:
        ranks = [report.rank for report in self.snapshot.ranks]
        lanes = self._bars(begin, low, high)
        if lanes is not None:
            plain = figures.gantt(lanes, ranks, self._describe)
        else:
            plain = figures.gantt(self._slots(begin, low, high), ranks, self._describe_slot)
            began = "run" if self._is_script else "cell"
            title = f"ms since the {began} began · height of a colour: its share of the time"
            plain["layout"]["xaxis"]["title"]["text"] = title
        above = [self._title(), *flags.as_lines(self.flags, self._healthy())]
        return figures.framed(
            plain, above, _TEXT_HEAD, [self._row(share) for share in self._shown(HTML_ROWS)]
        )

    @property
    def duration_ms(self) -> float:
        """Length of what can be drawn, in milliseconds."""
        begin, finish = self._extent()
        return 1e3 * (finish - begin)

    def _extent(self) -> tuple[float, float]:
        times = [s for m in self._met for s in (*m.arrivals_s.values(), *m.ends_s.values())]
        times += [s for t in self.snapshot.timeline for s in (t.started_s, t.ended_s)]
        return min(times, default=0.0), max(times, default=0.0)

    # -- export --------------------------------------------------------------------------------

    def save_chrome_trace(self, path: str | Path) -> Path:
        """Write a trace of all ranks for Perfetto (https://ui.perfetto.dev); returns the path."""
        return chrome_trace.chrome_trace(self.snapshot, self._met, path)

    def save_hta(self, folder: str | Path) -> Path:
        """Write a folder with one trace for each rank, as Holistic Trace Analysis reads it."""
        return chrome_trace.hta_folder(self.snapshot, self._met, folder)

    # -- words ---------------------------------------------------------------------------------

    def _ranks(self) -> int:
        return len(self._shares)

    def _healthy(self) -> str:
        if self.window is None:
            return "no collective was called, and the run was not traced"
        if self.snapshot.calls_only_issue:
            return "how long the devices waited for a rank is not known"
        waited = waited_without_flag(
            self.snapshot, self._costs, self.window.end_s - self.window.start_s
        )
        return waited or "no rank made the others wait for long"

    def _summary(self) -> str:
        assert self.window is not None
        length = self.window.end_s - self.window.start_s
        whole = "the whole run" if self._is_script else "the whole cell"
        parts = [f"{self.window.name or whole}, {short(length)}"]
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

    def _blank(self) -> str:
        ended = any(activity.ended_s is not None for activity in self._activities)
        return " · blank: ended" if ended else ""

    @property
    def _is_script(self) -> bool:
        return bool(self.snapshot.cell.file) or self.snapshot.origin != "session"

    def _notes(self) -> list[str]:
        notes = self._not_observed(TIMELINE)
        if self.snapshot.calls_only_issue:
            notes.append(words.ISSUED)
        elif not self.snapshot.timeline and self.snapshot.origin == "session":
            graphs = any(known_operation(m.first.op) is None for m in self._met)
            notes.append(
                "not traced: what a graph computes counts as waiting or communication here; "
                "%%ddt_debug shows its steps and collectives"
                if graphs
                else "not traced: %%ddt_debug also shows steps and collectives of DDP"
            )
        elif self._untimed:
            notes.append(
                "of collectives that a library starts, only the start is recorded in a job"
            )
        for timeline in self.snapshot.timeline:
            until = timeline.traced_until_s
            if until is not None and until < timeline.ended_s - 0.5:
                length = short(until - timeline.started_s)
                notes.append(f"{words.ranks([timeline.rank])}: recorded for the first {length}")
            if timeline.spans_left_out:
                left_out = words.count(timeline.spans_left_out, "later span")
                notes.append(f"{words.ranks([timeline.rank])}: {left_out} left out")
        return notes[:4]

    def _shown(self, limit: int) -> list[RankShare]:
        if len(self._shares) <= limit:
            return self._shares
        if len(self._shares) <= HTML_ROWS:  # ranks that are alike share a row and a lane
            assert self.window is not None
            lanes = self._lanes(self._shares, self.window)
            folded = max(len(lanes), len(self._rows(self._shares)))
            if folded <= limit:
                return self._shares
        by_wait = sorted(self._shares, key=lambda share: (share.waiting_s, share.rank))
        chosen = by_wait[: limit // 2] + by_wait[-limit // 2 :]
        return sorted(chosen, key=lambda share: share.rank)

    def _about_step(self) -> str:
        assert self._step is not None
        length = short(self._step.end_s - self._step.start_s)
        about = "from the start of the first rank to the end of the last"
        return f"{self._step.name}, one of median length: {length} {about}"

    def _picture(self, window: TimeWindow, shown: list[RankShare]) -> list[_Row]:
        """The rows of a picture: the steps, ranks in lanes, the critical path, the time."""
        rows: list[_Row] = []
        if window is self.window and (starts := step_starts(self.snapshot, window)):
            rows.append(("step", sparklines.numbered(starts, window)))
        rows += self._lanes(shown, window)
        if self._path:
            rows.append(("path", self._path_strip(window)))
        ruler = sparklines.ruler(window.end_s - window.start_s)
        return [*rows, *([("", ruler)] if ruler else [])]

    def _lanes(self, shown: list[RankShare], window: TimeWindow) -> list[tuple[list[int], Kinds]]:
        """The strips of these ranks; ranks with the same strip share a lane.

        Arrows point from a rank that came last to those that had waited: in the picture of one
        step, or else of the whole run.
        """
        by_rank = {activity.rank: activity for activity in self._activities}
        rest = self._signs()[0]
        strips = {s.rank: sparklines.strip(by_rank[s.rank], window, rest) for s in shown}
        arrows = self._waits if self._step is None or window is self._step else []
        taken = _mark_arrows(strips, arrows, window)
        alike = group(strips, lambda rank: tuple(strips[rank]))
        lanes = [(ranks, list(kinds)) for kinds, ranks in alike]
        for at in taken:
            _direct(lanes, at)
        return lanes

    def _signs(self) -> list[str]:
        """The signs of the lanes; the first one is time in no known state."""
        work, *others = sparklines.SIGNS
        return [sparklines.UNKNOWN if self._untimed else work, *others]

    def _path_strip(self, window: TimeWindow) -> str:
        """The rank of the critical path in each slot of time."""
        parts: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for part in self._path:
            parts[part.rank].append((part.start_s, part.end_s))
        shares = slots(parts, window.start_s, window.end_s, sparklines.SLOTS)
        ranks = [max(share, key=lambda rank: share[rank]) if share else None for share in shares]
        widest = max(len(str(part.rank)) for part in self._path)
        strip = ""
        for rank, run in groupby(ranks):
            length = len(list(run))
            number = "" if rank is None else str(rank)
            # a number of two digits beside another one could be read as a third
            fits = len(number) + (widest > 1) <= length
            strip += (number if fits else "").ljust(length, "─")
        return strip

    def _path_words(self) -> str:
        """The ranks of the critical path and their shares, the largest first."""
        assert self.window is not None
        taken: dict[int, float] = defaultdict(float)
        for part in self._path:
            taken[part.rank] += part.end_s - part.start_s
        length = self.window.end_s - self.window.start_s
        ranks = sorted(
            (rank for rank in taken if taken[rank] >= _SHOWN_SHARE * length),
            key=lambda rank: (-taken[rank], rank),
        )
        shown = [
            f"{words.ranks([rank])} {_percent(taken[rank], length)}" for rank in ranks[:_WAITS]
        ]
        hidden = len(taken) - len(shown)
        more = [f"and {words.count(hidden, 'more rank')}"] if hidden else []
        return "critical path, the rank that the others waited for at each moment: " + ", ".join(
            [*shown, *more]
        )

    def _wait_rows(self, *, brief: bool = False) -> list[tuple[str, ...]]:
        """The longest waits in order of time.

        ``brief`` omits the source code.
        """
        assert self.window is not None
        return [
            (
                words.ranks([wait.until]),
                words.ranks_cell(wait.ranks) if brief else words.ranks(wait.ranks),
                short(wait.longest_s),
                short(wait.at_s - self.window.start_s),
                _numbered(wait.call),
                _where(wait.call, brief=brief),
            )
            for wait in self._longest()
        ]

    def _longest(self) -> list[Wait]:
        longest = sorted(self._waits, key=lambda wait: -wait.longest_s)[:_WAITS]
        return sorted(longest, key=lambda wait: wait.at_s)

    def _rows(self, shown: list[RankShare]) -> list[tuple[str, ...]]:
        """A row for each rank; ranks with the same numbers share one."""
        alike = group(map(self._row, shown), lambda row: row[1:])
        return [
            (safe.middle(words.ranks_cell(int(row[0]) for row in rows), _LABEL), *numbers)
            for numbers, rows in alike
        ]

    def _row(self, share: RankShare) -> tuple[str, ...]:
        late = self._late.get(share.rank, [])
        own = _percent(share.compute_s, share.window_s)
        if self._untimed and own:
            known = share.waiting_s + share.communication_s + share.data_s
            own = f"≤ {own}" if round(100 * known / share.window_s) else "not known"
        return (
            str(share.rank),
            own,
            _percent(share.waiting_s, share.window_s),
            _percent(share.communication_s, share.window_s),
            _percent(share.data_s, share.window_s),
            f"{len(late)}×",
            short(self._costs.get(share.rank)),
        )

    # -- the picture ---------------------------------------------------------------------------

    def _stretches(self) -> Iterator[tuple[Kind, int, float, float, Any]]:
        """Everything that can be drawn: kind, rank, start, end and object."""
        for timeline in self.snapshot.timeline:
            for span in timeline.spans():
                if span.kind in _SPANS:
                    yield _SPANS[span.kind], timeline.rank, span.start_s, span.end_s, span
        for activity in self._activities:
            for kind, stretches in (
                (_WAITING, activity.waiting),
                (_MOVING, activity.communication),
            ):
                for begin, end in stretches:
                    yield kind, activity.rank, begin, end, (kind, end - begin)
        for meeting in self._met:
            begun = meeting.begun_s
            for rank, arrived in meeting.arrivals_s.items():
                ended = meeting.ends_s.get(rank)
                if begun is not None and ended is not None:
                    middle = min(max(arrived, begun), ended)
                    yield _COLLECTIVE_WAITS, rank, arrived, middle, meeting
                    yield _COLLECTIVE_MOVES, rank, middle, ended, meeting

    def _bars(self, start: float, low: float, high: float) -> Lanes | None:
        """The spans that lie at least partly in a window; None if they are too many to draw."""
        lanes: Lanes = defaultdict(list)
        count = 0
        for kind, rank, begin, end, what in self._stretches():
            if end > low and begin < high:
                count += 1
                if count > figures.MAX_BARS:
                    return None
                bar = Bar(1e3 * (begin - start), 1e3 * (end - start), what)
                lanes[kind, rank].append(bar)
        return lanes

    def _slots(self, start: float, low: float, high: float) -> Lanes:
        """The share of each activity in each slot of time, for too many spans to draw."""
        count = max(40, min(300, figures.MAX_BARS // max(1, 2 * len(self._activities))))
        slot_ms = 1e3 * (high - low) / count
        spans = {timeline.rank: timeline.intervals() for timeline in self.snapshot.timeline}
        lanes: Lanes = defaultdict(list)
        for activity in self._activities:
            rank = activity.rank
            parts = {_WAITING: activity.waiting, _MOVING: activity.communication}
            still = union(activity.waiting + activity.communication)
            for name, kind in _PHASES.items():
                parts[kind] = subtract(union(spans.get(rank, {}).get(name, [])), still)
            for at, share in enumerate(slots(parts, low, high, count)):
                begin, below = 1e3 * (low - start) + at * slot_ms, 0.0
                for kind, part in share.items():
                    if part < _VISIBLE:
                        continue
                    offset = _LANE * (below + part / 2 - 0.5)
                    bar = Bar(begin, begin + slot_ms, (kind, part), offset, _LANE * part)
                    lanes[kind, rank].append(bar)
                    below += part
        return lanes

    def _describe(self, what: Any, rank: int) -> str:
        if isinstance(what, Span):
            return f"{what.name} · {short(what.end_s - what.start_s)}"
        if isinstance(what, Meeting):
            return _describe_meeting(what, rank)
        kind, amount = what
        return f"{kind.name} · {short(amount)}"

    @staticmethod
    def _describe_slot(what: tuple[Kind, float], rank: int) -> str:
        kind, part = what
        return f"{100 * part:.0f} % {kind.name}"


def _mark_arrows(strips: dict[int, Kinds], found: Iterable[Wait], window: TimeWindow) -> list[int]:
    """Mark where ranks came last and where others had waited; returns the slots, one for a wait."""
    slot_s = (window.end_s - window.start_s) / sparklines.SLOTS
    taken: list[int] = []
    for wait in sorted(found, key=lambda wait: -wait.longest_s):
        waited = [rank for rank in wait.ranks if rank in strips]
        if wait.longest_s < slot_s or not window.start_s < wait.at_s <= window.end_s:
            continue
        at = min(int((wait.at_s - window.start_s) / slot_s), sparklines.SLOTS - 1)
        if at in taken or wait.until not in strips or not waited:
            continue
        taken.append(at)
        strips[wait.until][at] = sparklines.LAST
        for rank in waited:
            strips[rank][at] = sparklines.UP
    return taken


def _direct(lanes: list[tuple[list[int], Kinds]], at: int) -> None:
    """Turn the arrows of a slot away from the lane of the rank that came last."""
    signs = [kinds[at] for _, kinds in lanes]
    last = signs.index(sparklines.LAST)
    heads = [lane for lane, sign in enumerate(signs) if sign == sparklines.UP]
    for lane, (_, kinds) in enumerate(lanes):
        if lane in heads:
            kinds[at] = sparklines.UP if lane < last else sparklines.DOWN
        elif min(heads) < lane < last or last < lane < max(heads):
            kinds[at] = sparklines.THROUGH


def _has_arrows(rows: list[_Row]) -> bool:
    return any(sparklines.LAST in kinds for _, kinds in rows)


def _in_text(rows: list[_Row]) -> list[str]:
    """A picture in a terminal; what has no title, such as the time, stands below it."""
    named = [
        (title if isinstance(title, str) else safe.middle(ranks_label(title), _LABEL), strip)
        for title, strip in rows
    ]
    width = max(len(name) for name, _ in named)
    lines = []
    for name, strip in named:
        signs = strip if isinstance(strip, str) else sparklines.as_text(strip)
        lines.append(f"  {name:<{width}} │{signs}│" if name else f"  {'':>{width + 1}}{signs}")
    return lines


def _in_html(rows: list[_Row]) -> Markup:
    """A picture as a table."""
    cells = [
        (
            title if isinstance(title, str) else words.ranks_cell(title),
            sparklines.fixed_width(strip) if isinstance(strip, str) else sparklines.as_html(strip),
        )
        for title, strip in rows
    ]
    return html.table(cells, ("rank", "time"))


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


def _numbered(call: Call) -> str:
    number = f" #{call.sequence}" if call.sequence is not None else ""
    return safe.one_line(f"{call.op}{number}", 40)


def _role(call: Call) -> str:
    if call.sequence is None or call.kind != "collective":
        return ""
    return marks.role(marks.of_call(call.group, call.sequence))


def _where(call: Call, *, brief: bool) -> str:
    if call.where is None:
        return ""
    return safe.one_line(call.where.place if brief else call.where.label, 80)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""
