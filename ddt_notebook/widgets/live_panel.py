"""The live panel: the ranks while a cell runs, and buttons that work meanwhile.

The table is an ordinary display that is updated in place, so that it needs no widgets: it is there
in any front end, in a saved notebook and in its export. Only the buttons are widgets. While a cell
runs, the kernel's main thread is busy with it; a click then arrives on a subshell, a thread of its
own (JupyterLab 4.4 and ipykernel 7 or later), which only sets a flag that the run reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

from ..host.listeners import Moment
from ..host.session import active
from ..views import live_ranks
from ..views.live_ranks import LiveView
from .running_cell import Request, RunningCell, answer_on_requesting_shell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ..host.session import Session

#: Seconds within which a front end that sends clicks to a subshell has asked for one.
_SUBSHELL_WITHIN_S = 2.0

_NO_SESSION = LiveView("no session: %ddt_start begins one")
_HELD = "the hang is kept: %ddt_show stacks shows where ranks wait, %ddt_release ends it"
_LATE = (
    "this front end delivers clicks only when the cell has ended: to end it now, use the front "
    "end's own interrupt (■, or the keys i i)"
)


class LivePanel:
    """Shows the active session's ranks while cells run; a cell that returns it displays it.

    Parameters
    ----------
    shell
        The notebook's shell.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        import ipywidgets

        self._shell = shell
        self._id = uuid4().hex
        self._running = RunningCell()
        self._cell: int | None = None
        self._late = False
        self._session: tuple[Session | None, int, bool] | None = None
        self._shown = _NO_SESSION
        self.interrupt = ipywidgets.Button(
            description="Interrupt",
            tooltip="end the cell on every rank; variables stay",
            disabled=True,
        )
        self.freeze = ipywidgets.Button(
            description="Freeze",
            tooltip="hold the cell as it is now, to look at it; %ddt_release ends it",
            disabled=True,
        )
        self.interrupt.on_click(self._clicked("interrupt"))
        self.freeze.on_click(self._clicked("freeze"))
        for button in (self.interrupt, self.freeze):
            answer_on_requesting_shell(button.comm)
        self._buttons = ipywidgets.HBox([self.interrupt, self.freeze])

    def open(self) -> None:
        """Begin to observe the session."""
        active.observers.append(self)
        self._shell.events.register("post_run_cell", self.refresh)
        self.refresh()

    def close(self) -> None:
        """Stop observing; the last table stays."""
        active.observers.remove(self)
        self._shell.events.unregister("post_run_cell", self.refresh)
        self._enable(False)

    def on_moment(self, moment: Moment) -> None:
        """Show the state of a running cell."""
        if moment.cell != self._cell:
            self._cell, self._running.requested = moment.cell, ""
        running = moment.outcome is None
        late = running and (self._late or self._no_subshell(moment.elapsed_s))
        notes = (_HELD,) * moment.frozen + (_LATE,) * late
        self._show(self._running.view(moment, notes))
        self._enable(running)
        if not running:
            self._cell, self._running.requested = None, ""
            self._session = _identity()

    def refresh(self, *_: object) -> None:
        """After a cell of the notebook: show a session that was started, restarted or stopped."""
        if self._session == (seen := _identity()):
            return
        session = active.get()
        if session is not None and session.busy:
            return
        self._session = seen
        self._running.clear()
        self._enable(False)
        if session is None:
            self._show(_NO_SESSION)
        else:
            notes = (_HELD,) if session.frozen else ()
            self._show(live_ranks.of_status(session.status(), notes))

    def _clicked(self, what: Request) -> Callable[[object], None]:
        def clicked(_: object) -> None:
            self._late = threading.current_thread() is threading.main_thread()
            self._running.request(what)

        return clicked

    def _no_subshell(self, elapsed_s: float) -> bool:
        if elapsed_s < _SUBSHELL_WITHIN_S:
            return False
        kernel = getattr(self._shell, "kernel", None)
        channel = getattr(kernel, "shell_channel_thread", None)
        return channel is None or not channel.manager.list_subshell()

    def _enable(self, clickable: bool) -> None:
        for button in (self.interrupt, self.freeze):
            if button.disabled is clickable:
                button.disabled = not clickable

    def _show(self, view: LiveView) -> None:
        if view != self._shown:
            self._shown = view
            self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        self._shell.display_pub.publish(
            self._shown._repr_mimebundle_(), transient={"display_id": self._id}, update=update
        )

    def _ipython_display_(self) -> None:
        bundle = self._buttons._repr_mimebundle_()
        bundle["text/plain"] = "Interrupt, Freeze: buttons that work while the notebook is open"
        self._shell.display_pub.publish(bundle)
        self._publish(update=False)


def _identity() -> tuple[Session | None, int, bool]:
    """Identifies a state of the notebook's session, to notice changes."""
    session = active.get()
    if session is None:
        return (None, 0, False)
    return (session, session.generation, session.frozen)
