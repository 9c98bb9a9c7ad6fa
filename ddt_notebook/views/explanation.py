"""What the study knows of one symptom."""

from __future__ import annotations

from ..taxonomy import FixPattern, Symptom
from . import html, text, words
from .bundle import Displayable

#: Fix patterns listed; the rest is counted.
PATTERNS = 6


class ExplanationView(Displayable):
    """A symptom, its stage, and what repaired it in the study.

    Parameters
    ----------
    symptom
        From the taxonomy.
    patterns
        Its fix patterns, most frequent first.
    """

    __slots__ = ("_patterns", "_symptom")

    def __init__(self, symptom: Symptom, patterns: tuple[FixPattern, ...]) -> None:
        self._symptom = symptom
        self._patterns = patterns

    def to_text(self) -> str:
        """The explanation, 80 columns wide."""
        lines = [self._title(), *text.wrap("", self._frequency())]
        if rows := self._rows():
            width = max(len(name) for name, *_ in rows)
            lines.append("  what repaired it")
            lines += [f"    {share:>4}  {name:<{width}}  {faults}" for name, faults, share in rows]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The explanation as HTML."""
        parts = [html.line(html.tag("b", self._title())), html.line(self._frequency())]
        if rows := self._rows():
            parts.append(html.table(rows, ("what repaired it", "faults", "share")))
        return html.view(*parts)

    def _title(self) -> str:
        return f"{self._symptom.title} {self._symptom.code} · {self._symptom.stage_title}"

    def _frequency(self) -> str:
        symptom = self._symptom
        found = f"{words.count(symptom.faults, 'fault')} of this kind in the study"
        if symptom.distributed_faults == symptom.faults:
            return f"{found}, all of them only in distributed training"
        return f"{found}, {symptom.distributed_faults} of them only in distributed training"

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [(p.pattern, str(p.faults), f"{p.share:.0%}") for p in self._patterns[:PATTERNS]]
        if rest := self._patterns[PATTERNS:]:
            faults = sum(p.faults for p in rest)
            share = f"{sum(p.share for p in rest):.0%}"
            rows.append((words.count(len(rest), "other pattern"), str(faults), share))
        return rows
