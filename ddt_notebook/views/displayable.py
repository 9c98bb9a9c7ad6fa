"""Base of objects that are displayed as text in a terminal and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Collection

from ..output_encoding import printable
from . import html


class Displayable:
    """Mixin for views: subclasses give `to_text` and `to_html`."""

    __slots__ = ()

    def to_text(self) -> str:
        """The view for a terminal, 80 columns wide."""
        raise NotImplementedError

    def to_html(self) -> str:
        """The view for a notebook."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return printable(self.to_text())  # print() shows it

    def _repr_mimebundle_(
        self,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
    ) -> dict[str, str]:
        faces = {"text/plain": self.to_text, "text/html": self.to_html}
        return {
            kind: render()
            for kind, render in faces.items()
            if (not include or kind in include) and (not exclude or kind not in exclude)
        }


class Message(Displayable):
    """One or more plain lines, such as the answer of a magic that has nothing else to show."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def to_text(self) -> str:
        """The lines, unchanged."""
        return self.text

    def to_html(self) -> str:
        """The lines, escaped."""
        return html.view(html.pre(self.text))
