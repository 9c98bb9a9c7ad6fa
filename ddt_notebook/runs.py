"""Finds the snapshot of a run for public functions, and builds its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from .diagnosis.unexplained import lacks_reason
from .model import Cell, DdtError, Report, Snapshot
from .model.observation import add_observations
from .views.registry import VIEWS, View

if TYPE_CHECKING:
    from .host.run_result import RunResult
    from .host.session import Session
    from .views.run_view import RunView

#: A run: its result, its snapshot, or a session, which stands for its last run.
RunLike: TypeAlias = "RunResult | Snapshot | Session"


_OBSERVED_NEXT = (
    "it was not observed which way each rank went; the next run observes it, which slows your own "
    "code"
)


_OBSERVED_IN_JOB = (
    "it was not observed which way each rank went: `ddt-notebook run --branches -- COMMAND` "
    "observes it, which slows your own code"
)


class NotRecorded(DdtError, ValueError):
    """A run has no data for a view, and its ranks have run something since.

    Parameters
    ----------
    name
        Name of the view.

    Attributes
    ----------
    fact
        The text without the advice, which names the Python API.
    """

    def __init__(self, name: str) -> None:
        self.fact = f"{name} was not recorded in this run, and its ranks have run something since"
        super().__init__(f"{self.fact}: run the cell again with session.run(..., trace=True)")


def snapshot_of(run: RunLike) -> Snapshot:
    """The snapshot of a run.

    Raises
    ------
    ValueError
        If the session has not run a cell yet, or this is not a run.
    """
    if isinstance(run, Snapshot):
        return run
    last = getattr(run, "last_run", run)
    if last is None:
        raise ValueError("this session has not run a cell yet")
    snapshot = getattr(last, "snapshot", None)
    if not isinstance(snapshot, Snapshot):
        raise ValueError(_not_a_run(run))
    return snapshot


def observe_next_run(run: RunLike, report: Report) -> list[str]:
    """Observe branches in the session's next run if a hang in this one has no known reason.

    On Python 3.11 that slows the user's code, so it is not on in every run.

    Returns
    -------
    list of str
        A note for the report, if the next run observes them, or a job could be run so.
    """
    from .host.session import Session, session_of

    if any(not one.callbacks_only for one in snapshot_of(run).branches) or not lacks_reason(report):
        return []
    if isinstance(run, Snapshot):
        return [_OBSERVED_IN_JOB] if run.origin == "job" else []
    session = run if isinstance(run, Session) else session_of(run)
    if session is None:
        return []
    session.observe_branches = True
    return [_OBSERVED_NEXT]


def view_of(name: str, run: RunLike, names: Sequence[str] = ()) -> RunView:
    """A view of a run.

    Parameters
    ----------
    name
        Name of the view in `views.registry`.
    run
        For a session, views of the ranks' variables ask the ranks now; other views show its last
        run. For a run without data for such a view, the view also asks the ranks, unless they have
        run something else since.
    names
        Variables to show, for views that ask the ranks; default: all.

    Raises
    ------
    ValueError
        If there is nothing to show, and the ranks cannot answer any more.
    SessionError
        If the ranks are busy, or none of them has a variable of that name.
    """
    view = VIEWS[name]
    if not view.asks_ranks:
        return view.of(snapshot_of(run))
    snapshot, asked_now = held_by_ranks(view, run, names)
    return view.of(snapshot, names, asked_now=asked_now)


def held_by_ranks(view: View, run: RunLike, names: Sequence[str] = ()) -> tuple[Snapshot, bool]:
    """The data for a view of the ranks' variables, and whether the ranks were asked for it now.

    Parameters and errors are those of `view_of`.
    """
    from .host.run_result import RunResult
    from .host.session import Session, session_of

    if not isinstance(run, (RunResult, Session)):
        snapshot = snapshot_of(run)
        if snapshot.origin != "session" and not view.is_in(snapshot):
            raise ValueError(view.missing(snapshot))  # an empty view would say that all is well
        return snapshot, False
    if isinstance(run, RunResult):
        if view.is_whole_in(run.snapshot):
            return run.snapshot, False
        session = session_of(run)
        if session is None and view.is_in(run.snapshot):
            return run.snapshot, False
        if session is None:
            raise NotRecorded(view.name)
        return _ask(view, session, names), True
    return _ask(view, run, names), True


def _ask(view: View, session: Session, names: Sequence[str]) -> Snapshot:
    """The last run, with the current variables of the ranks."""
    seen = session.observe([view.needs, *view.probes], names or None)
    if session.last_run is not None:
        before = session.last_run.snapshot
        now = add_observations(before, seen, session.pool.clocks)
        traced = {memory.rank: memory for memory in before.memory if memory.at_ms}
        if view.needs != "memory" or not traced or names:
            return now
        return replace(
            now,
            memory=tuple(
                memory.with_course_of(traced[memory.rank]) if memory.rank in traced else memory
                for memory in now.memory
            ),
        )
    nothing_ran = Snapshot(
        cell=Cell(number=0, source=""),
        world_size=session.world_size,
        backend=session.backend,
        device=session.device,
        has_group=session.has_group,
        framework=session.framework or "",
    )
    return add_observations(nothing_ran, seen, session.pool.clocks)


def _not_a_run(given: object) -> str:
    return f"expected a run, a snapshot or a session, but got {type(given).__name__}"
