"""The exception of sessions."""

from __future__ import annotations

from typing import Literal

from ddt_notebook.model.errors import DdtError

#: Why a session refuses a request. ``"stopped"``: it has ended. ``"busy"``: a cell runs.
#: ``"held"``, ``"not held"``: a hang is held for inspection, or no hang is. ``"broken"``: its ranks
#: must be restarted. ``"no ranks"``: fewer than one rank was requested. ``"memory"``: there is not
#: enough memory for all ranks. ``"refused"``: anything else.
Reason = Literal["stopped", "busy", "held", "not held", "broken", "no ranks", "memory", "refused"]


class SessionError(DdtError, RuntimeError):
    """The session cannot do what was requested; its text explains why, and what to do instead.

    Parameters
    ----------
    fact
        Why the session cannot do it.
    advice
        What to do instead, with the names of the Python API; a front end with its own commands can
        replace the advice according to `reason`.
    reason
        The kind of fact.
    fitting_ranks
        With reason ``"memory"``: for how many ranks there is enough memory.

    Attributes
    ----------
    fact, advice, reason, fitting_ranks
        The arguments.
    """

    def __init__(
        self, fact: str, advice: str = "", *, reason: Reason = "refused", fitting_ranks: int = 0
    ) -> None:
        super().__init__(f"{fact}: {advice}" if advice else fact)
        self.fact = fact
        self.advice = advice
        self.reason = reason
        self.fitting_ranks = fitting_ranks
