"""The active session and its last run.

This is the state of the notebook's process, together with its fork servers (`launcher`). The state
of a rank's process is described in `rank.probes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddt_notebook.host.listener import ListenerMaker, RunObserver
    from ddt_notebook.host.result import RunResult
    from ddt_notebook.host.session import Session

_active: Session | None = None

#: Who looks on while cells run in the active session.
observers: list[RunObserver] = []

#: Each makes a listener for every cell that begins in the active session, beside the cell's own.
listeners: list[ListenerMaker] = []

_last_run: RunResult | None = None


def get() -> Session | None:
    """The active session, None if there is none or it was stopped."""
    return _active if _active is not None and not _active.stopped else None


def listeners_of(session: Session) -> list[ListenerMaker]:
    """`listeners`, if ``session`` is the active one."""
    return listeners if get() is session else []


def last_run() -> RunResult | None:
    """What ran last in an active session, also after it was stopped; None if nothing has."""
    return _last_run


def keep(run: RunResult | None) -> None:
    """Make ``run`` what ran last (None: nothing has run)."""
    global _last_run
    _last_run = run


def set(session: Session | None) -> None:
    """Make ``session`` the active one (None: there is none)."""
    global _active
    _active = session
