"""The pre-flight report: obstacles to a job first, the rest folded."""

from __future__ import annotations

from typing import Any

from ..model.preflight import VERDICTS, Check, Preflight, Verdict
from . import dataframe, host_matrix, html, safe, terminal, words
from .displayable import Displayable

_SIGNS: dict[Verdict, tuple[str, str]] = {
    "error": ("✖", "error"),
    "warning": ("▲", "warning"),
    "ok": ("✓", "ok"),
}
_HEAD = ("", "what", "seen", "what it means", "what to do")
_SEEN = 160


class PreflightView(Displayable):
    """Whether a job can start here, and what prevents it.

    Parameters
    ----------
    preflight
        What was checked.
    """

    __slots__ = ("preflight",)

    def __init__(self, preflight: Preflight) -> None:
        self.preflight = preflight

    @property
    def ok(self) -> bool:
        """Whether no check is an error."""
        return self.preflight.ok

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks, in the order in which they matter to a job."""
        return self.preflight.checks

    def to_json(self) -> dict[str, Any]:
        """Plain data; what ``ddt-notebook doctor --hosts`` reads."""
        return self.preflight.to_json()

    def to_frame(self) -> Any:
        """One row for each check, as a pandas DataFrame.

        - ``topic``, ``name``: what was checked
        - ``verdict``: ``"ok"``, ``"warning"`` or ``"error"``
        - ``seen``: what was found
        - ``meaning``: what that means for a job; may be empty
        - ``fix``: what to change; empty if nothing
        """
        columns = ("topic", "name", "verdict", "seen", "meaning", "fix")
        rows = [{name: getattr(check, name) for name in columns} for check in self.checks]
        return dataframe.frame(rows, columns)

    def to_text(self) -> str:
        """Each problem in full, a line for each topic without problems, and the hosts' matrices."""
        lines = [self._title()]
        for check in self._troubles():
            sign, _ = _SIGNS[check.verdict]
            first, *rest = terminal.wrap("", f"{check.name}: {safe.one_line(check.seen, 600)}")
            lines += [f"{sign} {first[2:]}", *rest]
            for part, label in ((check.meaning, ""), (check.fix, "fix")):
                lines += terminal.wrap(label, safe.one_line(part, 600)) if part else []
            if check.card:
                lines += terminal.wrap("more", f"%ddt_explain {check.card}")
        for topic, checks in self._well().items():
            summary = "; ".join(map(_in_short, checks))
            first, *rest = terminal.wrap("", f"{topic}: {summary}")
            lines += [f"✓ {first[2:]}", *rest]
        lines += host_matrix.to_lines(self.preflight.links)
        return "\n".join(lines)

    def to_html(self) -> str:
        """A table of the problems, a folded one of what passed, and the matrices of the hosts."""
        parts = [html.line(html.tag("b", self._title()))]
        troubles = self._troubles()
        if troubles:
            table = html.table(map(self._row, troubles), _HEAD)
            parts.append(html.tag("div", table, style="overflow-x:auto"))
        well = [check for checks in self._well().values() for check in checks]
        if well:
            summary = f"{words.count(len(well), 'check')} passed"
            parts.append(html.details(summary, html.table(map(self._row, well), _HEAD)))
        parts += host_matrix.to_markup(self.preflight.links)
        return html.view(*parts)

    def _title(self) -> str:
        counts = {v: sum(c.verdict == v for c in self.checks) for v in VERDICTS}
        summary = [words.count(counts[v], v) for v in ("error", "warning") if counts[v]]
        passed = f"{words.count(counts['ok'], 'check')} passed"
        machine = safe.one_line(self.preflight.machine)
        return f"pre-flight of {machine}: {', '.join([*summary, passed])}"

    def _troubles(self) -> list[Check]:
        """The worst first."""
        found = [check for check in self.checks if check.verdict != "ok"]
        return sorted(found, key=lambda check: -VERDICTS.index(check.verdict))

    def _well(self) -> dict[str, list[Check]]:
        topics: dict[str, list[Check]] = {}
        for check in self.checks:
            if check.verdict == "ok":
                topics.setdefault(check.topic, []).append(check)
        return topics

    @staticmethod
    def _row(check: Check) -> tuple[str, ...]:
        sign, kind = _SIGNS[check.verdict]
        seen = safe.one_line(check.seen, 600)
        more = f"; `%ddt_explain {check.card}`" if check.card else ""
        return (
            html.chip(sign, check.verdict, kind),
            check.name,
            seen,
            html.prose(safe.one_line(check.meaning, 600)),
            html.prose(safe.one_line(check.fix, 600) + more),
        )


def _in_short(check: Check) -> str:
    """A check that passed, as a part of a line."""
    meaning = f" ({safe.one_line(check.meaning, 600)})" if check.meaning else ""
    return f"{check.name} {safe.one_line(check.seen, _SEEN)}{meaning}"
