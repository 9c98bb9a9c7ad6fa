"""Errors of sessions and views, with advice that names magics instead of the Python API."""

from __future__ import annotations

from ..host.errors import Reason, SessionError
from ..runs import NotRecorded

#: What to do about an error of a session, by its reason.
_ADVICE: dict[Reason, str] = {
    "stopped": "%ddt_start begins a new session",
    "held": "%ddt_release ends it, then go on",
    "not held": "%%ddt --freeze holds the next one",
    "broken": "%ddt_restart starts new ranks",
    "busy": "interrupt it first",
    "no ranks": "%ddt_start -n 2",
}


def in_magics(error: Exception) -> str:
    """The text of an error, with advice that names magics if the error has such advice."""
    if isinstance(error, NotRecorded):
        return f"{error.fact}: run the cell again with %%ddt_debug"
    if not isinstance(error, SessionError):
        return str(error)
    if error.reason == "memory" and error.fitting_ranks:
        return f"{error}: %ddt_start -n {error.fitting_ranks}"
    advice = _ADVICE.get(error.reason)
    return f"{error.fact}: {advice}" if advice is not None else str(error)
