"""``%ddt_debug --fix``: the cell without the fault goes into a new one, to be read first."""

from __future__ import annotations

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from ..diagnosis import consultation as steps
from ..diagnosis.consultation import Repair
from ..views import words
from ..views.consultation import RepairView
from ..views.report import DisplayedReport

#: What stands above the user's own cell, corrected (it says whether the symptom is gone), and above
#: the example of a fault card.
_AGAIN, _EXAMPLE = "%%ddt_debug --again\n", "%%ddt_debug\n# an example, not your cell: {}\n"


def correct(shell: InteractiveShell, report: DisplayedReport) -> RepairView:
    """Offer the cell without the fault of a report as the next input.

    It is the user's own cell for the first fault for which the change can be derived; else the
    example of the first finding, as the assistant has it, too.

    Raises
    ------
    UsageError
        If there is nothing to correct, or neither is known.
    """
    topics, made, snapshot = (*report.findings, *report.hints), report.correction, report.snapshot
    if made is not None and snapshot is not None:
        repair = Repair(snapshot.cell.source, made.source, made.says, derived=True)
        return place(shell, repair)
    if not topics:
        raise UsageError("ddt_debug: nothing was found in the last run, so nothing is to mend")
    example = steps.begin(topics).repair(snapshot)
    if example is not None:
        return place(shell, example)
    first = topics[0]
    told = f"{words.more(first)[-1]} shows an example"
    if words.is_unclassified(first):
        told = "the line that raised says what to mend"
    raise UsageError(f"ddt_debug: the change cannot be derived from this cell; {told}")


def place(shell: InteractiveShell, repair: Repair) -> RepairView:
    """Put a cell without the fault into the next one."""
    head = _AGAIN if repair.derived else _EXAMPLE.format(repair.says)
    shell.set_next_input(head + repair.whole)
    return RepairView(repair, placed=True)
