"""Decides whether ranks that wait are hung or only slow.

A wait is a hang if it has been unable to end by itself for a while. A wait for a rank that may
still arrive is only slow; it ends with the session's timeout, if the session has one.

A hang is proved if every rank that could end a wait has finished, raised, died, was suspended, or
waits itself in a call that cannot end (`model.progress.cannot_complete`). A rank that sleeps, computes,
reads, waits for a lock or is in C code may still arrive, however long that takes; so may a transfer that
every member has entered, and a rendezvous whose address nobody answers.
"""

from __future__ import annotations

import time

from ..model import RankReport
from .rank_run import RunState

#: When a rank has raised or died, its peers wait for the first of these times, in seconds. The
#: second applies while another rank still runs, whose last call will show which rank waits for
#: which.
_GRACE_AFTER_FAILURE_S = 0.2
_GRACE_WHILE_RUNNING_S = 1.0
#: The line below a running cell does not show shorter waits.
_SHOW_AFTER_S = 1.0


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
        """Ranks to interrupt: those that are stopped, or that keep others waiting too long."""
        states = {report.rank: report.state for report in state.reports}
        chosen = {rank for rank, what in states.items() if what == "stopped"}
        if over_the_limit:
            awaited = {rank for wait in state.waiting.values() for rank in wait.missing}
            chosen |= {rank for rank in awaited if states.get(rank) in ("running", "silent")}
        return frozenset(chosen)


def _left_behind(state: RunState) -> frozenset[int]:
    """The stopped ranks, if no other rank is still working."""
    stopped = frozenset(report.rank for report in state.reports if report.state == "stopped")
    others = {r.rank for r in state.reports if r.state in ("running", "silent", "blocked")}
    return stopped if others <= state.stuck else frozenset()


def waiting_line(state: RunState) -> str | None:
    """``waiting 4.2 s for rank 1, which is at cell[3] line 7: time.sleep(8)``."""
    longest = state.longest
    if longest is None or (longest.blocked_s or 0.0) < _SHOW_AFTER_S:
        return _stopped_line(state)
    text = f"waiting {longest.blocked_s:.1f} s"
    missing = sorted(state.waiting[longest.rank].missing)
    if not missing:
        return f"{text} in {longest.blocked_call.label}" if longest.blocked_call else text
    plural = "rank" if len(missing) == 1 else "ranks"
    text += f" for {plural} {', '.join(map(str, missing))}"
    first = next((r for r in state.reports if r.rank == missing[0]), None)
    return text if first is None else text + _whereabouts(first, alone=len(missing) == 1)


def _whereabouts(report: RankReport, *, alone: bool) -> str:
    who = "which" if alone else f"rank {report.rank}"
    if report.state == "silent":
        return f", {who} does not answer: C code holds its interpreter"
    if report.state == "stopped":
        return f", {who} is suspended (SIGSTOP)"
    if report.position is not None and report.state in ("running", "blocked"):
        return f", {who} is at {report.position.label}"
    return ""


def _stopped_line(state: RunState) -> str | None:
    stopped = [report.rank for report in state.reports if report.state == "stopped"]
    return f"rank {stopped[0]} is suspended (SIGSTOP)" if stopped else None
