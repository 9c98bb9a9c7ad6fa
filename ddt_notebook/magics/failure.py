"""The exceptions of a cell that failed, so that "Run All" stops there."""

from __future__ import annotations

from ddt_notebook.model.errors import DdtError

from ..classroom.grade import Grade
from ..views import failures, report_text, safe, terminal
from ..views.report import DisplayedReport


class CellFailed(DdtError):
    """A cell failed, hung or was interrupted on the ranks.

    Its traceback has no frames of this package: the first finding in one line, the original
    traceback of the first cause, and the number of its consequences.

    Attributes
    ----------
    report
        The diagnosis, with the snapshot that it was drawn from.
    """

    def __init__(self, report: DisplayedReport, *, colour: bool = True) -> None:
        super().__init__(report_text.headline(report, report.snapshot))
        self.report = report
        self._colour = colour

    def _render_traceback_(self) -> list[str]:
        style = terminal.Style(self._colour)
        lines = [style("bold", safe.one_line(str(self), 1000))]
        snapshot = self.report.snapshot
        if snapshot is None or snapshot.outcome == "interrupted":
            return lines
        return lines + failures.to_text(failures.of_snapshot(snapshot, self.report)).splitlines()


class NotPassed(DdtError):
    """A cell of an exercise does not have every behaviour; the grade is above.

    Attributes
    ----------
    grade
        The verdict.
    """

    def __init__(self, grade: Grade) -> None:
        super().__init__(grade.headline)
        self.grade = grade

    def _render_traceback_(self) -> list[str]:
        return [str(self)]
