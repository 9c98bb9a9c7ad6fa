"""Watches a recorded job while it runs, and judges whether it hangs or has failed."""

from __future__ import annotations

import gc
import time
from pathlib import Path

from ..host.hang_detection import HangWatch, waiting_now
from ..model import Snapshot
from ..model.snapshot import Outcome
from ..model.waits import Waiting
from .recorded_job import RecordedJob

#: How often monitors are asked, in seconds, and how many of them at most in a second: an answer
#: costs the watcher about 0.1 ms.
_ASK_EVERY_S, _ASKED_A_SECOND = 0.25, 500
#: With more ranks than this, looks are rarer, and those at ranks at work with more than the second
#: number: one at 512 ranks takes 3 ms of processor time (`benchmarks.watched_ranks`).
_RANKS_OFTEN, _AT_WORK_OFTEN = 128, 256

#: So often, a snapshot is thrown away since ranks have left their wait meanwhile.
_MOST_GOING_ON = 3
#: A launcher gets this long to end or to start its ranks again, in seconds, before they are judged.
_LINGERS_S = 10.0


def collect_garbage_rarely() -> None:
    """Let a process that only watches search its objects for garbage rarely.

    A first look at 4,096 ranks makes millions of objects that stay, and has no cycles.
    """
    gc.freeze()
    gc.set_threshold(100_000)


class JobWatch:
    """Looks at a job again and again.

    Parameters
    ----------
    folder
        The job's folder.
    hang_after_s
        Seconds after which a wait that can no longer end is a hang.
    only
        See `RecordedJob`.
    command
        The process that started the job; its end ends a wait for the next look.
    """

    def __init__(
        self, folder: Path, *, hang_after_s: float, only: str = "", command: int | None = None
    ) -> None:
        self.job = RecordedJob(folder, watched=True, only=only)
        if command is not None:
            self.job.watch_command(command)
        self.waiting: Waiting | None = None  #: who waits for whom now
        self._hang_after_s = hang_after_s
        self._hangs = HangWatch(hang_after_s=hang_after_s, timeout_s=None)
        self._judged_s: float | None = None  # when the judged ranks had started
        self._launched_s: float | None = None
        self._asked_s = 0.0
        self._failed = False
        self._at_work = False  # whether no rank seemed to wait at the last look
        self._went_on = 0  # how often ranks had left their wait in the snapshot of it
        self._ended_s: float | None = None  # when all ranks were seen to have ended

    @property
    def judged(self) -> bool:
        """Whether the current ranks were judged."""
        return self._judged_s is not None and self._judged_s == self.job.launched_s

    def let_report(self, reports: bool | None) -> None:
        """Say whether this host reports, see `RecordedJob.reports`."""
        if reports is None and self.job.reports is False:  # what it found was not reported
            self._judged_s = None
            self._hangs.reset()
        self.job.reports = reports

    def step(self, wait_s: float, *, at_work_s: float = 0.0) -> Snapshot | None:
        """Look once, after at most ``wait_s`` seconds, or longer if there are many ranks.

        Returns a snapshot if the job hangs now, and of ranks that have ended without having been
        judged when others were launched after them, as torchrun does at a restart.

        Parameters
        ----------
        wait_s
            How long to wait for answers of the ranks.
        at_work_s
            How long to wait instead, unless a process ends, if it is longer and no rank seems to
            wait. The processor that a look takes may be that of a rank, on which the others wait.
        """
        job = self.job
        wait_s *= max(1.0, len(job.runs) / _RANKS_OFTEN)
        at_work_s *= max(1.0, len(job.runs) / _AT_WORK_OFTEN)
        if self._at_work and at_work_s > wait_s and not job.failed:
            job.wait(at_work_s)
        else:
            job.receive(wait_s)
        self.share()
        former = self._former_launch()
        if former is not None:
            return former
        if job.launched_s != self._launched_s:
            self._launched_s = job.launched_s
            self._hangs.reset()
        self.waiting, self._at_work = None, False
        if not job.runs or self.judged:
            return None
        if self._lingers():
            return self._judge(None)
        if job.failed and not self._failed:
            job.fetch_flight()
        self._failed = job.failed
        now = time.monotonic()
        if now - self._asked_s > max(_ASK_EVERY_S, len(job.runs) / _ASKED_A_SECOND):
            self._asked_s = now
            job.ask()
        if not any(run.may_be_blocked for run in job.runs):
            self._at_work = not any(run.idle and run.unfinished for run in job.runs)
            self._hangs.reset()
            return None
        state = job.state()
        self.waiting = waiting_now(state)
        if job.ended or not self._hangs.hung(state, failed=job.failed):
            return None
        snapshot = self._judge("failed" if job.failed else "hung")
        moving = {report.rank for report in snapshot.ranks if report.state == "running"}
        if not moving & state.waiting.keys() or self._went_on == _MOST_GOING_ON:
            return snapshot
        # a peer's end has just freed it: it is shown as it is when that has come to an end
        self._went_on += 1
        self._judged_s = None
        self._hangs.reset()
        return None

    def _lingers(self) -> bool:
        """Whether all ranks have ended a while ago, and the command that started them still runs.

        torchrun waits up to 300 s for its agents on other hosts.
        """
        if not self.job.all_ended:
            self._ended_s = None
        elif self._ended_s is None:
            self._ended_s = time.monotonic()
        return self._ended_s is not None and time.monotonic() - self._ended_s >= _LINGERS_S

    def share(self) -> None:
        """Share with the watchers of other hosts what the ranks here do, and read what they do."""
        self.job.share()
        self.job.take_shared()

    def last(self) -> Snapshot | None:
        """A snapshot at the end of the job; None if it was judged before, or without ranks.

        Call it until it returns None: the ranks before a late restart are judged by themselves.
        """
        former = self._former_launch()
        if former is not None:
            return former
        if not self.job.runs or self.judged:
            return None
        return self._judge(None)

    def _former_launch(self) -> Snapshot | None:
        """Look; when ranks were launched again, a snapshot of the former ones if they need one."""
        job = self.job
        job.look()
        if not job.relaunched:
            return None
        former = None if self.judged or not job.ended else job.snapshot()
        job.begin_next_launch()
        return former

    def _judge(self, outcome: Outcome | None) -> Snapshot:
        self._judged_s = self.job.launched_s
        snapshot = self.job.snapshot(outcome, hang_after_s=self._hang_after_s)
        # the job may be ended after the report, and with it what its ranks hold
        return self.job.with_answers(snapshot, stands=True) if outcome == "hung" else snapshot
