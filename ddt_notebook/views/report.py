"""A diagnosis that a notebook displays as HTML and a terminal as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from ..diagnosis.corrections import Correction, correction
from ..diagnosis.wording import is_reason
from ..formatting import naming_hosts
from ..model import Finding, Report, Snapshot
from . import (
    code_diff,
    failures,
    html,
    last_collectives,
    log_facts,
    report_text,
    safe,
    source_positions,
    terminal,
    words,
)
from .displayable import Displayable
from .html import Markup

_OFFER = "`%ddt_debug --fix` puts the corrected cell into a new one"
KINDS = {"certain": "error", "likely": "warning", "possible": "hint"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DisplayedReport(Displayable, Report):
    """A `Report` that shows itself as text and as HTML; equal to any report of equal content.

    Attributes
    ----------
    snapshot
        The snapshot behind the report, if it is known: the views then show source lines, what each
        rank was doing, and the original errors.
    notes
        What else the reader should know ("rank 2 was replaced: it lost model").
    flagging
        How many of the views below flag something that is likely to be wrong.

    None is part of the JSON.
    """

    snapshot: Snapshot | None = None
    notes: tuple[str, ...] = ()
    flagging: int = 0

    @property
    def but(self) -> str:
        """The addition to ``ok``: ``, but 2 views flag something``."""
        if not self.flagging:
            return ""
        verb = "flags" if self.flagging == 1 else "flag"
        return f", but {words.count(self.flagging, 'view')} {verb} something"

    def to_text(self) -> str:
        """The findings, 80 columns wide."""
        return self.to_terminal(colour=False)

    def to_terminal(self, *, colour: bool) -> str:
        """The findings, 80 columns wide, with ANSI colours or without."""
        with naming_hosts(self._hosts):
            lines = [report_text.report(self, self.snapshot, but=self.but, colour=colour)]
        made = self._correction(self.findings[: report_text.FINDINGS_SHOWN])
        if made is not None and self.snapshot is not None:
            offer = f"{_OFFER}: " if self.snapshot.origin == "session" else ""
            lines += terminal.wrap("diff", f"{offer}{safe.one_line(made.says)}")
            lines += code_diff.as_text(self.snapshot.cell.source, made.source, " " * 7)
        for note in self.notes:
            lines += terminal.wrap("note", safe.one_line(note, 1000))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The findings for a notebook."""
        with naming_hosts(self._hosts):
            return _html(self)

    @property
    def _hosts(self) -> dict[int, str]:
        return self.snapshot.hosts if self.snapshot is not None else {}

    @property
    def correction(self) -> Correction | None:
        """The cell without the first fault for which the change can be derived; hints come last."""
        return self._correction((*self.findings, *self.hints))

    def _correction(self, findings: Iterable[Finding]) -> Correction | None:
        if self.snapshot is None:
            return None
        made = (correction(finding, self.snapshot) for finding in findings)
        return next((one for one in made if one is not None), None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(Report))

    __hash__ = Report.__hash__


def show(
    report: Report, snapshot: Snapshot | None = None, notes: Iterable[str] = ()
) -> DisplayedReport:
    """Make a report displayable; ``snapshot`` adds source lines and the original errors."""
    content = {f.name: getattr(report, f.name) for f in fields(Report)}
    seen = snapshot.notes if snapshot is not None else ()
    return DisplayedReport(**content, snapshot=snapshot, notes=(*seen, *notes))


def _html(report: DisplayedReport) -> str:
    snapshot = report.snapshot
    parts = [_finding(f, snapshot) for f in report.findings[: report_text.FINDINGS_SHOWN]]
    if not parts:
        parts = [_without_findings(report, snapshot)]
    if rest := report.findings[report_text.FINDINGS_SHOWN :]:
        summary = words.count(len(rest), "more finding")
        parts.append(html.details(summary, *(_finding(f, snapshot) for f in rest)))
    if report.hints:
        parts.append(html.card("hint", *map(_hint, report.hints)))
    parts += log_facts.as_html(report.log)
    parts += [html.line(html.tag("b", "note "), safe.one_line(note)) for note in report.notes]
    if snapshot is not None:
        parts += original_errors(report, snapshot)
    return html.view(*parts)


