"""Runs a cell again, on one rank or on as many as before, in a temporary session."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ..model import Snapshot
from .pushed_objects import Pushed, PushedObjects
from .run_result import RunResult
from .session import Session, active

#: The cell, and all earlier cells together, may take this many times as long as on several ranks.
_SLOWER = 4.0
_LEAST_S, _MOST_S = 10.0, 60.0
_SIMULATED = " (simulated)"


def run_alone(
    snapshot: Snapshot, source: str | None = None, limit_s: float | None = None
) -> RunResult:
    """Run the cell of a snapshot on one rank, after the earlier cells of its session.

    The rank forms a group of one rank if the session had a group; collectives then return at once.
    Variables that were pushed to the ranks are sent again while the session exists.

    Parameters
    ----------
    snapshot
        Snapshot of a run on several ranks.
    source
        A cell to run instead of the snapshot's.
    limit_s
        The longest time for the cell, and for the earlier cells together; default: four times as
        long as the cell took, at least 10 s and at most 60 s.

    Raises
    ------
    SessionError
        If the rank cannot be started.
    """
    return run_apart(snapshot, source, limit_s=limit_s)


def limit_of(snapshot: Snapshot) -> float:
    """How long a cell may take when it runs again, in seconds."""
    return min(_MOST_S, max(_LEAST_S, _SLOWER * snapshot.duration_s))


def run_apart(
    snapshot: Snapshot,
    source: str | None = None,
    *,
    n: int = 1,
    limit_s: float | None = None,
    trace: bool = False,
) -> RunResult:
    """Run the cell of a snapshot on new ranks, after the earlier cells of its session.

    Parameters
    ----------
    snapshot, source, limit_s
        As for `run_alone`.
    n
        Number of ranks. If it is as before, the same ranks run the cell.
    trace
        Whether to run it with every probe.

    Raises
    ------
    SessionError
        If the ranks cannot be started.
    """
    limit = limit_s or limit_of(snapshot)
    took_part = [report.rank for report in snapshot.ranks if report.state != "idle"]
    chosen = took_part if n == snapshot.world_size and took_part else None
    simulated = snapshot.device.endswith(_SIMULATED)
    before = active.get()
    try:
        with Session(
            n,
            backend=snapshot.backend or "gloo",
            device=None if simulated else snapshot.device,
            timeout=snapshot.timeout_s,
            hang_after=snapshot.hang_after_s,
            group=snapshot.has_group,
            framework=snapshot.framework or None,
            simulate=snapshot.device.removesuffix(_SIMULATED) if simulated else None,
        ) as session:
            active.set(before)  # the notebook's session stays the active one
            pushed = _pushed_before(snapshot, before)
            known = {cell.number for cell in snapshot.earlier_cells}
            _push(session, pushed.due(0, known), snapshot)
            end = _Limit(session, limit)
            for cell in reversed(snapshot.earlier_cells):
                if end.passed:
                    break
                # an earlier cell may fail, as before: the cell itself shows whether it needs it
                if not cell.file:
                    session.run_cell(cell.source, number=cell.number, first_line=cell.first_line)
                _push(session, pushed.due(cell.number, known), snapshot)
            end.cancel()
            end = _Limit(session, limit)
            cell = snapshot.cell
            if cell.file and source is None:
                result = session.run_script(
                    cell.file, cell.arguments, number=cell.number, trace=trace
                )
            else:
                result = session.run_cell(
                    source if source is not None else cell.source,
                    chosen,
                    number=cell.number,
                    first_line=cell.first_line,
                    trace=trace,
                )
            end.cancel()
            return result
    finally:
        active.set(before)


def _pushed_before(snapshot: Snapshot, session: Session | None) -> PushedObjects:
    """The objects sent to a session whose last run made the snapshot; none if it has ended."""
    last = session.last_run if session is not None else None
    if session is None or last is None or last.snapshot is not snapshot:
        return PushedObjects()
    return session.pushed


def _push(session: Session, objects: Iterable[Pushed], snapshot: Snapshot) -> None:
    alike = session.world_size == snapshot.world_size
    for one in objects:
        ranks = one.ranks if alike else tuple(range(session.world_size))
        session.pushed.send(session.pool, {one.name: one.data}, ranks, 0)


class _Limit:
    """Interrupts a session when a time limit has passed."""

    def __init__(self, session: Session, seconds: float) -> None:
        self._session = session
        self.passed = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Cancel the limit."""
        self._timer.cancel()

    def _end(self) -> None:
        self.passed = True
        self._session.interrupt()
