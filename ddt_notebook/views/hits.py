"""What fits the words that someone asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..faults.search import Hit
from . import html, table, text, words
from .bundle import Displayable


class HitsView(Displayable):
    """A ranked list of symptoms and cards.

    Parameters
    ----------
    query
        The words.
    hits
        What fits, best first.
    """

    __slots__ = ("hits", "query")

    def __init__(self, query: str, hits: Sequence[Hit]) -> None:
        self.query = query
        self.hits = hits

    def to_text(self) -> str:
        """The list, 80 columns wide."""
        lines = [self._title()]
        for hit in self.hits:
            lines.append(f"  %ddt_explain {hit.name}")
            lines += text.wrap(" ", self._about(hit))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The list as a table."""
        rows = [(html.code(f"%ddt_explain {hit.name}"), self._about(hit)) for hit in self.hits]
        return html.view(html.line(html.tag("b", self._title())), html.table(rows))

    def to_json(self) -> dict[str, Any]:
        """The words and the hits as plain data."""
        return {"query": self.query, "hits": [dataclasses.asdict(hit) for hit in self.hits]}

    def to_frame(self) -> Any:
        """One row for each hit, best first, as a pandas DataFrame.

        - ``kind``: ``"symptom"`` of the study, or ``"card"``
        - ``name``: code of the symptom, or id of the fault card
        - ``title``: its title
        - ``score``: how well it fits, without a unit; comparable within one search only
        """
        rows = [dataclasses.asdict(hit) for hit in self.hits]
        return table.frame(rows, ("kind", "name", "title", "score"))

    def _title(self) -> str:
        return f"{words.count(len(self.hits), 'page')} about “{words.one_line(self.query, 60)}”"

    @staticmethod
    def _about(hit: Hit) -> str:
        return f"{hit.title} (a symptom of the study)" if hit.kind == "symptom" else hit.title
