"""The diagnosis of a run with all its views, each in one line until it is opened."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Protocol

from . import flags, html
from .bundle import Displayable
from .flags import Flag


class Flagged(Protocol):
    """A view that points out what is wrong."""

    @property
    def flags(self) -> list[Flag]:
        """What it points out, the gravest first."""

    def to_html(self) -> str:
        """The whole view."""


class Overview(Displayable):
    """What ``%%ddt_debug`` shows.

    Parameters
    ----------
    report
        The diagnosis.
    views
        The views by the name under which ``%ddt_show`` knows them.
    """

    __slots__ = ("_report", "_views")

    def __init__(self, report: Displayable, views: Mapping[str, Flagged]) -> None:
        self._report = report
        self._views = views

    def to_text(self) -> str:
        """The diagnosis, and what each view points out."""
        lines = [self._report.to_text()]
        for name, view in self._views.items():
            label = f"  {name:<12} "
            for line in flags.as_lines(view.flags, "nothing odd"):
                later = " " * len(label)
                lines += textwrap.wrap(line, 80, initial_indent=label, subsequent_indent=later)
                label = later
        lines.append("  %ddt_show NAME shows one of them whole")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The diagnosis, and each view folded under what it points out."""
        folded = [
            html.details(f"{name} · {flags.as_lines(view.flags, 'nothing odd')[0]}", view.to_html())
            for name, view in self._views.items()
        ]
        return html.Markup(self._report.to_html() + "".join(folded))
