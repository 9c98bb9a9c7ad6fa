"""The page about an error message of the catalogue."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..diagnosis.advice import fixes
from ..faults import page_ids
from ..messages import Message
from ..model import Fix
from ..symptoms import symptom
from . import html, safe, terminal, words
from .displayable import Displayable

_ELSEWHERE = "This message has no cause of its own: another line of the output names the cause."


class MessageView(Displayable):
    """What a message means, how to confirm it, and what to change.

    Parameters
    ----------
    entry
        From the catalogue.
    """

    __slots__ = ("entry",)

    def __init__(self, entry: Message) -> None:
        self.entry = entry

    def to_text(self) -> str:
        """The page, 80 columns wide."""
        entry = self.entry
        lines = terminal.wrap("", f"{entry.id}: {entry.means}")
        lines += terminal.wrap("", self._heading())
        lines += terminal.wrap("says", safe.one_line(entry.example, 400))
        lines += terminal.wrap("look", entry.check)
        for fix in self.fixes():
            lines += terminal.wrap("fix", f"{fix.advice} — {self._pattern(fix)}")
        lines += terminal.wrap("from", entry.source)
        if entry.cause_elsewhere:
            lines += terminal.wrap("note", _ELSEWHERE)
        if entry.thread is not None:
            lines += terminal.wrap("seen", entry.thread)
        lines += terminal.wrap("more", " · ".join(f"%ddt_explain {name}" for name in self._more()))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The page for a notebook."""
        entry = self.entry
        advice = [(self._pattern(fix), html.prose(fix.advice)) for fix in self.fixes()]
        more = " · ".join(f"%ddt_explain {name}" for name in self._more())
        return html.view(
            html.line(html.tag("b", entry.means)),
            html.line(html.code(entry.id), f" · {self._heading()}"),
            html.line("an example: ", html.code(safe.one_line(entry.example, 400))),
            html.line("to confirm it: ", html.prose(entry.check)),
            html.table(advice, ("what to change", "how")),
            html.line(f"raised by: {entry.source}"),
            html.line(_ELSEWHERE) if entry.cause_elsewhere else "",
            html.line(f"confirmed in: {entry.thread}") if entry.thread is not None else "",
            html.line("read on: ", html.code(more)),
        )

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data."""
        entry = self.entry
        return {
            "id": entry.id,
            "raiser": entry.raiser,
            "symptoms": list(entry.symptoms),
            "kind": entry.kind,
            "means": entry.means,
            "check": entry.check,
            "fixes": [dataclasses.asdict(fix) for fix in self.fixes()],
            "card": entry.card,
            "source": entry.source,
            "thread": entry.thread,
            "cause_elsewhere": entry.cause_elsewhere,
            "example": entry.example,
        }

    def fixes(self) -> list[Fix]:
        """What to change, best first, with the study's shares."""
        return fixes(self.entry.symptoms[0], self.entry.card, message=self.entry.id)

    def _heading(self) -> str:
        named = ", ".join(f"{symptom(code).title} {code}" for code in self.entry.symptoms)
        follows = {
            "error": "",
            "effect": "; it follows from another failure",
            "warning": "; the run goes on after it",
            "complaint": "; nothing is raised",
        }
        stage = symptom(self.entry.symptoms[0]).stage_title
        return f"{named} · {stage}{follows[self.entry.kind]}"

    def _pattern(self, fix: Fix) -> str:
        return words.fix_pattern(self.entry.symptoms[0], fix)

    def _more(self) -> list[str]:
        card = self.entry.card
        known = card in page_ids()
        return [*self.entry.symptoms[:1], *([card] if known and card else [])]
