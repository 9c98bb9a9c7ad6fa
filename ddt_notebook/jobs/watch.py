"""Watches a recorded job while it runs, and judges whether it hangs or has failed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..host.hang_detection import HangWatch, waiting_now
from ..model import Snapshot
from ..model.snapshot import Outcome
from ..model.waits import Waiting
from .recorded_job import RecordedJob

#: How often monitors are asked, in seconds.
_ASK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen when a job was judged.

    Attributes
    ----------
    outcome
        ``"hung"``, ``"failed"``, ``"interrupted"`` or ``"ok"``.
    snapshot
        What the ranks did.
    """

    outcome: Outcome
    snapshot: Snapshot


class JobWatch:
    """Looks at a job again and again.

    Parameters
    ----------
    folder
        The job's folder.
    hang_after_s
        Seconds after which a wait that can no longer end is a hang.
    """

    def __init__(self, folder: Path, *, hang_after_s: float) -> None:
        self.job = RecordedJob(folder)
        self.waiting: Waiting | None = None  #: who waits for whom now
        self._hang_after_s = hang_after_s
        self._hangs = HangWatch(hang_after_s=hang_after_s, timeout_s=None)
        self._judged: tuple[str, int] | None = None
        self._generation: tuple[str, int] | None = None
        self._asked_s = 0.0
        self._failed = False

    @property
    def judged(self) -> bool:
        """Whether a verdict on the current generation of ranks was given."""
        return self._judged is not None and self._judged == self.job.generation

    def step(self, wait_s: float) -> Verdict | None:
        """Look once, for at most ``wait_s`` seconds; returns a verdict if the job hangs now."""
        job = self.job
        job.receive(wait_s)
        job.look()
        if job.generation != self._generation:  # torchrun has started new ranks
            self._generation = job.generation
            self._hangs.reset()
        self.waiting = None
        if not job.runs or self.judged:
            return None
        if job.failed and not self._failed:
            job.fetch_flight()
        self._failed = job.failed
        now = time.monotonic()
        if now - self._asked_s > _ASK_EVERY_S:
            self._asked_s = now
            job.ask()
        if not any(run.may_be_blocked for run in job.runs):
            self._hangs.reset()
            return None
        state = job.state()
        self.waiting = waiting_now(state)
        if job.ended or not self._hangs.hung(state, failed=job.failed):
            return None
        return self._judge("failed" if job.failed else "hung")

    def last(self) -> Verdict | None:
        """The verdict at the end of the job; None if one was given before, or without ranks."""
        self.job.look()
        if not self.job.runs or self.judged:
            return None
        return self._judge(None)

    def _judge(self, outcome: Outcome | None) -> Verdict:
        self._judged = self.job.generation
        snapshot = self.job.snapshot(outcome, hang_after_s=self._hang_after_s)
        return Verdict(snapshot.outcome, snapshot)
