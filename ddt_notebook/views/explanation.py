"""What the study knows of one symptom, and the cards of its faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..faults import FaultCard
from ..symptoms import FixPattern, Symptom
from ..symptoms.lessons import lesson_in_folder
from . import html, table, text, words
from .bundle import Displayable

#: Fix patterns listed; the rest is counted.
PATTERNS = 6


class ExplanationView(Displayable):
    """A symptom, its stage, what repaired it in the study, and the faults that show it.

    Parameters
    ----------
    symptom
        From the taxonomy.
    patterns
        Its fix patterns, most frequent first.
    cards
        The faults that show it.
    """

    __slots__ = ("_cards", "_patterns", "_symptom")

    def __init__(
        self,
        symptom: Symptom,
        patterns: tuple[FixPattern, ...],
        cards: Sequence[FaultCard] = (),
    ) -> None:
        self._symptom = symptom
        self._patterns = patterns
        self._cards = cards

    def to_text(self) -> str:
        """The explanation, 80 columns wide."""
        lines = [self._title(), *text.wrap("", self.frequency())]
        if rows := self._rows():
            width = max(len(name) for name, *_ in rows)
            lines.append("  what repaired it")
            lines += [f"    {share:>4}  {name:<{width}}  {faults}" for name, faults, share in rows]
        if self._cards:
            lines.append("  faults that look like this (%ddt_explain NAME says more)")
            for card in self._cards:
                lines.append(f"    {card.id}")
                lines += text.wrap(" ", card.title)
        if lesson := self._lesson():
            lines.append(f"  lesson {lesson}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The explanation as HTML."""
        parts = [html.line(html.tag("b", self._title())), html.line(self.frequency())]
        if rows := self._rows():
            parts.append(html.table(rows, ("what repaired it", "faults", "share")))
        if self._cards:
            parts.append(html.line(html.tag("b", "faults that look like this")))
            parts += [
                html.details(
                    f"{card.title} ({card.id})",
                    html.line(html.prose(card.sees)),
                    html.line("why: ", html.prose(card.why)),
                    html.line("read on: ", html.code(f"%ddt_explain {card.id}")),
                )
                for card in self._cards
            ]
        if lesson := self._lesson():
            parts.append(html.line("lesson: ", html.code(lesson)))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The symptom, its fix patterns, its cards and its lesson as plain data."""
        return {
            **dataclasses.asdict(self._symptom),
            "fixes": [dataclasses.asdict(pattern) for pattern in self._patterns],
            "cards": [{"id": card.id, "title": card.title} for card in self._cards],
            "lesson": self._lesson(),
        }

    def to_frame(self) -> Any:
        """One row for each fix pattern, as a pandas DataFrame.

        - ``pattern``: kind of change, in the study's words
        - ``faults``: number of faults that it repaired in the study
        - ``share``: ``faults`` as a part of the symptom's distributed faults, from 0 to 1
        """
        rows = [dataclasses.asdict(pattern) for pattern in self._patterns]
        return table.frame(rows, ("pattern", "faults", "share"))

    def _lesson(self) -> str | None:
        return lesson_in_folder(self._symptom.code)

    def _title(self) -> str:
        return f"{self._symptom.title} {self._symptom.code} · {self._symptom.stage_title}"

    def frequency(self) -> str:
        """How many faults of this kind the study had."""
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
