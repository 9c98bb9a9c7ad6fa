"""Finds the line of a cell at which the body of its magic begins."""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell

#: Below its own magic, at the top of the cell.
_USUALLY = 2


def first_line(shell: InteractiveShell, body: str) -> int:
    """The line of the running cell, from 1, at which the body of its magic begins.

    Blank lines and other magics (``%%time``) may be above ours; the line numbers in messages are
    those that a reader counts in the notebook.
    """
    inputs = shell.history_manager.input_hist_raw if shell.history_manager is not None else []
    whole, end = (inputs[-1] if inputs else "").rstrip("\n"), body.rstrip("\n")
    # code outside the history was not run in a cell
    if not end or not whole.endswith("\n" + end):
        return _USUALLY
    return whole[: -len(end)].count("\n") + 1
