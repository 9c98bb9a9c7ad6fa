"""Two runs beside each other: before and after a change, and several ranks beside one."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..diagnosis.compare_runs import Comparison, SingleRank
from ..model import Finding
from . import html, safe, terminal, words
from .displayable import Displayable
from .report import DisplayedReport

_SIGNS = {
    "gone": ("✓", "ok"),
    "well": ("✓", "ok"),
    "untried": ("?", "hint"),
    "same": ("✖", "error"),
    "other": ("▲", "warning"),
    "new": ("✖", "error"),
}
_SINGLE = {
    "also": ("▲", "warning", "not a distributed fault"),
    "called": ("▲", "warning", "in the use of torch.distributed"),
    "several": ("✖", "error", "only with several ranks"),
    "otherwise": ("?", "hint", "undecided"),
    "endless": ("?", "hint", "undecided"),
    "well": ("✓", "ok", "well"),
}


class ComparisonView(Displayable):
    """Whether the symptom of a run is gone in a later one.

    Parameters
    ----------
    comparison
        What became of the findings.
    before, after
        The diagnoses.
    view
        What is shown of the later run; default: its diagnosis.
    """

    __slots__ = ("_view", "after", "before", "comparison")

    def __init__(
        self,
        comparison: Comparison,
        before: DisplayedReport,
        after: DisplayedReport,
        view: Displayable | None = None,
    ) -> None:
        self.comparison = comparison
        self.before = before
        self.after = after
        self._view = view or after

    @property
    def change(self) -> str:
        """``"gone"``, ``"untried"``, ``"same"``, ``"other"``, ``"new"`` or ``"well"``."""
        return self.comparison.change

    def to_text(self) -> str:
        """The verdict, then the diagnosis of the later run."""
        lines = [f"{self.change} · {self._verdict()}"]
        for label, findings in self._parts():
            for finding in findings:
                lines += terminal.wrap(label, safe.one_line(_name(finding)))
        return "\n".join([*lines, self._view.to_text()])

    def to_html(self) -> str:
        """The verdict, then the diagnosis of the later run."""
        sign, kind = _SIGNS[self.change]
        rows = [
            (
                html.tag("span", label, style="white-space:nowrap"),
                safe.one_line(_name(finding)),
            )
            for label, findings in self._parts()
            for finding in findings
        ]
        verdict = html.card(
            kind,
            html.line(html.chip(sign, self.change, kind), f" {self._verdict()}"),
            *([html.table(rows)] if rows else []),
        )
        return html.Markup(html.view(verdict) + self._view.to_html())

    def to_json(self) -> dict[str, Any]:
        """The verdict and both diagnoses as plain data."""
        return {
            "change": self.change,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
        }

    def _parts(self) -> tuple[tuple[str, tuple[Finding, ...]], ...]:
        found = self.comparison
        return (("gone", found.gone), ("left", found.left), ("new", found.new))

    def _verdict(self) -> str:
        cell = self.before.snapshot.cell if self.before.snapshot is not None else None
        compared = (
            f" (compared with {safe.one_line(cell.title)})"
            if cell is not None and cell.number
            else ""
        )
        verdict = {
            "gone": "the symptom is gone: the run is well now",
            "untried": (
                "the run is well, but it did not repeat what had failed: no collective, or no "
                "training step"
            ),
            "same": "the symptom is still there",
            "other": "the symptom is gone, but now something else was found",
            "new": "the run before was well, this one is not",
            "well": "nothing was found in either run",
        }[self.change]
        return verdict + compared


class SingleRankView(Displayable):
    """Whether a cell that failed on several ranks also fails on one.

    Parameters
    ----------
    found
        The comparison.
    ranks
        On how many ranks it had run before.
    """

    __slots__ = ("found", "ranks")

    def __init__(self, found: SingleRank, ranks: int) -> None:
        self.found = found
        self.ranks = ranks

    @property
    def verdict(self) -> str:
        """``"also"``, ``"called"``, ``"several"``, ``"otherwise"``, ``"endless"`` or ``"well"``."""
        return self.found.verdict

    def to_text(self) -> str:
        """The verdict and its reason."""
        lines = [
            f"single-rank check · {_SINGLE[self.verdict][2]}",
            *terminal.wrap("", self._reason()),
        ]
        for label, seen in self._seen():
            lines += terminal.wrap("seen", f"{label}: {seen}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The verdict and its reason."""
        sign, kind, word = _SINGLE[self.verdict]
        return html.view(
            html.card(
                kind,
                html.line(html.chip(sign, word, kind), " single-rank check"),
                html.line(self._reason()),
                html.table(self._seen()),
            )
        )

    def to_json(self) -> dict[str, Any]:
        """The verdict and the errors as plain data."""
        plain = dataclasses.asdict(self.found)
        return {"ranks": self.ranks, **plain, "reason": self._reason()}

    def _reason(self) -> str:
        if self.found.lacks:
            return (
                f"nothing was decided: the cell needs {self.found.lacks}, which the session's "
                "ranks have, and which the earlier cells did not make on one rank; put what makes "
                "it into the cell, run it, and ask again"
            )
        return {
            "also": "the program fails on one rank, too, with the same error at the same line: it "
            "is no fault of the distribution",
            "called": "the program fails on one rank, too, with the same error of "
            "torch.distributed: it comes from how the library is used, not from how the ranks "
            "work together",
            "several": "on one rank the program works: the fault occurs with several ranks only",
            "otherwise": "on one rank the program fails in another way, which does not explain the "
            "fault on several ranks",
            "endless": "on one rank the program did not end within the time limit either",
            "well": "nothing went wrong, on several ranks or on one",
        }[self.verdict]

    def _seen(self) -> list[tuple[str, str]]:
        several = "finished" if self.verdict == "well" else "no rank ended by itself"
        one = "had to be ended" if self.verdict == "endless" else "finished"
        return [
            (words.count(self.ranks, "rank"), safe.one_line(self.found.several or several)),
            ("1 rank", safe.one_line(self.found.alone or one)),
        ]


def _name(finding: Finding) -> str:
    return f"{words.heading(finding)[0]}: {finding.title}"
