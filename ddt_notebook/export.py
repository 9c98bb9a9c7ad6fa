"""A run as one HTML page, for somebody who has neither its notebook nor its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .runs import snapshot_of

if TYPE_CHECKING:
    from .host.result import RunResult
    from .host.session import Session
    from .model import Snapshot


def export_report(run: RunResult | Snapshot | Session, path: str | Path) -> Path:
    """Write one HTML page: the diagnosis, and every view of which something was recorded.

    It needs neither a network nor scripts, and follows the reader's choice of light or dark.

    Parameters
    ----------
    run
        A run, a snapshot, or a session (its last run is meant).
    path
        Where to write it; what is there is replaced.

    Returns
    -------
    Path
        Where it is.

    Raises
    ------
    ValueError
        If the session has not run anything yet.
    OSError
        If it cannot be written.
    """
    from .views import document

    target = Path(path)
    target.write_text(document.page(snapshot_of(run)), encoding="utf-8")
    return target
