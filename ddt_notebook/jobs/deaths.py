"""Decides which deaths of a recorded job's processes count as failures of their ranks."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from ..diagnosis.errors.reading import is_peer_error
from ..host.rank_run import RankRun
from ..wire import job_files
from .recorded_process import FROM_OUTSIDE, RecordedRank

#: A rank that was killed within this time after the first failure or SIGTERM was not killed by a
#: launcher, which lets at least 5 s pass between SIGTERM and SIGKILL (torchrun and Slurm 30, Open
#: MPI 5).
_BEFORE_A_LAUNCHER_S = 3.0
#: Launchers that send SIGKILL as soon as a rank has failed.
_KILL_AT_ONCE = frozenset({job_files.RAY})


def judge_deaths(job: Sequence[tuple[RankRun, RecordedRank]]) -> None:
    """Note the exit status of ranks whose death counts, and of no others.

    What was ended from outside after a failure does not count.
    """
    dead = [(run, rank) for run, rank in job if rank.exit_status is not None and rank.end_is_known]
    ended_s = {id(rank): (rank.gone_s or 0.0) + rank.wall_s for _, rank in job}
    by_itself = [rank for _, rank in dead if rank.exit_status not in FROM_OUTSIDE]
    killed = [rank for _, rank in dead if rank.exit_status == -signal.SIGKILL]
    others = [
        *(ended_s[id(rank)] for _, rank in dead if rank not in killed),
        *(ended_s[id(rank)] for run, rank in job if run.error is not None),
    ]
    first_s = min(others, default=math.inf)
    # an error of another kind only follows when a rank was killed
    own = any(run.error is not None and not is_peer_error(run.error) for run, _ in job)

    def is_first(rank: RecordedRank) -> bool:
        """Whether it was killed first, such as by the system, which was out of memory."""
        at_once = own and rank.started.launcher in _KILL_AT_ONCE
        return ended_s[id(rank)] < first_s + (0.0 if at_once else _BEFORE_A_LAUNCHER_S)

    killed_first = [rank for rank in killed if is_first(rank)]
    if len(killed) == len(job):
        killed_first = []  # by a person or by the limit of a batch system
    for run, rank in dead:
        counts = rank in by_itself or rank in killed_first
        if rank.exit_status in FROM_OUTSIDE and not (by_itself or killed_first):
            failed = any(one.error is not None for one, _ in job)
            counts = not failed and len(dead) < len(job)
        run.exit_status = rank.exit_status if counts else None
