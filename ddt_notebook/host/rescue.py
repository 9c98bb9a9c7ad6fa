"""Ends a hang without loss: the ladder from the gentle to the last resort.

A rank that waits in a gloo collective hears neither SIGINT nor ``ProcessGroup.abort()``. It wakes
when a peer leaves the group, or when its own sockets are shut down by a side thread; both raise an
ordinary exception at the line where it stands, and every variable stays.
"""

from __future__ import annotations

import signal
import time

from ..wire.messages import CutSockets, LeaveGroup
from .watch import RankRun

#: When each rung is taken, in seconds after the hang was declared.
_CUT_S = 0.25
_SIGNAL_S = 0.7
_KILL_S = 1.4


class Rescue:
    """Frees the ranks of one run.

    Parameters
    ----------
    runs
        Each rank's part in the run.
    interrupt
        Ranks to be interrupted at once, because they run code that will not end by itself.
    """

    def __init__(self, runs: list[RankRun], interrupt: frozenset[int]) -> None:
        self._runs = runs
        self._began_s = time.monotonic()
        self._interrupt = interrupt
        self._rung = 0
        self._left: dict[int, int] = {}
        self.freed = frozenset(run.handle.rank for run in runs if run.unfinished)

    @property
    def passed_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began_s

    def step(self) -> None:
        """Take the rungs that are due; call it often."""
        passed = self.passed_s
        if self._rung == 0:
            self._let_idle_ranks_leave()
            self._signal(self._interrupt)
            self._rung = 1
        if self._rung == 1 and (passed >= _CUT_S or not self._left):
            for run in self._runs:
                if run.exit_status is None:
                    run.handle.ask(CutSockets())
            self._rung = 2
        if self._rung == 2 and passed >= _SIGNAL_S:
            self._signal(self.freed)
            self._rung = 3
        if self._rung == 3 and passed >= _KILL_S:
            for run in self._runs:
                if run.unfinished and not run.raised:
                    run.killed = True
                    run.handle.signal(signal.SIGKILL)
            self._rung = 4

    def _let_idle_ranks_leave(self) -> None:
        """Ranks at the prompt destroy their groups: whoever waits for them is freed by this."""
        for run in self._runs:
            if run.exit_status is None and not run.unfinished:
                self._left[run.handle.rank] = run.handle.command(LeaveGroup())

    def _signal(self, ranks: frozenset[int]) -> None:
        for run in self._runs:
            if run.handle.rank in ranks and run.unfinished and not run.raised:
                run.handle.signal(signal.SIGCONT)
                run.handle.signal(signal.SIGINT)

    def is_own_answer(self, rank: int, number: int) -> bool:
        """Whether a rank's answer is to the ladder's own command."""
        return self._left.get(rank) == number

    @property
    def owed(self) -> frozenset[int]:
        """Ranks whose answer to the ladder's own command is still to come."""
        return frozenset(rank for rank in self._left if self._runs[rank].exit_status is None)

    def answered(self, rank: int) -> None:
        """Take note of that answer."""
        self._left.pop(rank, None)
