"""The ranks while a cell runs, as a table that is updated several times per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..formatting import naming_hosts
from ..model import Position, RankReport
from ..model.collective import call_label
from ..model.snapshot import Outcome
from ..model.waits import Wait, cannot_complete, waits
from . import html, safe, source_positions, sparklines, terminal, words
from .displayable import Displayable
from .session_status import ROWS, SessionStatusLike

#: Columns of the memory curve, and the rise in bytes below which it does not use the full height.
_CURVE, _NOISE = 10, 16_000_000
_NOWRAP = "white-space:nowrap"
_HEAD = ("rank", "state", "at", "memory (RSS)")
#: Sign and colour of each state's word.
_STATES = {
    "ready": ("○", "line"),
    "running": ("▸", "hint"),
    "waits": ("‖", "warning"),
    "stuck": ("‖", "error"),
    "finished": ("✓", "ok"),
    "raised": ("✖", "error"),
    "died": ("✖", "error"),
    "suspended": ("■", "warning"),
    "no answer": ("?", "warning"),
    "not asked": ("○", "line"),
    "was running": ("▸", "line"),
    "waited": ("‖", "line"),
    "was stuck": ("‖", "error"),
}
_WORDS = {"stopped": "suspended", "silent": "no answer", "idle": "not asked", "blocked": "waits"}
_PAST = {"running": "was running", "waits": "waited", "stuck": "was stuck"}
_ENDINGS: dict[Outcome, str] = {
    "ok": "ended after",
    "failed": "failed after",
    "hung": "hung after",
    "interrupted": "was interrupted after",
}

#: Ranks with the same state, wait and place stand in one row; few ranks have a row each.
_Key = tuple[str, str, str, Position | None, str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLine:
    """One rank, or ranks that are alike.

    Attributes
    ----------
    ranks
        Their numbers.
    state
        A key of the states' signs.
    wait
        ``4.2 s for rank 1 in all_reduce #17``, empty if it does not wait.
    bar
        The part of the cell's time that it has waited, as signs.
    where
        The line of code, or what ended a rank.
    place
        The line as data, where it is known.
    memory_bytes, curve
        Resident memory now, and its curve as signs.
    """

    ranks: tuple[int, ...]
    state: str
    wait: str = ""
    bar: str = ""
    where: str = ""
    place: Position | None = None
    memory_bytes: int | None = None
    curve: str = ""

    @property
    def said(self) -> str:
        """The state in words."""
        return " ".join(filter(None, (self.state, self.bar, self.wait)))

    @property
    def sign(self) -> tuple[str, str]:
        """The state's sign, and the name of its colour."""
        return _STATES[self.state]

    @property
    def memory(self) -> str:
        """``≤ 251 MB ▁▂▆█``."""
        if self.memory_bytes is None:
            return ""
        bound = "≤ " if len(self.ranks) > 1 else ""
        return f"{bound}{words.size(self.memory_bytes)} {self.curve}".rstrip()


