"""The public functions: what a run, a snapshot or a code of the taxonomy has to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import taxonomy
from .diagnose import diagnose as _diagnose
from .model import Snapshot
from .views.explanation import ExplanationView
from .views.report import DisplayedReport, show

if TYPE_CHECKING:
    from .session.result import RunResult
    from .session.session import Session
    from .views.parity import ParityView
    from .views.partition import PartitionView
    from .views.placement import PlacementView


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


def placement(run: RunResult | Snapshot | Session, *names: str) -> PlacementView:
    """Show where every parameter, buffer, optimizer state and batch lives, rank by rank.

    Parameters
    ----------
    run
        A run, a snapshot, or a session (its ranks are asked now).
    names
        Variables to show, such as ``"model"`` or ``"trainer.model"``; default: all.

    Raises
    ------
    ValueError
        If it was not observed and the ranks cannot be asked any more.
    """
    from .views.placement import PlacementView

    return PlacementView(observed(run, "placement", names), names)


def partition(run: RunResult | Snapshot | Session, *names: str) -> PartitionView:
    """Show who got which data: samples, batches, overlap and gaps, and the shards of models.

    Parameters and errors are those of `placement`.
    """
    from .views.partition import PartitionView

    return PartitionView(observed(run, "partition", names), names)


def parity(run: RunResult | Snapshot | Session, *names: str) -> ParityView:
    """Show whether the ranks agree: parameters, gradients, optimizer state and settings.

    Parameters and errors are those of `placement`.
    """
    from .views.parity import ParityView

    return ParityView(observed(run, "parity", names), names)


def observed(run: RunResult | Snapshot | Session, what: str, names: Sequence[str] = ()) -> Snapshot:
    """A snapshot that holds what a probe sees: recorded during the run, or asked for now.

    Raises
    ------
    ValueError
        If it was not recorded, and the ranks have gone on since.
    """
    if isinstance(run, Snapshot) or getattr(getattr(run, "snapshot", None), what, ()):
        return snapshot_of(run)
    session = run
    if hasattr(run, "snapshot"):
        session = run.session() if run.session is not None else None
        if session is None or session.stopped or session.last_run is not run:
            raise ValueError(
                f"{what} was not recorded in this run, and its ranks have gone on: run the cell "
                "again with %%ddt_debug, or session.run(..., trace=True)"
            )
    elif not hasattr(run, "observe"):
        raise ValueError(f"{type(run).__name__} is no run, snapshot or session")
    from .session.observing import add

    seen = session.observe(what, names or None)
    if session.last_run is not None:
        return add(session.last_run.snapshot, seen)
    now = Snapshot(
        cell=Cell(number=0, source=""),
        world_size=session.world_size,
        backend=session.backend,
        device=session.device,
        has_group=session.has_group,
    )
    return add(now, seen)


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
