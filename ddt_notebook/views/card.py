"""A fault card as one page."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

from ..diagnosis.advice import fixes
from ..faults import FaultCard
from ..model import Fix
from ..symptoms import symptom
from . import diffs, html, text, words
from .bundle import Displayable
from .html import Markup


class CardView(Displayable):
    """What a fault looks like, why it happens, how it is told from others, and what to change.

    Parameters
    ----------
    card
        The fault.
    related
        Other cards with the same symptom.
    """

    __slots__ = ("card", "related")

    def __init__(self, card: FaultCard, related: Sequence[FaultCard] = ()) -> None:
        self.card = card
        self.related = related

    def to_text(self) -> str:
        """The page, 80 columns wide."""
        card = self.card
        lines = textwrap.wrap(self._heading(), text.WIDTH)
        lines += text.wrap("", f"{card.id}: {card.title}")
        for label, paragraph in (("sees", card.sees), ("why", card.why), ("jobs", card.cluster)):
            lines += text.wrap(label, words.one_line(paragraph, 4000))
        for name, how in card.apart.items():
            lines += text.wrap("not", words.one_line(f"{name}: {how}", 1000))
        lines.append(f"  the broken cell, and what repairs it ({words.count(card.n, 'rank')})")
        lines += diffs.as_text(card.broken, card.fixed)
        if card.setup:
            lines.append("  what runs before")
            lines += [f"      {line}".rstrip() for line in card.setup.splitlines()]
        for backend, messages in self._messages():
            for message in messages:
                lines += text.wrap(backend, words.one_line(message))
        for fix in self.fixes():
            lines += text.wrap("fix", f"{self._pattern(fix)}: {fix.advice}")
        for reference in card.references:
            lines += text.wrap("read", reference.text)
            lines.append(f"       {reference.url}")
        if self.related:
            lines += text.wrap("near", ", ".join(other.id for other in self.related))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The page for a notebook."""
        card = self.card
        parts = [
            html.line(html.tag("b", card.title)),
            html.line(html.code(card.id), f" · {self._heading()}"),
            _section("what you see", html.line(html.prose(card.sees))),
            _section("why", html.line(html.prose(card.why))),
            _section("in a real job", html.line(html.prose(card.cluster))),
        ]
        if card.apart:
            rows = [(html.code(name), html.prose(how)) for name, how in card.apart.items()]
            parts.append(_section("told apart from", html.table(rows)))
        changed = f"the broken cell, and what repairs it ({words.count(card.n, 'rank')})"
        parts.append(_section(changed, diffs.as_html(card.broken, card.fixed)))
        if card.setup:
            parts.append(html.details("what runs before", html.pre(card.setup)))
        parts.append(html.details("the whole broken cell", html.pre(card.broken)))
        parts.append(html.details("the whole repaired cell", html.pre(card.fixed)))
        said = [html.line(f"{b}: ", html.code(m)) for b, ms in self._messages() for m in ms]
        parts.append(_section("messages", *(said or [html.line("none: nothing is raised")])))
        advice = [(self._pattern(fix), html.prose(fix.advice)) for fix in self.fixes()]
        parts.append(_section("what to change", html.table(advice)))
        if self.related:
            others = [(html.code(other.id), other.title) for other in self.related]
            parts.append(html.details("other faults with this symptom", html.table(others)))
        pages = [html.line(f"{r.text}: ", html.code(r.url)) for r in card.references]
        parts.append(_section("read on", *pages))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The card as plain data."""
        card = self.card
        return {
            "id": card.id,
            "title": card.title,
            "symptoms": list(card.symptoms),
            "stage": card.stage,
            "sees": card.sees,
            "why": card.why,
            "cluster": card.cluster,
            "apart": dict(card.apart),
            "n": card.n,
            "options": dict(card.options),
            "setup": card.setup,
            "broken": card.broken,
            "fixed": card.fixed,
            "proof": card.proof,
            "messages": {"gloo": list(card.gloo), "nccl": list(card.nccl)},
            "fixes": [dataclasses.asdict(fix) for fix in self.fixes()],
            "references": [dataclasses.asdict(reference) for reference in card.references],
        }

    def fixes(self) -> list[Fix]:
        """What to change, best first, with the study's shares."""
        card = self.card
        culprit = card.expected.ranks[0] if card.expected.ranks else 0
        return fixes(card.symptom, card.id, rank=culprit)

    def _heading(self) -> str:
        named = ", ".join(f"{symptom(code).title} {code}" for code in self.card.symptoms)
        return f"{named} · {self.card.stage}"

    def _messages(self) -> list[tuple[str, tuple[str, ...]]]:
        both = (("gloo", self.card.gloo), ("nccl", self.card.nccl))
        return [(backend, messages) for backend, messages in both if messages]

    def _pattern(self, fix: Fix) -> str:
        return words.fix_pattern(self.card.symptom, fix)


def _section(title: str, *content: Markup) -> Markup:
    return html.tag("div", html.line(html.tag("b", title)), *content, style="margin:6px 0")
