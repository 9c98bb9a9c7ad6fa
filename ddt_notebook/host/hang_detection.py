"""Decides whether ranks that wait are hung or only slow.

A wait is a hang if it has been unable to end by itself for a while. A wait for a rank that may
still arrive is only slow; it ends with the session's timeout, if the session has one.

A hang is proved if every rank that could end a wait has finished, raised, died or was suspended, or
waits itself in a call that cannot end (`model.waits.cannot_complete`). A rank that sleeps,
computes, reads, waits for a lock or is in C code may still arrive, however long that takes; one
that waits for a thread which an exception has ended may not. A transfer that every member has
entered, and a rendezvous at an address that does not answer, may still end, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..model import Call, RankReport
from ..model.waits import Waiting
from .rank_run import RunState

#: When a rank has raised or died, its peers wait for the first of these times, in seconds. The
#: second applies while another rank still runs, whose last call will show which rank waits for
#: which.
_GRACE_AFTER_FAILURE_S = 0.2
_GRACE_WHILE_RUNNING_S = 1.0
#: The line below a running cell does not show shorter waits, in seconds.
SHOW_AFTER_S = 2.0


class HangWatch:
    """Decides from successive states of a run.

    Parameters
    ----------
    hang_after_s
        Seconds after which a wait that can no longer end is a hang.
    timeout_s
        The longest wait, in seconds, for a rank that may still arrive; None for no limit.
    """

    def __init__(self, *, hang_after_s: float, timeout_s: float | None) -> None:
        self._hang_after_s = hang_after_s
        self._timeout_s = timeout_s
        self._stuck: frozenset[int] = frozenset()
        self._since_s = 0.0

    def reset(self) -> None:
        """Note that no rank is blocked."""
        self._stuck = frozenset()

    def over_the_limit(self, state: RunState) -> bool:
        """Whether a rank has been waiting for longer than the session's timeout."""
        longest = state.longest
        if longest is None or self._timeout_s is None:
            return False
        return (longest.blocked_s or 0.0) > self._timeout_s

    def hung(self, state: RunState, *, failed: bool) -> bool:
        """Whether ranks have been in a wait that cannot end for long enough to be hung.

        Parameters
        ----------
        state
            The current state of the ranks.
        failed
            Whether a rank has raised or died, so that the others need not wait longer.
        """
        now = time.monotonic()
        stuck = state.stuck | _left_behind(state)
        if stuck != self._stuck:
            self._stuck, self._since_s = stuck, now
        if not stuck:
            return False
        grace_s = self._hang_after_s
        if failed:
            others_run = any(r.state == "running" for r in state.reports if r.rank not in stuck)
            grace_s = min(grace_s, _GRACE_WHILE_RUNNING_S if others_run else _GRACE_AFTER_FAILURE_S)
        return now - self._since_s >= grace_s

    @staticmethod
    def to_interrupt(state: RunState, *, over_the_limit: bool) -> frozenset[int]:
        """Ranks to interrupt: those that can never go on, or that keep others waiting too long."""
        states = {report.rank: report.state for report in state.reports}
        chosen = {r.rank for r in state.reports if r.state == "stopped" or r.waits_for_ever}
        if over_the_limit:
            awaited = {rank for wait in state.waiting.values() for rank in wait.missing}
            chosen |= {rank for rank in awaited if states.get(rank) in ("running", "silent")}
        return frozenset(chosen)


def _left_behind(state: RunState) -> frozenset[int]:
    """The stopped ranks, if no other rank is still working."""
    stopped = frozenset(report.rank for report in state.reports if report.state == "stopped")
    others = {r.rank for r in state.reports if r.state in ("running", "silent", "blocked")}
    return stopped if others <= state.stuck else frozenset()


def waiting_now(state: RunState) -> Waiting | None:
    """The longest wait, with the ranks that can end it; None if no rank has waited for long."""
    longest = state.longest
    if longest is None or (longest.blocked_s or 0.0) < SHOW_AFTER_S:
        stopped = tuple(report for report in state.reports if report.state == "stopped")
        return Waiting(awaited=stopped) if stopped else builds_now(state.reports)
    call = state.waiting[longest.rank].call
    together = [rank for rank, wait in state.waiting.items() if _is_same(wait.call, call)]
    reports = {report.rank: report for report in state.reports}
    reached: set[int] = set()
    new = {longest.rank} if call.kind == "p2p" else set(together)
    waiters = frozenset(new)
    while new:
        reached |= new
        waits = [state.waiting[rank] for rank in new if rank in state.waiting]
        new = {rank for wait in waits for rank in wait.missing} - reached
    awaited = [reports[rank] for rank in sorted(reached - waiters) if rank in reports]
    awaited.sort(key=lambda report: report.state == "blocked")
    return Waiting(
        ranks=tuple(sorted(waiters)),
        call=call,
        waited_s=longest.blocked_s or 0.0,
        awaited=tuple(awaited),
    )


def builds_now(reports: Iterable[RankReport]) -> Waiting | None:
    """The ranks that build an extension, and those that wait for the lock of a build."""
    found = tuple(r for r in reports if r.state == "running" and r.builds)
    return Waiting(awaited=found) if found else None


def _is_same(one: Call, other: Call) -> bool:
    return (one.kind, one.group, one.op, one.sequence) == (
        other.kind,
        other.group,
        other.op,
        other.sequence,
    )
