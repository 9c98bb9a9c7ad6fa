"""Ends a hang in steps from gentle to forceful, and keeps all variables if possible.

Neither SIGINT nor ``ProcessGroup.abort()`` wakes a rank that waits in a gloo collective. It wakes
when a peer leaves the group, or when a side thread shuts down the rank's own sockets. Both raise
an ordinary exception at the line where the rank waits, and its variables remain. Only a rank that
does not wake is killed.
"""

from __future__ import annotations

import signal
import time

from ..wire.messages import CutSockets, LeaveGroup
from .rank_run import RankRun

#: The times of the steps after the first, in seconds after the hang was declared.
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
        self._steps_taken = 0
        self._left: dict[int, int] = {}  # the number of the request to leave the group, by rank
        self.freed = frozenset(run.handle.rank for run in runs if run.unfinished)

    @property
    def passed_s(self) -> float:
        """Seconds since the rescue began."""
        return time.monotonic() - self._began_s

    def step(self) -> None:
        """Take the steps that are due; call it often."""
        passed = self.passed_s
        if self._steps_taken == 0:
            self._let_idle_ranks_leave()
            self._signal(self._interrupt)
            self._steps_taken = 1
        if self._steps_taken == 1 and (passed >= _CUT_S or not self._left):
            for run in self._runs:
                if run.exit_status is None:
                    run.handle.ask(CutSockets())
            self._steps_taken = 2
        if self._steps_taken == 2 and passed >= _SIGNAL_S:
            self._signal(self.freed)
            self._steps_taken = 3
        if self._steps_taken == 3 and passed >= _KILL_S:
            for run in self._runs:
                if run.unfinished and not run.raised:
                    run.killed = True
                    run.handle.signal(signal.SIGKILL)
            self._steps_taken = 4

    def _let_idle_ranks_leave(self) -> None:
        """Let ranks at their prompt destroy their groups, which frees those that wait for them."""
        for run in self._runs:
            if run.exit_status is None and not run.unfinished:
                self._left[run.handle.rank] = run.handle.command(LeaveGroup())

    def _signal(self, ranks: frozenset[int]) -> None:
        for run in self._runs:
            if run.handle.rank in ranks and run.unfinished and not run.raised:
                # In this order: a suspended rank must not go on into its collective. Gloo loses
                # the error of a peer whose connection breaks while it answers (pair.cc: the
                # operation that is being written is in no list), and that peer waits forever.
                run.handle.signal(signal.SIGINT)
                run.handle.signal(signal.SIGCONT)

    def is_own_answer(self, rank: int, number: int) -> bool:
        """Whether a rank's answer belongs to the request to leave the group."""
        return self._left.get(rank) == number

    @property
    def owed(self) -> frozenset[int]:
        """Ranks that have not yet answered the request to leave the group."""
        return frozenset(rank for rank in self._left if self._runs[rank].exit_status is None)

    def answered(self, rank: int) -> None:
        """Note that a rank has answered that request."""
        self._left.pop(rank, None)
