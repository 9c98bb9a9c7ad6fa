"""What was changed in a corrected cell."""

from __future__ import annotations

from . import diffs, html, text, words
from .bundle import Displayable


class CorrectionView(Displayable):
    """What was changed in the cell that was put into a new one.

    Parameters
    ----------
    before, after
        The cell's source.
    says
        What was changed.
    """

    __slots__ = ("after", "before", "says")

    def __init__(self, before: str, after: str, says: str) -> None:
        self.before = before
        self.after = after
        self.says = says

    def to_text(self) -> str:
        """The change as a diff."""
        lines = text.wrap("", self._title())
        return "\n".join([*lines, *diffs.as_text(self.before, self.after)])

    def to_html(self) -> str:
        """The change as a diff."""
        return html.view(
            html.line(html.prose(self._title())), diffs.as_html(self.before, self.after)
        )

    def _title(self) -> str:
        return f"the next cell holds the corrected one, run it to see: {words.one_line(self.says)}"
