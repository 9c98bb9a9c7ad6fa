"""The exception of sessions."""

from __future__ import annotations

from typing import Literal

from ddt_notebook.model.errors import DdtError

#: Why a session does not do what was asked. ``"stopped"``: it has ended. ``"busy"``: a cell runs.
#: ``"held"``, ``"not held"``: a hang is held for inspection, or none is. ``"broken"``: its ranks
#: must be started anew. ``"no ranks"``: it was to have fewer than one. ``"memory"``: there is not
#: enough memory for so many. ``"refused"``: anything else.
Reason = Literal["stopped", "busy", "held", "not held", "broken", "no ranks", "memory", "refused"]


class SessionError(DdtError, RuntimeError):
    """The session cannot do what was asked; its text says why, and what to do instead.

    Parameters
    ----------
    fact
        Why not.
    advice
        What to do instead, with the names of the Python API; a front end that has commands of its
        own can replace it by `reason`.
    reason
        The kind of fact.
    fitting_ranks
        With reason ``"memory"``: how many ranks there is enough memory for.

    Attributes
    ----------
    fact, advice, reason, fitting_ranks
        As given.
    """

    def __init__(
        self, fact: str, advice: str = "", *, reason: Reason = "refused", fitting_ranks: int = 0
    ) -> None:
        super().__init__(f"{fact}: {advice}" if advice else fact)
        self.fact = fact
        self.advice = advice
        self.reason = reason
        self.fitting_ranks = fitting_ranks
