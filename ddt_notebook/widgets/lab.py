"""The kernel's end of JupyterLab's side panel: one comm for its questions and the answers.

The comm is there from the beginning, and nothing is sent before a front end has said that it
listens: in any other front end this costs nothing. A page opens the comm nevertheless, because a
proxy of kernels, such as that of jupyter-distributed, forwards only what it has seen opened.

While a cell runs, the kernel's main thread is busy with it. What the panel sends arrives on a
subshell then (JupyterLab 4.4 and ipykernel 7 or later), which sets flags that the run reads.
Actions that start or end processes are run as magics instead, after the running cell.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..diagnosis import diagnose
from ..host.listeners import Moment
from ..host.session import active
from ..host.status import rank_resources
from ..views import panel
from ..views.live_ranks import LiveView
from ..views.registry import below_diagnosis
from ..views.report import show
from . import pages
from .lab_output import LabOutput
from .running_cell import Request, RunningCell, answer_on_requesting_shell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ..host.run_result import RunResult
    from ..host.session import Session

#: Name of the comm's target, and the id of the one comm: the panel knows both.
TARGET = "ddt_notebook"

_NO_SESSION = LiveView("no session")
_HELD = "held as it is: look at it with %ddt_show stacks; Release ends it"

State = dict[str, Any]


class LabLink:
    """Sends the state of the notebook's session to the side panel, and executes its buttons.

    Parameters
    ----------
    shell
        The notebook's shell, with a kernel behind it.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._comm: Any = None
        self._lock = threading.Lock()
        self._listening = False
        self._running = RunningCell()
        self._view = _NO_SESSION
        self._run: State | None = None
        self._found: State | None = None
        self._earlier: State | None = None
        self._sent_run: RunResult | None = None
        self._session: tuple[Session | None, int] | None = None
        self._runs = 0

    def open(self) -> None:
        """Open the comm; nothing is sent before a panel asks."""
        from comm import create_comm, get_comm_manager

        self._comm = create_comm(target_name=TARGET, comm_id=TARGET, primary=False)
        answer_on_requesting_shell(self._comm)
        self._output = LabOutput(self._comm.send)
        self._comm.on_msg(self._on_message)
        get_comm_manager().register_comm(self._comm)
        get_comm_manager().register_target(TARGET, self._opened)

    def _opened(self, opened: Any, _: object) -> None:
        """Handle a page that opened the comm; a proxy between page and kernel now forwards it."""
        from comm import get_comm_manager

        opened._closed = True  # else it would close our id when it is garbage-collected
        get_comm_manager().register_comm(self._comm)

    def close(self) -> None:
        """Stop sending and close the comm."""
        from comm import get_comm_manager

        get_comm_manager().unregister_target(TARGET, self._opened)
        if self._listening:
            self._listening = False
            active.observers.remove(self)
            self._output.end()
            self._shell.events.unregister("post_run_cell", self._after_cell)
        self._comm.close()

    # -- messages from the panel ---------------------------------------------------------------

    def _on_message(self, message: dict[str, Any]) -> None:
        data = message["content"]["data"]
        word = data.get("do")
        if word == "hello":
            self._begin()
        elif word in ("interrupt", "freeze"):
            self._request(word)
        elif word == "output":
            self._output.asked(data)
        elif word == "enough output":
            self._output.enough()
        elif word == "page":
            self._comm.send(pages.answer(data.get("page")))

    def _begin(self) -> None:
        with self._lock:  # two pages may send it at once
            if not self._listening:
                self._listening = True
                active.observers.append(self)
                self._output.begin()
                self._shell.events.register("post_run_cell", self._after_cell)
        session = active.get()
        if session is None or not session.busy:
            self._look()
        self._send()

    def _request(self, what: Request) -> None:
        if self._running.request(what):
            self._send()  # so that the panel shows that the request has arrived

    # -- events of the session -----------------------------------------------------------------

    def on_moment(self, moment: Moment) -> None:
        """Send the state of a running cell to the panel."""
        if self._run is None or self._run["outcome"] is not None:
            self._runs += 1
            self._put_aside()
            self._running.requested = ""
        self._view = self._running.view(moment, (_HELD,) * moment.frozen)
        self._run = {
            "number": self._runs,
            "cell": moment.cell,
            "outcome": moment.outcome,
            "frozen": moment.frozen,
        }
        self._session = _identity()
        self._send()

    def _after_cell(self, *_: object) -> None:
        if self._look():
            self._send()

    def _look(self) -> bool:
        """Notice a session that was started, restarted or stopped, and a new report."""
        session = active.get()
        last = session.last_run if session is not None else None
        news = self._session != (seen := _identity())
        if news:
            self._session = seen
            self._running.clear()
            self._run = None
            self._view = _at_prompt(session) if session is not None else _NO_SESSION
        if last is not self._sent_run:
            self._sent_run, news = last, True
            self._put_aside()
            if last is not None:
                snapshot = last.snapshot
                self._found = panel.of_report(show(diagnose(snapshot), snapshot), snapshot)
        return news

    def _put_aside(self) -> None:
        """Handle the start of a run; previous findings stay, as earlier findings."""
        if self._found is not None and self._found["findings"]:
            self._earlier = self._found
        self._found = None

    def _send(self) -> None:
        session = active.get()
        limit = session.pool.options.memory if session is not None else None
        known = rank_resources(session.pool, resident=not session.busy) if session else {}
        self._comm.send(
            {
                "views": [{"name": v.name, "label": v.label} for v in below_diagnosis()],
                "session": panel.of_session(session, limit) if session is not None else None,
                "run": self._run,
                "report": self._found,
                "earlier": self._earlier,
                "asked": self._running.requested,
            }
            | panel.of_view(self._view, known)
        )


def _identity() -> tuple[Session | None, int]:
    """Identifies a state of the notebook's session, to notice changes."""
    session = active.get()
    return (session, session.generation) if session is not None else (None, 0)


def _at_prompt(session: Session) -> LiveView:
    """Does not ask the ranks, because the main thread may be sending them a cell at this time."""
    if session.resting:
        return LiveView(
            "the ranks were stopped, because nobody used them; the next cell starts them"
        )
    handles = tuple(session.pool.handles)
    return panel.at_prompt([h.process.exists for h in handles], [h.host for h in handles])
