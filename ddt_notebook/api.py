"""The public functions: what a run, a snapshot or a code of the taxonomy has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import taxonomy
from .diagnose import diagnose as _diagnose
from .model import Snapshot
from .views.explanation import ExplanationView
from .views.report import DisplayedReport, show

if TYPE_CHECKING:
    from .session.result import RunResult
    from .session.session import Session


def diagnose(run: RunResult | Snapshot | Session) -> DisplayedReport:
    """Say what went wrong in a run, cause first.

    Parameters
    ----------
    run
        The result of `Session.run`, a `Snapshot`, or a session (its last run is meant).

    Returns
    -------
    Report
        ``findings`` is empty for a healthy run. Shows itself in a notebook and in a terminal.

    Raises
    ------
    ValueError
        If the session has not run anything yet.
    """
    snapshot = snapshot_of(run)
    return show(_diagnose(snapshot), snapshot)


def explain(code: str) -> ExplanationView:
    """What the study knows of a symptom: its stage, how often it was seen, what repaired it.

    Parameters
    ----------
    code
        In the taxonomy, such as ``"D.2.1"``.

    Raises
    ------
    UnknownSymptom
        If there is no such code; the text names those that exist.
    """
    return ExplanationView(taxonomy.symptom(code), taxonomy.fixes(code))


def snapshot_of(run: RunResult | Snapshot | Session) -> Snapshot:
    """The snapshot that is meant by a run, a snapshot or a session."""
    if isinstance(run, Snapshot):
        return run
    last = getattr(run, "last_run", run)
    if last is None:
        raise ValueError("this session has not run a cell yet")
    snapshot = getattr(last, "snapshot", None)
    if not isinstance(snapshot, Snapshot):
        raise ValueError(f"{type(run).__name__} is no run, snapshot or session")
    return snapshot
