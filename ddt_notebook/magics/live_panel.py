"""``%ddt_live``: the panel that shows the ranks while a cell runs; and JupyterLab's side panel."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class

from ..views.displayable import Message
from . import options as opt

if TYPE_CHECKING:
    from ..widgets.lab import LabLink
    from ..widgets.live_panel import LivePanel

_CLOSE = opt.Option("--close", action="store_true", help="close the panel")
_IN_TERMINAL = (
    "the panel needs a notebook; in a terminal the last line shows who waits for whom while a\n"
    "cell runs, and Ctrl-C ends the cell on every rank"
)


@magics_class
class LiveMagics(Magics):
    """One panel for the notebook, which shows the active session."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._panel: LivePanel | None = None
        self._lab: LabLink | None = None
        if getattr(shell, "kernel", None) is not None:
            from ..widgets.lab import LabLink

            self._lab = LabLink(shell)
            self._lab.open()

    @line_magic
    @opt.options(_CLOSE)
    def ddt_live(self, args: argparse.Namespace, cell: str | None = None) -> object:
        """Open the live panel: what each rank does while a cell runs, and buttons to stop it."""
        if args.close:
            self.close()
            return Message("the live panel is closed")
        if getattr(self._shell, "kernel", None) is None:
            return Message(_IN_TERMINAL)
        if self._panel is None:
            from ..widgets.live_panel import LivePanel

            self._panel = LivePanel(self._shell)
            self._panel.open()
        return self._panel

    def close(self) -> None:
        """Close the panel, if one is open."""
        if self._panel is not None:
            self._panel.close()
            self._panel = None

    def end(self) -> None:
        """Close the panel, and stop answering JupyterLab's side panel."""
        self.close()
        if self._lab is not None:
            self._lab.close()
            self._lab = None
