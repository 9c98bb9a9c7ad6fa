"""Tells whoever looks on how a running cell goes, seldom enough to cost next to nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .listener import Moment, RunObserver
from .result import RunResult
from .watch import RankRun, View, brief

#: Looking on must not slow the notebook's process, which also follows the ranks' calls.
_EVERY_S, _EVERY_S_WHILE_WAITING = 0.5, 0.25

#: A cell that ends sooner is told of once.
_SHORT_CELL_S = 0.5


class LiveFeed:
    """Feeds observers during one run.

    Parameters
    ----------
    observers
        Who looks on; the list may grow while the cell runs.
    cell
        The number of the cell.
    """

    def __init__(self, observers: Sequence[RunObserver], cell: int) -> None:
        self._observers = observers
        self._cell = cell
        self._began_s = time.monotonic()
        self._told_s = self._began_s + _SHORT_CELL_S - _EVERY_S_WHILE_WAITING

    @property
    def wanted(self) -> bool:
        """Whether anybody listens."""
        return bool(self._observers)

    def tick(self, runs: list[RankRun], view: View | None) -> None:
        """Tell how the ranks are, if it is time; ``view``: what is known of ranks that wait."""
        now = time.monotonic()
        due_s = _EVERY_S if view is None else _EVERY_S_WHILE_WAITING
        if not self._observers or now - self._told_s < due_s:
            return
        self._told_s = now
        reports = view.reports if view is not None else tuple(brief(run) for run in runs)
        self._tell(Moment(cell=self._cell, elapsed_s=now - self._began_s, reports=reports))

    def end(self, result: RunResult) -> RunResult:
        """Tell how it ended, or that it is held."""
        self._tell(
            Moment(
                cell=self._cell,
                elapsed_s=result.snapshot.duration_s,
                reports=result.snapshot.ranks,
                outcome=result.snapshot.outcome,
                frozen=result.frozen,
            )
        )
        return result

    def silence(self) -> None:
        """Tell nobody any more."""
        self._observers = ()

    def _tell(self, moment: Moment) -> None:
        for observer in tuple(self._observers):
            observer.on_moment(moment)
