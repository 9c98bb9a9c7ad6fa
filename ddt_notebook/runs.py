"""What is meant by a run, a snapshot or a session, and what its ranks hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .model import Cell, Snapshot

if TYPE_CHECKING:
    from .host.result import RunResult
    from .host.session import Session


def observed(run: RunResult | Snapshot | Session, what: str, names: Sequence[str] = ()) -> Snapshot:
    """A snapshot that holds what a probe sees: recorded during the run, or asked for now.

    Raises
    ------
    ValueError
        If it was not recorded, and the ranks have gone on since.
    """
    if isinstance(run, Snapshot):
        return run
    from .host.observing import add
    from .host.result import RunResult
    from .host.session import Session

    if isinstance(run, RunResult):
        if getattr(run.snapshot, what):
            return run.snapshot
        session = run.session() if run.session is not None else None
        if session is None or session.stopped or session.last_run is not run:
            raise ValueError(
                f"{what} was not recorded in this run, and its ranks have gone on: run the cell "
                "again with %%ddt_debug, or session.run(..., trace=True)"
            )
    elif isinstance(run, Session):
        session = run
    else:
        raise ValueError(f"{type(run).__name__} is no run, snapshot or session")
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
