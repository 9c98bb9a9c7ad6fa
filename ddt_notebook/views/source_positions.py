"""Source lines at which ranks stood; a line of several ranks is shown once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..formatting import ranks_label
from ..model import Finding, Place, Position, RankReport, Snapshot
from . import safe, words

#: Different places listed; the rest is counted.
SHOWN = 8
#: Source lines shown before and after a line of interest.
CONTEXT = 2

Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ShownPlace:
    """A line, and the ranks that stood there.

    Attributes
    ----------
    place
        ``cell[14] line 6``.
    code
        The source line, empty if it is not known.
    who
        ``ranks 0, 2, 3 wait in all_reduce``.
    cell, line
        The number of the cell and of the line in it; None for a line of a file.
    in_source
        Whether the cell's source is known, so that the lines around it can be shown.
    """

    place: str
    code: str
    who: str
    cell: int | None = None
    line: int | None = None
    in_source: bool = False


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of an excerpt; ``number`` is None where lines are left out between two parts."""

    number: int | None
    code: str = ""
    who: str = ""


def of_finding(finding: Finding, snapshot: Snapshot | None = None) -> list[ShownPlace]:
    """The places of a finding: where the victims wait first, then where the culprits stood."""
    if finding.where and not finding.places:  # loaded from a report that has text only
        groups = group(sorted(finding.where), lambda rank: finding.where[rank])
        return [ShownPlace(safe.one_line(text), "", ranks_label(ranks)) for text, ranks in groups]
    return _grouped(finding.places, snapshot, first=finding.waiting)


def of_snapshot(snapshot: Snapshot) -> list[ShownPlace]:
    """Where every rank stood when the run ended."""
    stood = {report.rank: report.position for report in snapshot.ranks if report.state != "idle"}
    return _grouped(stood, snapshot)


def _grouped(
    places: Mapping[int, Position | None], snapshot: Snapshot | None, first: Iterable[int] = ()
) -> list[ShownPlace]:
    waiting = set(first)
    # in a healthy run, the last activity of a rank is unrelated to the place
    observed = snapshot.ranks if snapshot is not None and snapshot.outcome != "ok" else ()
    reports = {report.rank: report for report in observed}
    groups = group(sorted(places), lambda rank: _line(places[rank]))
    groups.sort(key=lambda item: waiting.isdisjoint(item[1]))
    found = [
        _shown(places[members[0]], members, [reports[r] for r in members if r in reports], snapshot)
        for _, members in groups[:SHOWN]
    ]
    if rest := groups[SHOWN:]:
        others = [rank for _, members in rest for rank in members]
        found.append(ShownPlace(words.count(len(rest), "more place"), "", ranks_label(others)))
    return found


def _line(place: Position | None) -> tuple[str, int, str] | None:
    return (place.file, place.line, place.code) if place is not None else None


def _shown(
    place: Position | None, members: list[int], reports: list[RankReport], snapshot: Snapshot | None
) -> ShownPlace:
    script = snapshot is not None and bool(snapshot.cell.file)
    if place is None:
        return ShownPlace("", "", _who(members, reports, script=script))
    cell = place.cell
    return ShownPlace(
        safe.one_line(place.place),
        safe.one_line(place.code),
        _who(members, reports, place, script=script),
        cell,
        place.line if cell is not None else None,
        cell is not None
        and snapshot is not None
        and bool(snapshot.source_line(cell, place.line).strip()),
    )


def _who(
    members: list[int],
    reports: list[RankReport],
    place: Position | None = None,
    *,
    script: bool,
) -> str:
    if len(reports) != len(members):
        return ranks_label(members)

    def state(report: RankReport, ranks: int = 1) -> str:
        return _gone_on(report, place) or words.state(report, ranks, script=script)

    return "; ".join(
        f"{ranks_label(r.rank for r in same)} {state(same[0], len(same))}"
        for _, same in group(reports, state)
    )


def _gone_on(report: RankReport, place: Position | None) -> str:
    """What a blocked rank did at a line that its main thread is not at; else empty."""
    for one in report.thread_calls:
        if place is not None and one.where is not None and place.is_same_line(one.where):
            return f"entered {safe.one_line(one.op, 60)} in a thread"
    waits_in, stands = report.blocked_call, report.position
    if report.state != "blocked" or waits_in is None or waits_in.where is None or place is None:
        return ""
    if any(one is not None and place.is_same_line(one) for one in (waits_in.where, stands)):
        return ""
    done = [
        call
        for call in report.calls
        if call.status == "done" and call.where and place.is_same_line(call.where)
    ]
    raised = isinstance(place, Place) and place.role == "raised"
    if not (done or raised):
        return ""
    there = waits_in.where
    elsewhere = safe.one_line(there.place, 160)
    where = f"line {there.line}" if there.file == place.file else elsewhere
    before = "raised" if raised else f"called {safe.one_line(done[-1].op, 60)}"
    return f"{before}, then went on to wait in {where}"


def excerpt(found: Iterable[ShownPlace], cell: int, snapshot: Snapshot) -> list[SourceLine]:
    """The lines of one cell at which ranks stood, with the lines around them."""
    who: dict[int, str] = {}
    for place in found:
        if place.cell == cell and place.in_source and place.line is not None:
            who[place.line] = "; ".join(filter(None, [who.get(place.line), place.who]))
    source = next(c for c in (snapshot.cell, *snapshot.earlier_cells) if c.number == cell)
    last = source.first_line + len(source.source.splitlines()) - 1
    near = {n for line in who for n in range(line - CONTEXT, line + CONTEXT + 1)}
    rows: list[SourceLine] = []
    for number in sorted(n for n in near if source.first_line <= n <= last):
        if rows and rows[-1].number != number - 1:
            rows.append(SourceLine(None))
        code = safe.bounded(safe.clean(source.line(number)).expandtabs(4), 200)
        rows.append(SourceLine(number, code, who.get(number, "")))
    return rows


def group(items: Iterable[Item], key: Callable[[Item], Key]) -> list[tuple[Key, list[Item]]]:
    """Items grouped by equal keys, in the order in which the keys first occurred."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.items())