def _finding(finding: Finding, snapshot: Snapshot | None) -> Markup:
    parts = concluded(finding, snapshot)
    parts += last_collectives.as_html(finding, snapshot) if snapshot is not None else []
    parts += [_fix(finding, number) for number in range(len(finding.fixes))]
    parts += seen(finding)
    made = correction(finding, snapshot) if snapshot is not None else None
    if made is not None and snapshot is not None:
        parts.append(
            html.details(
                "the corrected script" if snapshot.cell.file else "the corrected cell",
                html.line(html.prose(safe.one_line(made.says))),
                code_diff.as_html(snapshot.cell.source, made.source),
                *([html.line(html.prose(_OFFER))] if snapshot.origin == "session" else []),
            )
        )
    pages: list[str] = [html.code(page) for page in words.more_pages(finding, snapshot)]
    if path := words.lesson_on(finding):
        pages.append(html.lesson(path))
    if pages:
        parts.append(html.line("read on: ", Markup(" · ".join(pages))))
    return html.card(KINDS[finding.confidence], *parts)


def concluded(finding: Finding, snapshot: Snapshot | None) -> list[Markup]:
    """What happened, where each rank stood, and the likely reason."""
    name, stage, confidence = words.heading(finding)
    chip = html.chip(words.symbol(finding), name, KINDS[finding.confidence])
    parts = [
        html.line(chip, f"  {stage} · {confidence}"),
        html.line(html.tag("b", safe.one_line(finding.title, 1000))),
    ]
    parts += _places(source_positions.of_finding(finding, snapshot), snapshot)
    reasons = (text for fact, text in words.facts(finding) if fact and is_reason(fact))
    return parts + [html.line(html.prose(safe.one_line(reason, 1000))) for reason in reasons]


def seen(finding: Finding) -> list[Markup]:
    """The observed facts, folded."""
    facts = [text for fact, text in words.facts(finding) if not fact or not is_reason(fact)]
    if not facts:
        return []
    items = [html.tag("li", safe.one_line(fact, 1000)) for fact in facts]
    return [
        html.details(
            f"what was seen ({words.count(len(items), 'fact')})",
            html.tag("ul", *items, style="margin:2px 0 2px 0"),
        )
    ]


def _places(found: list[source_positions.ShownPlace], snapshot: Snapshot | None) -> list[Markup]:
    """One excerpt for each cell whose source is known; the other places as lines."""
    parts, shown = [], set()
    for place in found:
        if place.cell is None or not place.in_source or snapshot is None:
            code = [Markup("&ensp;"), html.code(place.code)] if place.code else []
            parts.append(html.line(f"→ {place.place}", *code, Markup("&ensp;◀ "), place.who))
        elif place.cell not in shown:
            shown.add(place.cell)
            parts.append(html.line(f"cell[{place.cell}]"))
            parts.append(html.excerpt(source_positions.excerpt(found, place.cell, snapshot)))
    return parts


def _fix(finding: Finding, number: int) -> Markup:
    fix = finding.fixes[number]
    advice = html.prose(safe.one_line(fix.advice, 1000))
    if words.is_unclassified(finding):
        return html.line(html.tag("b", "fix "), advice)
    pattern = words.fix_pattern(finding.symptom, fix)
    return html.line(html.tag("b", "fix "), advice, f" — {pattern}")


def _hint(hint: Finding) -> Markup:
    return html.line(
        html.chip(words.symbol(hint), "hint", "hint"),
        f" may be intended: {safe.one_line(hint.title, 1000)}",
    )


def _without_findings(report: DisplayedReport, snapshot: Snapshot | None) -> Markup:
    if report.ok:
        sign, kind = ("▲", "warning") if report.but else ("✓", "ok")
        return html.line(html.chip(sign, f"ok{report.but}", kind), f" {report.checked}")
    head = html.line(html.chip("■", report_text.headline(report, snapshot), "warning"))
    stood = _places(source_positions.of_snapshot(snapshot), snapshot) if snapshot else ()
    return html.card("warning", head, *stood)


def original_errors(report: Report, snapshot: Snapshot) -> list[Markup]:
    """The original errors of the ranks, folded."""
    found = failures.of_snapshot(snapshot, report)
    if not found:
        return []
    parts = [html.details(failure.title, html.pre(failure.text)) for failure in found[:4]]
    if len(found) > 4:
        parts.append(html.line(f"and {words.count(len(found) - 4, 'more error')}"))
    return [html.details("the original errors", *parts)]
