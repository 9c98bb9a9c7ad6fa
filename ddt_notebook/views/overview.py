"""The diagnosis of a run with all its views, each in one line until it is opened."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from . import flags, html, words
from .displayable import Displayable
from .run_view import RunView


class Overview(Displayable):
    """The output of ``%%ddt_debug``.

    Parameters
    ----------
    report
        The diagnosis.
    views
        The views by the name under which ``%ddt_show`` knows them.
    cut_off
        Whether the run ended early: the flags of the views may then follow from the cause, and
        are folded below it.
    """

    __slots__ = ("_cut_off", "_report", "_views")

    def __init__(
        self, report: Displayable, views: Mapping[str, RunView], *, cut_off: bool = False
    ) -> None:
        self._report = report
        self._views = views
        self._cut_off = cut_off

    def to_text(self) -> str:
        """The diagnosis, and the flags of each view."""
        lines = [self._report.to_text()]
        if self._cut_off:
            lines += textwrap.wrap(
                f"views {self._until_then()}", 80, initial_indent="  ", subsequent_indent=" " * 8
            )
        else:
            lines += self._lines()
        return "\n".join([*lines, "  %ddt_show NAME shows one of them whole"])

    def to_html(self) -> str:
        """The diagnosis, and each view folded under its flags."""
        if not self._cut_off:
            folded = [
                html.details(f"{name} · {_summary(view)[0]}", view.to_html())
                for name, view in self._views.items()
            ]
            return html.Markup(self._report.to_html() + "".join(folded))
        # a run that was cut off must not be reported as healthy
        parts = [
            html.details(
                " · ".join([name, *_summary(view)[:1]] if view.flags else [name]), view.to_html()
            )
            for name, view in self._views.items()
        ]
        return html.Markup(self._report.to_html() + html.details(self._until_then(), *parts))

    def _until_then(self) -> str:
        flagged = ", ".join(
            f"{name} ({words.count(len(view.flags), 'flag')})"
            for name, view in self._views.items()
            if view.flags
        )
        if not flagged:
            return "of what ran until then: nothing more"
        return f"of what ran until then, which may follow from the above: {flagged}"

    def _lines(self) -> Iterator[str]:
        for name, view in self._views.items():
            label = f"  {name:<12} "
            for line in _summary(view):
                later = " " * len(label)
                yield from textwrap.wrap(line, 80, initial_indent=label, subsequent_indent=later)
                label = later


def _summary(view: RunView) -> list[str]:
    unseen = view.unseen()
    if unseen and not view.flags:
        return [unseen]
    return flags.as_lines(view.flags, "nothing odd")
