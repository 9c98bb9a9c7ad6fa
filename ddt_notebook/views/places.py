"""Where the ranks stood: equal places are shown once, with the ranks that stood there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ..model import Finding, RankReport, Snapshot
from . import words

_LABEL = re.compile(r"(?P<place>.{1,300}? line (?P<line>\d+))(?:: (?P<code>.*))?$", re.DOTALL)
_CELL = re.compile(r"cell\[(\d+)\]")
_PLURALS = {"waits": "wait", "is": "are", "was": "were", "does": "do"}

#: Different places listed; the rest is counted.
SHOWN = 8
#: Source lines shown before and after a line of interest.
CONTEXT = 2

Item = TypeVar("Item")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Place:
    """A line, and who stood there.

    Attributes
    ----------
    place
        ``cell[14] line 6``, or whatever else the finding said.
    code
        The source line, empty if it is not known.
    who
        ``ranks 0, 2, 3 wait in all_reduce``.
    cell, line
        The line in a cell whose source is known, else None.
    """

    place: str
    code: str
    who: str
    cell: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of an excerpt; ``number`` is None where lines are left out between two parts."""

    number: int | None
    code: str = ""
    who: str = ""


def of_finding(finding: Finding, snapshot: Snapshot | None = None) -> list[Place]:
    """The places of a finding: where the victims wait first, then where the culprits stood."""
    return _grouped(finding.where, snapshot, first=finding.waiting)


def of_snapshot(snapshot: Snapshot) -> list[Place]:
    """Where every rank stood when the run ended."""
    where = {
        report.rank: report.position.label if report.position else ""
        for report in snapshot.ranks
        if report.state != "idle"
    }
    return _grouped(where, snapshot)


def _grouped(
    where: dict[int, str], snapshot: Snapshot | None, first: Iterable[int] = ()
) -> list[Place]:
    waiting = set(first)
    # when all went well, what a rank did in the end says nothing about the place
    told = snapshot.ranks if snapshot is not None and snapshot.outcome != "ok" else ()
    reports = {report.rank: report for report in told}
    groups = group(sorted(where), lambda rank: where[rank])
    groups.sort(key=lambda item: waiting.isdisjoint(item[1]))
    found = [
        _place(label, members, [reports[r] for r in members if r in reports], snapshot)
        for label, members in groups[:SHOWN]
    ]
    if rest := groups[SHOWN:]:
        others = [rank for _, members in rest for rank in members]
        found.append(Place(words.count(len(rest), "more place"), "", words.ranks(others)))
    return found


def _place(
    label: str, members: list[int], reports: list[RankReport], snapshot: Snapshot | None
) -> Place:
    match = _LABEL.match(label)
    if match is None:
        return Place(words.one_line(label), "", _who(members, reports))
    place, number = match["place"], int(match["line"])
    who = _who(members, reports, place)
    code = words.one_line(match["code"] or "")
    cell = _CELL.fullmatch(place.removesuffix(f" line {number}"))
    if cell and snapshot and snapshot.source_line(int(cell[1]), number).strip():
        return Place(place, code, who, int(cell[1]), number)
    return Place(words.one_line(place), code, who)


def _who(members: list[int], reports: list[RankReport], place: str = "") -> str:
    by_state = group(reports, lambda report: _gone_on(report, place) or words.state(report))
    if len(reports) != len(members):
        return words.ranks(members)
    return "; ".join(
        f"{words.ranks(r.rank for r in alike)} {_plural(text, len(alike))}"
        for text, alike in by_state
    )


def _gone_on(report: RankReport, place: str) -> str:
    """What a blocked rank did at a line in which it does not stand any more; else empty."""
    waits_in, position = report.blocked_call, report.position
    if report.state != "blocked" or waits_in is None or waits_in.where is None or not place:
        return ""
    if place in (waits_in.where.place, position.place if position else ""):
        return ""
    done = [c for c in report.calls if c.status == "done" and c.where and c.where.place == place]
    if not done:
        return ""
    here = place.rpartition(" line ")[0]
    there = waits_in.where.place.removeprefix(f"{here} ")
    return f"called {done[-1].op}, then went on to wait in {there}"


def _plural(phrase: str, number: int) -> str:
    """Turn ``waits in x``, said of one rank, into ``wait in x``, said of several."""
    first, blank, rest = phrase.partition(" ")
    return phrase if number == 1 else f"{_PLURALS.get(first, first)}{blank}{rest}"


def excerpt(found: Iterable[Place], cell: int, snapshot: Snapshot) -> list[SourceLine]:
    """The lines of one cell at which ranks stood, with the lines around them."""
    who: dict[int, str] = {}
    for place in found:
        if place.cell == cell and place.line is not None:
            who[place.line] = "; ".join(filter(None, [who.get(place.line), place.who]))
    source = next(c for c in (snapshot.cell, *snapshot.earlier_cells) if c.number == cell)
    last = source.first_line + len(source.source.splitlines()) - 1
    near = {n for line in who for n in range(line - CONTEXT, line + CONTEXT + 1)}
    rows: list[SourceLine] = []
    for number in sorted(n for n in near if source.first_line <= n <= last):
        if rows and rows[-1].number != number - 1:
            rows.append(SourceLine(None))
        code = words.bounded(words.clean(source.line(number)).expandtabs(4), 200)
        rows.append(SourceLine(number, code, who.get(number, "")))
    return rows


def group(items: Iterable[Item], key: Callable[[Item], Key]) -> list[tuple[Key, list[Item]]]:
    """Items with equal keys together, in the order in which the keys first came."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.items())
