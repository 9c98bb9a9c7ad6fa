"""Every collective of a run: its operation, line and size, and when each rank arrived."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..model import Snapshot
from ..model.meetings import Meeting, meetings
from ..model.shares import activities, held_up
from ..model.torch_features import LIBRARY_COLLECTIVES, LIBRARY_LINES
from ..model.traffic import in_groups, messages
from . import dataframe, html, marks, safe, terminal, traffic, words
from .html import Markup
from .run_view import RunView
from .source_positions import group
from .stragglers import straggler_flags, waited_without_flag
from .traffic import Grid
from .words import rate, short

#: Rows by line of the program, and collectives listed one by one.
LINES, LISTED = 16, 200
#: Up to this many ranks, the arrival of each one is shown.
_RANKS_LISTED = 8

_LINE_HEAD = ("collective", "times", "bytes", "came last", "waited", "transfer", "rate", "line")
#: The columns that fit 80 characters: the line without its text, and no rate.
_TEXT_HEAD = ("collective", "×", "bytes", "last rank", "waited", "transfer", "line")
_HEAD = ("#", "group", "collective", "bytes", "who came when", "transfer", "rate", "line")


class CollectivesView(RunView):
    """The collectives of a run, by line of the program and one by one.

    Parameters
    ----------
    snapshot
        Of any run; transfers of asynchronous collectives and of those that DDP issues itself are
        known if it was traced.
    """

    __slots__ = ("_costs", "_groups", "_messages", "_met")

    name = "collectives"
    columns = (
        *("sequence", "group", "op", "label", "shape", "dtype", "bytes", "at_ms", "straggler"),
        *("late_ms", "longest_wait_ms", "transfer_ms", "bytes_per_s", "line", "arrivals_ms"),
    )

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._met = meetings(snapshot)
        self._messages = messages(snapshot)
        self._groups = in_groups(self._met)
        seen = activities(snapshot, self._met) if snapshot.timeline else None
        self._costs = held_up(self._met, seen)
        self.flags = straggler_flags(snapshot, self._met, self._costs, snapshot.duration_s)

    def _text(self) -> list[str]:
        lines: list[str] = []
        if self._met:
            rows = self._line_rows(brief=True)
            shown = rows[:LINES]
            lines += terminal.columns(shown, _TEXT_HEAD, (1, 2, 4, 5))
            if len(rows) > LINES:
                lines.append(f"  and {words.count(len(rows) - LINES, 'more line')}")
        lines += [line for grid in self._grids() for line in traffic.as_text(grid)]
        return [*lines, *(line for note in self._notes() for line in terminal.wrap("", note))]

    def _html(self) -> list[Markup]:
        parts = []
        if self._met:
            rows = self._line_rows()
            listed = html.table(rows[:LINES], _LINE_HEAD, roles=self._line_roles()[:LINES])
            parts.append(html.tag("div", listed, role="lines"))
            if len(rows) > LINES:
                parts.append(html.line(f"and {words.count(len(rows) - LINES, 'more line')}"))
        if grids := self._grids():
            parts += [part for grid in grids for part in traffic.as_html(grid)]
            parts.append(html.line(traffic.BAR))
        if self._met:
            shown = self._met[:LISTED]
            roles = [marks.role(marks.of_call(one.group, one.sequence)) for one in shown]
            listed = html.table(map(_row, shown), _HEAD, roles=roles, long=True)
            summary = f"every collective ({len(self._met):,})"
            if len(self._met) > LISTED:
                summary = f"the first {LISTED} collectives of {len(self._met):,}"
            parts.append(html.details(summary, listed))
        return [*parts, *map(html.line, self._notes())]

    def to_frame(self) -> Any:
        """One row for each collective in order of time, as a pandas DataFrame.

        Columns with times hold None where a time is not known: in Flight Recorder dumps, and for
        transfers that only a traced run measures.

        - ``sequence``: number within its process group
        - ``group``: name of the process group; ``"0"`` is the default group
        - ``op``: such as ``"all_reduce"``
        - ``label``: what a library issued it for, such as ``"DDP bucket 1/3"``; else empty
        - ``shape``, ``dtype``: shapes of the tensors and type of the first, on the lowest rank
        - ``bytes``: size of the tensors that one rank passed in, in bytes
        - ``at_ms``: when the first rank came, in milliseconds since the first collective
        - ``straggler``: rank that came last; None if a rank never came
        - ``late_ms``: milliseconds by which it came after the others (their median)
        - ``longest_wait_ms``: milliseconds for which the rank that came first waited
        - ``transfer_ms``: milliseconds from the last arrival to the end on the last rank
        - ``bytes_per_s``: ``bytes`` by transfer time, in bytes per second
        - ``line``: line of the program that called it
        - ``arrivals_ms``: for each rank, milliseconds after the first arrival
        """
        return super().to_frame()

    def messages_frame(self) -> Any:
        """One row for each sender and receiver, as a pandas DataFrame.

        - ``sender``, ``receiver``: global ranks
        - ``messages``: number of messages between them
        - ``bytes``: bytes of these messages
        - ``blocked_ms``: milliseconds for which the receiver was blocked in its calls; None if that
          is not known
        """
        columns = ("sender", "receiver", "messages", "bytes", "blocked_ms")
        rows = [
            (*route, one.times, one.bytes, _ms(one.blocked_s))
            for route, one in self._messages.items()
        ]
        return dataframe.frame([dict(zip(columns, row, strict=True)) for row in rows], columns)

    def groups_frame(self) -> Any:
        """One row for each rank of each process group, as a pandas DataFrame.

        - ``group``: name of the process group; ``"0"`` is the default group
        - ``rank``: global rank
        - ``collectives``: how many of the group it entered
        - ``bytes``: bytes of the tensors that it passed in
        - ``waited_ms``: milliseconds for which it waited for the last rank; None if not known
        """
        columns = ("group", "rank", "collectives", "bytes", "waited_ms")
        rows = [
            (group, rank, one.times, one.bytes, _ms(one.blocked_s))
            for group, of in sorted(self._groups.items())
            for rank, one in sorted(of.items())
        ]
        return dataframe.frame([dict(zip(columns, row, strict=True)) for row in rows], columns)

    def _grids(self) -> list[Grid]:
        """Who talks to whom, if not all ranks talk to all."""
        ranks = [report.rank for report in self.snapshot.ranks]
        between = traffic.of_messages(self._messages, ranks)
        return [*between, *traffic.of_groups(self._groups, self._met, ranks)]

    def _records(self) -> list[dict[str, Any]]:
        start = next(iter(self._met[0].arrivals_s.values()), 0.0) if self._met else 0.0
        return [_record(meeting, start) for meeting in self._met]

    def _healthy(self) -> str:
        if not self._met:
            sent = sum(one.times for one in self._messages.values())
            also = f"; ranks sent {words.count(sent, 'message')}" if sent else ""
            return f"no collective was called{also}"
        moved = sum(meeting.bytes or 0 for meeting in self._met)
        met = words.count(len(self._met), "collective")
        moving = f"{met}, {words.size(moved)} from each rank"
        if self.snapshot.origin == "dumps" or self.snapshot.calls_only_issue:
            return moving
        waited = waited_without_flag(self.snapshot, self._costs, self.snapshot.duration_s)
        return f"{moving}; {waited or 'nobody waited long for one rank'}"

    def _notes(self) -> list[str]:
        notes = self._not_observed(LIBRARY_COLLECTIVES, LIBRARY_LINES)
        if any(report.calls_dropped for report in self.snapshot.ranks):
            notes.append("a long run keeps only the last collectives that agreed on all ranks")
        if self.snapshot.calls_only_issue and self._met:
            return [*notes, words.ISSUED]
        untimed = any(meeting.transfer_s is None and meeting.complete for meeting in self._met)
        if self.snapshot.origin == "dumps":
            notes.append("without times: the clocks of several hosts do not agree")
        elif untimed and not self.snapshot.timeline and self.snapshot.origin == "session":
            notes.append("%%ddt_debug also measures transfers that DDP and async_op start")
        return notes

    def _line_rows(self, *, brief: bool = False) -> list[tuple[str, ...]]:
        return [_line_row(alike, brief=brief) for _, alike in self._by_line()]

    def _line_roles(self) -> list[str]:
        lines = [alike[0].first.where for _, alike in self._by_line()]
        return [marks.role(marks.of_line(where)) if where is not None else "" for where in lines]

    def _by_line(self) -> list[tuple[tuple[object, ...], list[Meeting]]]:
        return group(self._met, lambda m: (_what(m), m.group, _line(m), m.bytes))


def _line_row(alike: Sequence[Meeting], *, brief: bool = False) -> tuple[str, ...]:
    """One row for collectives of one line; ``brief`` omits shapes, rates and source code."""
    first = alike[0]
    last = Counter(m.straggler for m in alike if m.straggler is not None).most_common(1)
    late = [m.late_s for m in alike if last and m.straggler == last[0][0]]
    waited = [longest for m in alike if (longest := _longest_wait(m)) is not None]
    transfers = [m.transfer_s for m in alike if m.transfer_s is not None]
    rates = [m.bytes_per_s for m in alike if m.bytes_per_s is not None]
    who = ""
    if last:
        who = words.ranks_cell([last[0][0]]) if brief else words.ranks([last[0][0]])
    row = (
        _what(first, shapes=not brief),
        str(len(alike)),
        words.size(first.bytes) if first.bytes is not None else "",
        f"{who} +{short(statistics.median(late))}" if last else "",
        short(sum(waited)) if waited else "",
        short(statistics.median(transfers)) if transfers else "",
    )
    if brief:
        return (*row, safe.one_line(first.first.where.place, 80) if first.first.where else "")
    return (*row, rate(statistics.median(rates)) if rates else "", _line(first))


def _row(meeting: Meeting) -> tuple[str, ...]:
    return (
        str(meeting.sequence),
        safe.middle(meeting.group),
        _what(meeting),
        words.size(meeting.bytes) if meeting.bytes is not None else "",
        _who_came_when(meeting),
        short(meeting.transfer_s),
        rate(meeting.bytes_per_s),
        _line(meeting),
    )


def _who_came_when(meeting: Meeting) -> str:
    arrivals = meeting.arrivals_s
    missing = sorted(set(meeting.members) - set(arrivals))
    first = next(iter(arrivals.values()), 0.0)
    arrived = [f"{rank} +{short(at - first)}" for rank, at in arrivals.items()]
    if len(arrived) > _RANKS_LISTED:
        arrived = [arrived[0], f"{len(arrived) - 3} more", *arrived[-2:]]
    if arrived:
        arrived[0] = f"{words.ranks([next(iter(arrivals))])} first"
    if missing:
        arrived.append(f"never: {words.ranks(missing)}")
    return ", ".join(arrived)


def _what(meeting: Meeting, *, shapes: bool = True) -> str:
    call = meeting.first
    tensors = f" ({call.tensor_label})" if shapes and call.tensor_label else ""
    label = meeting.label.replace("DistributedDataParallel", "DDP")
    if not shapes and call.op == "all_reduce" and label.startswith("DDP bucket"):
        return label  # DDP's own operation, which a narrow column would shorten
    return safe.one_line(f"{call.op}{tensors}{f' · {label}' if label else ''}", 80)


def _line(meeting: Meeting) -> str:
    where = meeting.first.where
    return safe.one_line(where.label, 80) if where is not None else ""


def _longest_wait(meeting: Meeting) -> float | None:
    first = next(iter(meeting.arrivals_s), None)
    return meeting.wait_s(first) if first is not None else None


def _record(meeting: Meeting, start_s: float) -> dict[str, Any]:
    call, arrivals = meeting.first, meeting.arrivals_s
    first = next(iter(arrivals.values()), None)
    return {
        "sequence": meeting.sequence,
        "group": meeting.group,
        "op": call.op,
        "label": meeting.label,
        "shape": call.shapes,
        "dtype": call.dtypes[0] if call.dtypes else None,
        "bytes": meeting.bytes,
        "at_ms": _ms(first - start_s if first is not None else None),
        "straggler": meeting.straggler,
        "late_ms": _ms(meeting.late_s if meeting.complete else None),
        "longest_wait_ms": _ms(_longest_wait(meeting)),
        "transfer_ms": _ms(meeting.transfer_s),
        "bytes_per_s": meeting.bytes_per_s,
        "line": call.where.label if call.where is not None else "",
        "arrivals_ms": {rank: _ms(at - (first or 0.0)) for rank, at in arrivals.items()},
    }


def _ms(seconds: float | None) -> float | None:
    return round(1e3 * seconds, 3) if seconds is not None else None
