"""What JupyterLab's side panel shows, as plain data: the front end only draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..formatting import naming_hosts
from ..model import Finding, Report, Snapshot
from ..model.frameworks import described
from ..symptoms.lessons import lesson
from . import html, safe, source_positions, words
from .live_ranks import LiveView, RankLine
from .report import KINDS
from .session_status import ROWS

#: Findings that the panel shows; the rest is counted.
_FINDINGS_SHOWN = 5


class SessionLike(Protocol):
    """What the panel needs to know of a session."""

    @property
    def world_size(self) -> int: ...
    @property
    def backend(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def framework(self) -> str | None: ...
    @property
    def busy(self) -> bool: ...
    @property
    def frozen(self) -> bool: ...


class ResourcesLike(Protocol):
    """What the panel needs to know of a rank's device and memory."""

    @property
    def device(self) -> str: ...
    @property
    def resident_bytes(self) -> int | None: ...
    @property
    def allocated_bytes(self) -> int | None: ...
    @property
    def cap_bytes(self) -> int | None: ...


def of_session(session: SessionLike, memory_limit: int | None) -> dict[str, Any]:
    """The session's line; ``memory_limit``: what each rank may allocate beyond its start."""
    meets = f"for {described(session.framework).title}" if session.framework else session.backend
    parts = [words.count(session.world_size, "rank"), meets, session.device]
    if memory_limit is not None:
        parts.append(f"each may allocate {words.size(memory_limit)}")
    return {
        "line": " · ".join(parts),
        "ranks": session.world_size,
        "busy": session.busy,
        "frozen": session.frozen,
    }


def at_prompt(alive: Sequence[bool], hosts: Sequence[str]) -> LiveView:
    """A session in which nothing runs.

    Parameters
    ----------
    alive
        For each rank, whether its process is there.
    hosts
        The host of each rank; empty for the machine of the notebook.
    """
    states = ["ready" if there else "died" for there in alive]
    alike = source_positions.group(
        range(len(states)), lambda r: (states[r], hosts[r], r if len(states) <= ROWS else 0)
    )
    lines = (RankLine(ranks=tuple(ranks), state=state) for (state, *_), ranks in alike)
    headline = f"{words.count(len(states), 'rank')}, no cell runs"
    return LiveView(headline, tuple(lines), hosts=dict(enumerate(hosts)))


def of_view(view: LiveView, resources: Mapping[int, ResourcesLike]) -> dict[str, Any]:
    """The headline, a row for each rank or for ranks that are alike, and the notes."""
    with naming_hosts(view.hosts):
        rows = [
            _row(line, [resources[rank] for rank in line.ranks if rank in resources])
            for line in view.lines
        ]
    return {"headline": view.headline, "rows": rows, "notes": list(view.notes)}


def of_report(report: Report, snapshot: Snapshot) -> dict[str, Any]:
    """What was found in a run, with the lines that a reader may want to go to."""
    shown = report.findings[:_FINDINGS_SHOWN]
    with naming_hosts(snapshot.hosts):
        findings = [_finding(finding, snapshot) for finding in shown]
    summary = report.checked if report.ok else ""
    if rest := len(report.findings) - len(shown):
        summary = f"{words.count(rest, 'more finding')} below the cell"
    return {
        "cell": snapshot.cell.number,
        "findings": findings,
        "summary": summary,
    }


def _row(line: RankLine, resources: Sequence[ResourcesLike]) -> dict[str, Any]:
    if line.memory_bytes is None and line.state != "died":
        resident = (r.resident_bytes for r in resources if r.resident_bytes is not None)
        line = replace(line, memory_bytes=max(resident, default=None))
    sign, kind = line.sign
    place = line.place if line.place is not None and line.place.cell is not None else None
    return {
        "ranks": list(line.ranks),
        "asked": line.state != "not asked",
        "label": words.ranks_cell(line.ranks),
        "sign": sign,
        "state": line.state,
        "colour": html.COLOURS[kind],
        "wait": line.wait,
        "where": line.where,
        "cell": place.cell if place is not None else None,
        "line": place.line if place is not None else None,
        "memory": line.memory,
        **_resources(resources),
    }


def _resources(ranks: Sequence[ResourcesLike]) -> dict[str, Any]:
    """Their devices, and what the one that has allocated most has of its cap."""
    known = [(r.allocated_bytes, r.cap_bytes) for r in ranks if r.allocated_bytes is not None]
    used, cap = max(known, default=(0, None))
    bound = "≤ " if len(known) > 1 else ""
    return {
        "device": safe.listing(r.device for r in ranks if r.device),
        "share": min(1.0, used / cap) if cap else None,
        "allocated": f"{bound}{words.size(used)} of {words.size(cap)} allocated" if cap else "",
    }


def _finding(finding: Finding, snapshot: Snapshot) -> dict[str, Any]:
    name, stage, confidence = words.heading(finding)
    return {
        "symptom": finding.symptom,
        "name": name,
        "about": f"{stage} · {confidence}",
        "sign": words.symbol(finding),
        "colour": html.COLOURS[KINDS[finding.confidence]],
        "title": safe.one_line(finding.title, 1000),
        "places": [_place(place) for place in source_positions.of_finding(finding, snapshot)],
        "fixes": [safe.one_line(fix.advice, 1000) for fix in finding.fixes],
        "explain": words.explained_by(finding),
        "lesson": None if words.is_unclassified(finding) else lesson(finding.symptom),
    }


def _place(place: source_positions.ShownPlace) -> dict[str, Any]:
    return {
        "place": place.place,
        "code": safe.one_line(place.code, 200),
        "who": place.who,
        "cell": place.cell,
        "line": place.line,
    }
