"""Orders events of different ranks by the collectives and messages in which both took part."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from ddt_notebook.model import Call
from ddt_notebook.model.operations import RECEIVES, SENDS

from .context import Context

_Times = list[tuple[float, float]]  #: when two ranks entered each common call, ascending


class Order:
    """The order of events on the ranks of one run.

    Parameters
    ----------
    context
        The collectives and messages of its run give the order.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._met: dict[tuple[int, int], list[_Times]] = {}

    def comes_before(self, rank: int, ended_s: float, other: int, began_s: float) -> bool:
        """Whether a common call puts the end of work on one rank before its start on another.

        This is a collective or a message in which ``rank`` took part after its work and ``other``
        before its own. Also True if calls of that time were not kept, so that the order is unknown.
        """
        reports = self._context.reports
        if any(reports[r].calls_dropped for r in (rank, other) if r in reports):
            return True
        if (rank, other) not in self._met:
            self._met[rank, other] = [*self._collectives(rank, other), self._messages(rank, other)]
        for times in self._met[rank, other]:
            # the first common call after the work on one rank is also the first on the other
            at = bisect.bisect_left(times, (ended_s, 0.0))
            if at < len(times) and times[at][1] <= began_s:
                return True
        return False

    def _collectives(self, rank: int, other: int) -> Iterable[_Times]:
        for meetings in self._context.matching.meetings.values():
            pairs = ((calls.get(rank), calls.get(other)) for calls in meetings.values())
            yield _times(pairs)

    def _messages(self, rank: int, other: int) -> _Times:
        """Return the messages from ``rank`` to ``other`` in the order in which they were sent."""
        sent = self._calls(rank, SENDS, other)
        received = self._calls(other, RECEIVES, rank)
        return _times(zip(sent, received, strict=False))

    def _calls(self, rank: int, ops: frozenset[str], peer: int) -> list[Call]:
        report = self._context.reports.get(rank)
        calls = report.calls if report is not None else ()
        return [call for call in calls if call.op in ops and call.peer in (peer, None)]


def _times(pairs: Iterable[tuple[Call | None, Call | None]]) -> _Times:
    return sorted(
        (mine.entered_s, theirs.entered_s)
        for mine, theirs in pairs
        if mine is not None and theirs is not None
        if mine.entered_s is not None and theirs.entered_s is not None
    )
