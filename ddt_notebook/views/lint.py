"""Findings of lint, with a line and a fix for each; no rank has to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from ..model import Finding, Report
from . import html, safe, terminal, words
from .displayable import Displayable

_SIGNS = {"certain": ("✖", "error"), "likely": ("▲", "warning"), "possible": ("?", "hint")}


class ForeseenView(Displayable, Sequence[Finding]):
    """The findings of lint as a sequence, hints at its end.

    Parameters
    ----------
    found
        Findings, in the order of the lines; those of confidence ``"possible"`` are hints.
    name
        Name of the source: ``"this cell"``, ``"train.py"``.
    """

    def __init__(self, found: Sequence[Finding], name: str) -> None:
        self.findings = [finding for finding in found if finding.confidence != "possible"]
        self.hints = [finding for finding in found if finding.confidence == "possible"]
        self._name = name

    @overload
    def __getitem__(self, at: int) -> Finding: ...
    @overload
    def __getitem__(self, at: slice) -> list[Finding]: ...
    def __getitem__(self, at: int | slice) -> Finding | list[Finding]:
        return [*self.findings, *self.hints][at]

    def __len__(self) -> int:
        return len(self.findings) + len(self.hints)

    def __iter__(self) -> Iterator[Finding]:
        return iter([*self.findings, *self.hints])

    def to_json(self) -> dict[str, Any]:
        """Plain data, in the form of a report."""
        report = Report(
            ok=not self.findings, findings=self.findings, hints=self.hints, checked=self._name
        )
        return report.to_json()

    def to_text(self) -> str:
        """Each finding with its line and its fix; each hint in one line."""
        lines = [] if self.findings else [f"ok · no fault was found in {self._name}"]
        for finding in self.findings:
            sign, _ = _SIGNS[finding.confidence]
            first, *rest = terminal.wrap("", safe.one_line(finding.title, 600))
            lines += [f"{sign} {first[2:]} · {finding.symptom}", *rest]
            for fact in finding.evidence[:3]:
                lines += terminal.wrap("-->", safe.one_line(fact, 300))
            for fix in finding.fixes[:1]:
                lines += terminal.wrap("fix", safe.one_line(fix.advice, 600))
            lines += terminal.wrap("more", words.more(finding)[-1])
        lines += [line for hint in self.hints for line in terminal.wrap("hint", self._hint(hint))]
        return "\n".join(lines)

    def to_html(self) -> str:
        """A block for each finding."""
        parts: list[str] = []
        if not self.findings:
            parts.append(html.line(f"ok · no fault was found in {self._name}"))
        for finding in self.findings:
            sign, kind = _SIGNS[finding.confidence]
            block = [
                html.line(
                    html.chip(sign, finding.symptom, kind),
                    " ",
                    html.tag("b", safe.one_line(finding.title, 600)),
                )
            ]
            facts = [safe.one_line(fact, 300) for fact in finding.evidence[:3]]
            block += [html.line("→ ", html.prose(fact)) for fact in facts]
            advice = [safe.one_line(fix.advice, 600) for fix in finding.fixes[:1]]
            block += [html.line(html.tag("b", "fix "), html.prose(fix)) for fix in advice]
            block.append(html.line("read on: ", html.code(words.more(finding)[-1])))
            parts.append(html.card(kind, *block))
        parts += [html.line("hint: ", html.prose(self._hint(hint))) for hint in self.hints]
        return html.view(*parts)

    @staticmethod
    def _hint(hint: Finding) -> str:
        place = hint.facts[0].place if hint.facts else None
        text = f"{place.place}: {hint.title} ({hint.cause})" if place is not None else hint.title
        return safe.one_line(text, 600)