@dataclass(frozen=True, slots=True, repr=False)
class LiveView(Displayable):
    """A headline, the ranks, notes, and the host of each rank."""

    headline: str
    lines: tuple[RankLine, ...] = ()
    notes: tuple[str, ...] = ()
    hosts: Mapping[int, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """The table in columns."""
        with naming_hosts(self.hosts):
            rows = [_HEAD, *map(_row, self.lines)] if self.lines else []
        return "\n".join([self.headline, *terminal.aligned(rows, 2 * terminal.WIDTH), *self.notes])

    def to_html(self) -> str:
        """The table as HTML; a row keeps its height while numbers change in it."""
        with naming_hosts(self.hosts):
            rows = [
                (
                    words.ranks_cell(line.ranks),
                    html.tag("span", _chip(line), *_waiting(line), style=_NOWRAP, role="said"),
                    html.name(line.where, 72) if line.where else "",
                    html.tag("span", line.memory, style=_NOWRAP),
                )
                for line in self.lines
            ]
        parts = [html.line(html.tag("b", self.headline))]
        parts += [html.table(rows, _HEAD)] if rows else []
        return html.view(*parts, *(html.line(note) for note in self.notes))


def of_reports(
    headline: str,
    reports: Sequence[RankReport],
    memory: Mapping[int, Iterable[int]],
    *,
    elapsed_s: float = 0.0,
    ended: bool = False,
    notes: tuple[str, ...] = (),
) -> LiveView:
    """The ranks during a run or at its end.

    Parameters
    ----------
    headline, notes
        The lines above and below the table.
    reports
        The ranks.
    memory
        Each rank's resident memory in bytes, oldest first.
    elapsed_s
        How long the cell has run; 0 if that is not known.
    ended
        Whether the cell has ended: the states are then those just before its end.
    """
    hosts = {report.rank: report.host for report in reports}
    waiting = waits(reports)
    stuck = cannot_complete(waiting, reports)
    longest: dict[_Key, float] = {}
    keys: dict[int, _Key] = {}
    for report in reports:
        state = "stuck" if report.rank in stuck else _WORDS.get(report.state, report.state)
        state = _PAST.get(state, state) if ended else state
        with naming_hosts(hosts):
            wait = _wait(waiting.get(report.rank))
        place = _place(report)
        where = safe.one_line(place.label, 120) if place is not None else _ended(report)
        alone = report.rank if len(reports) <= ROWS else None
        key = (state, wait, where, place, report.host, alone)
        keys[report.rank] = key
        longest[key] = max(longest.get(key, 0.0), report.blocked_s or 0.0)
    lines = []
    for key, alike in source_positions.group(reports, lambda report: keys[report.rank]):
        state, wait, where, place, *_ = key
        seconds = f"{words.duration(longest[key])} " if wait else ""
        line = RankLine(
            ranks=_ranks(alike),
            state=state,
            wait=seconds + wait,
            bar=sparklines.bar(longest[key], elapsed_s) if wait else "",
            where=where,
            place=place,
        )
        lines.append(_with_memory(line, alike, memory))
    return LiveView(headline, tuple(lines), notes, hosts)


def of_status(status: SessionStatusLike, notes: tuple[str, ...] = ()) -> LiveView:
    """The view of a session whose ranks are at their prompts."""
    headline = f"{words.count(status.world_size, 'rank')}, no cell runs"
    alike = source_positions.group(
        status.ranks, lambda r: (r.state, r.host, r.rank if len(status.ranks) <= ROWS else None)
    )
    lines = [
        RankLine(
            ranks=tuple(r.rank for r in ranks),
            state=_WORDS.get(state, state),
        )
        for (state, *_), ranks in alike
    ]
    return LiveView(headline, tuple(lines), notes, {r.rank: r.host for r in status.ranks})


def headline(
    cell: int, elapsed_s: float, outcome: Outcome | None = None, *, frozen: bool = False
) -> str:
    """``cell[3] runs · 4.2 s``."""
    duration = words.duration(elapsed_s)
    if frozen:
        return f"cell[{cell}] is held, {duration} after its start"
    if outcome is None:
        return f"cell[{cell}] runs · {duration}"
    return f"cell[{cell}] {_ENDINGS[outcome]} {duration}"


def _row(line: RankLine) -> tuple[str, ...]:
    sign, _ = line.sign
    where = line.where if len(line.where) <= 48 else f"{line.where[:47]}…"
    return (words.ranks_cell(line.ranks), f"{sign} {line.said}", where, line.memory)


def _chip(line: RankLine) -> html.Markup:
    sign, kind = line.sign
    return html.chip(sign, line.state, kind)


def _waiting(line: RankLine) -> list[str]:
    drawn = [" ", sparklines.fixed_width(line.bar)] if line.bar else []
    return [*drawn, f" {line.wait}".rstrip()]


def _wait(wait: Wait | None) -> str:
    if wait is None:
        return ""
    where = f"in {safe.one_line(call_label(wait.call.op, wait.call.sequence), 60)}"
    missing = wait.missing
    if not missing:
        return where
    whom = words.ranks(missing) if len(missing) <= ROWS else words.count(len(missing), "rank")
    return f"for {'any of ' if wait.anyone and len(missing) > 1 else ''}{whom} {where}"


def _place(report: RankReport) -> Position | None:
    """The line at which a rank stands."""
    gone = report.state in ("raised", "died", "finished", "idle")
    return None if gone else report.position


def _ended(report: RankReport) -> str:
    """What ended a rank that has no current line."""
    if report.state == "raised" and report.error is not None:
        return safe.one_line(str(report.error), 120)
    return words.ending(report) if report.state == "died" else ""


def _ranks(reports: Sequence[RankReport]) -> tuple[int, ...]:
    return tuple(report.rank for report in reports)


def _with_memory(
    line: RankLine, reports: Sequence[RankReport], memory: Mapping[int, Iterable[int]]
) -> RankLine:
    """The memory of the largest of the ranks."""
    known = [r for r in reports if r.memory_bytes is not None and r.state != "died"]
    if not known:
        return line
    largest = max(known, key=lambda report: report.memory_bytes or 0)
    curve = sparklines.curve(tuple(memory.get(largest.rank, ())), _CURVE, least_rise=_NOISE)
    return replace(line, memory_bytes=largest.memory_bytes, curve=curve)
