"""Slow is not hung: decides, from one look after another, whether a wait can still end."""

from __future__ import annotations

import time

from ..model import RankReport
from .watch import View

#: When a rank has raised or died, its peers' wait is ended after this; after the second, when
#: another rank is still on its way: its last call shows who waits for whom.
_GRACE_AFTER_FAILURE_S = 0.2
_GRACE_ON_THE_WAY_S = 1.0
_SAY_AFTER_S = 1.0


class HangWatch:
    """Keeps what must be remembered between two looks.

    Parameters
    ----------
    hang_after_s
        How long a wait that can no longer end is left alone.
    timeout_s
        How long a rank is waited for that could still come.
    """

    def __init__(self, *, hang_after_s: float, timeout_s: float) -> None:
        self._hang_after_s = hang_after_s
        self._timeout_s = timeout_s
        self._stuck: frozenset[int] = frozenset()
        self._since_s = 0.0

    def reset(self) -> None:
        """Nobody is blocked."""
        self._stuck = frozenset()

    def over_the_limit(self, view: View) -> bool:
        """Whether a rank has waited longer than any may."""
        longest = view.longest
        return longest is not None and (longest.blocked_s or 0.0) > self._timeout_s

    def hung(self, view: View, *, failed: bool) -> bool:
        """Whether ranks have been stuck for long enough, in a wait that cannot end.

        Parameters
        ----------
        view
            What is seen now.
        failed
            Whether a rank has raised or died: then there is nothing left to wait for.
        """
        now = time.monotonic()
        stuck = view.stuck | _left_behind(view)
        if stuck != self._stuck:
            self._stuck, self._since_s = stuck, now
        if not stuck:
            return False
        grace_s = self._hang_after_s
        if failed:
            on_the_way = any(r.state == "running" for r in view.reports if r.rank not in stuck)
            grace_s = min(grace_s, _GRACE_ON_THE_WAY_S if on_the_way else _GRACE_AFTER_FAILURE_S)
        return now - self._since_s >= grace_s

    @staticmethod
    def to_interrupt(view: View, *, over_the_limit: bool) -> frozenset[int]:
        """Ranks that run code for which others have waited too long, or that are stopped."""
        states = {report.rank: report.state for report in view.reports}
        chosen = {rank for rank, state in states.items() if state == "stopped"}
        if over_the_limit:
            awaited = {rank for wait in view.waiting.values() for rank in wait.missing}
            chosen |= {rank for rank in awaited if states.get(rank) in ("running", "silent")}
        return frozenset(chosen)


def _left_behind(view: View) -> frozenset[int]:
    """Stopped ranks, when nobody else does anything any more."""
    stopped = frozenset(report.rank for report in view.reports if report.state == "stopped")
    others = {r.rank for r in view.reports if r.state in ("running", "silent", "blocked")}
    return stopped if others <= view.stuck else frozenset()


def waiting_line(view: View) -> str | None:
    """``waiting 4.2 s for rank 1, which is at cell[3] line 7: time.sleep(8)``."""
    longest = view.longest
    if longest is None or (longest.blocked_s or 0.0) < _SAY_AFTER_S:
        return _stopped_line(view)
    text = f"waiting {longest.blocked_s:.1f} s"
    missing = sorted(view.waiting[longest.rank].missing)
    if not missing:
        return f"{text} in {longest.blocked_call.label}" if longest.blocked_call else text
    plural = "rank" if len(missing) == 1 else "ranks"
    text += f" for {plural} {', '.join(map(str, missing))}"
    first = next((r for r in view.reports if r.rank == missing[0]), None)
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


def _stopped_line(view: View) -> str | None:
    stopped = [report.rank for report in view.reports if report.state == "stopped"]
    return f"rank {stopped[0]} is suspended (SIGSTOP)" if stopped else None
