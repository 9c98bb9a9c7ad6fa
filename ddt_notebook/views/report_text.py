"""A diagnosis as text: 80 columns, readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from ..diagnosis.wording import is_reason
from ..model import Finding, Report, Snapshot
from . import last_collectives, log_facts, safe, source_positions, terminal, words

#: Findings shown whole; the rest is counted.
FINDINGS_SHOWN = 3
#: Observed facts shown under a finding; the rest is counted.
EVIDENCE_SHOWN = 4

_COLOURS = {"certain": "red", "likely": "yellow", "possible": "blue"}


def report(
    diagnosis: Report, snapshot: Snapshot | None = None, *, but: str = "", colour: bool = False
) -> str:
    """A whole diagnosis: findings, then hints; one line if there are none.

    Parameters
    ----------
    but
        The addition to ``ok``.
    """
    style = terminal.Style(colour)
    blocks = [finding(f, snapshot, colour=colour) for f in diagnosis.findings[:FINDINGS_SHOWN]]
    if not blocks:
        blocks = [_without_findings(diagnosis, snapshot, but, style)]
    if rest := diagnosis.findings[FINDINGS_SHOWN:]:
        blocks.append(f"{words.count(len(rest), 'more finding')}: {_codes(rest)}")
    if diagnosis.hints:
        blocks.append(hints(diagnosis.hints))
    if facts := log_facts.as_text(diagnosis.log, style):
        blocks.append("\n".join(facts))
    return "\n".join(blocks)


def finding(item: Finding, snapshot: Snapshot | None = None, *, colour: bool = False) -> str:
    """One finding: its title, places, evidence, fixes, and where to read more."""
    style = terminal.Style(colour)
    title, stage, confidence = words.heading(item)
    lines = [f"{style(_COLOURS[item.confidence], title)} · {stage} · {confidence}"]
    lines += terminal.wrap("", safe.one_line(item.title, 1000))
    lines += _place_lines(source_positions.of_finding(item, snapshot), style)
    lines += last_collectives.as_text(item, snapshot) if snapshot is not None else []
    lines += terminal.labelled("seen", _news(item), EVIDENCE_SHOWN, style)
    for fix in item.fixes:
        advice = safe.one_line(fix.advice, 1000)
        if not words.is_unclassified(item):
            advice += f" — {words.fix_pattern(item.symptom, fix)}"
        lines += terminal.wrap("fix", advice, style)
    more = words.more_pages(item, snapshot)
    if path := words.lesson_on(item):
        more.append(f"lesson {path}")
    return "\n".join(lines + (terminal.wrap("more", " · ".join(more), style) if more else []))


def hints(items: Iterable[Finding]) -> str:
    """The hints, which may be intended, in one line."""
    first, *rest = items
    more = f" (and {words.count(len(rest), 'more hint')})" if rest else ""
    return f"hint · may be intended: {safe.one_line(first.title)}{more}"


def headline(diagnosis: Report, snapshot: Snapshot | None = None) -> str:
    """The first finding in one line, such as the message of an exception."""
    if diagnosis.findings:
        first = diagnosis.findings[0]
        return f"{words.heading(first)[0]}: {safe.one_line(first.title)}"
    return _outcome(diagnosis, snapshot)


def _news(item: Finding) -> list[str]:
    """The evidence without what the places already show; a reason shows more than its place."""
    shown = {(place.file, place.line) for place in item.places.values()}
    return [
        text
        for fact, text in words.facts(item)
        if fact is None
        or fact.place is None
        or is_reason(fact)
        or (fact.place.file, fact.place.line) not in shown
    ]


def _place_lines(found: list[source_positions.ShownPlace], style: terminal.Style) -> list[str]:
    place_width = min(28, max((len(p.place) for p in found), default=0))
    code_width = min(36, max((len(p.code) for p in found), default=0))
    lines = []
    for place in found:
        left = f"{place.place:<{place_width}}   {place.code:<{code_width}}"
        arrow = style("blue", "-->")
        if len(left) + len(place.who) + 9 <= terminal.WIDTH:
            lines.append(f"  {arrow} {left}   {place.who}".rstrip())
            continue
        left = left.rstrip()
        room = terminal.WIDTH - 6
        lines.append(f"  {arrow} {left if len(left) <= room else left[: room - 1] + '…'}")
        lines += textwrap.wrap(
            place.who, terminal.WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return lines


def _without_findings(
    diagnosis: Report, snapshot: Snapshot | None, but: str, style: terminal.Style
) -> str:
    if diagnosis.ok:
        return _outcome(diagnosis, snapshot, style("yellow" if but else "green", f"ok{but}"))
    lines = [_outcome(diagnosis, snapshot)]
    if snapshot is not None:
        lines += _place_lines(source_positions.of_snapshot(snapshot), style)
    return "\n".join(lines)


def _outcome(diagnosis: Report, snapshot: Snapshot | None, ok: str = "ok") -> str:
    """The outcome in one line; ``ok`` is the word for a healthy run."""
    if diagnosis.ok or snapshot is None:
        word = ok if diagnosis.ok else "undecided"
        return f"{word} · {diagnosis.checked}" if diagnosis.checked else word
    return f"{snapshot.outcome} after {words.duration(snapshot.duration_s)}"


def _codes(items: Iterable[Finding]) -> str:
    return ", ".join(dict.fromkeys(words.heading(item)[0] for item in items))
