"""``%ddt_debug --fix``: the corrected cell goes into a new one, where it can be read first."""

from __future__ import annotations

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from ..views import words
from ..views.correction import CorrectionView
from ..views.report import DisplayedReport

#: What stands above the corrected cell: it says whether the symptom is gone.
_MAGIC = "%%ddt_debug --again"


def correct(shell: InteractiveShell, report: DisplayedReport) -> CorrectionView:
    """Offer the corrected cell of a report as the next input.

    Raises
    ------
    UsageError
        If there is nothing to correct, or the change cannot be derived.
    """
    made, snapshot = report.correction, report.snapshot
    if made is None or snapshot is None:
        if not report.findings:
            raise UsageError("ddt_debug: nothing was found in the last run, so nothing is to mend")
        card = words.more(report.findings[0])[-1]
        raise UsageError(
            f"ddt_debug: the change cannot be derived from this cell; {card} shows an example"
        )
    shell.set_next_input(f"{_MAGIC}\n{made.source}")
    return CorrectionView(snapshot.cell.source, made.source, made.says)
