"""Shows a running cell and passes on requests to stop it, for both panels."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from ..host.listeners import Moment
from ..host.session import active
from ..views import live_ranks
from ..views.live_ranks import LiveView

Request = Literal["interrupt", "freeze"]

#: Samples of each rank's memory that the curve is drawn from.
_SAMPLES = 240
_REQUESTED: dict[Request, str] = {"interrupt": "interrupting", "freeze": "freezing"}


class RunningCell:
    """Draws the ranks of a running cell, and passes on what a person requests.

    Attributes
    ----------
    requested
        ``"interrupting"`` or ``"freezing"`` after a request; empty before one.
    """

    def __init__(self) -> None:
        self.requested = ""
        self._memory: dict[int, deque[int]] = {}

    def clear(self) -> None:
        """Drop the memory curves and the request, such as for another session."""
        self.requested = ""
        self._memory.clear()

    def request(self, what: Request) -> bool:
        """Interrupt or freeze the running cell; False if it has ended meanwhile."""
        session = active.get()
        if session is None or not session.busy:
            return False
        self.requested = _REQUESTED[what]
        if what == "interrupt":
            session.interrupt()
        else:
            session.freeze()
        return True

    def view(self, moment: Moment, notes: tuple[str, ...]) -> LiveView:
        """The ranks at this moment, which adds a sample to each memory curve."""
        for report in moment.reports:
            if report.memory_bytes is not None:
                samples = self._memory.setdefault(report.rank, deque(maxlen=_SAMPLES))
                samples.append(report.memory_bytes)
        running = moment.outcome is None
        headline = live_ranks.headline(
            moment.cell, moment.elapsed_s, moment.outcome, frozen=moment.frozen
        )
        if running and self.requested:
            headline += f" · {self.requested} …"
        return live_ranks.of_reports(
            headline,
            moment.reports,
            self._memory,
            elapsed_s=moment.elapsed_s,
            ended=not running and not moment.frozen,
            notes=notes,
        )


def answer_on_requesting_shell(comm: Any) -> None:
    """Let messages through a comm arrive on the subshell that the front end chose.

    ipykernel 7.4 delivers a front end's messages to the shell that used the comm last. Here that is
    the main shell, so that a click would wait for the end of the cell that it has to end.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, sent_to: sent_to
