"""Fetches what a finding about a hang needs beyond the call logs, while the ranks still stand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from ..model import RankReport
from ..model.branches import RankBranches
from ..model.user_code import is_user_code
from ..wire.messages import AskBranches, AskFlight
from .rank_run import RankRun

_LIMIT_S = 0.4


def fetch_stacks(runs: Sequence[RankRun], wait: Callable[[], object]) -> None:
    """Ask for the lines that led to collectives of libraries, and wait for the answers.

    Parameters
    ----------
    runs
        Each rank's part in the run.
    wait
        Waits for answers for a short time, and processes them.
    """
    if not any((c := r.handle.recorder) is not None and c.saw_libraries for r in runs):
        return
    for run in runs:
        run.judged = True
        if run.exit_status is None and run.asked:
            run.handle.ask(AskFlight(stacks=True))
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline and any(
        run.handle.owes_flight for run in runs if run.exit_status is None
    ):
        wait()


def fetch_branch_values(
    runs: Sequence[RankRun], wait: Callable[[], object], *, always: bool
) -> None:
    """Ask for the values in conditions, also of ranks that have finished, and wait.

    Parameters
    ----------
    runs, wait
        As for `fetch_stacks`.
    always
        Also ask ranks that have noted no branch, for the reason.
    """
    asked = [
        run.handle
        for run in runs
        if run.exit_status is None
        and run.asked
        and (ring := run.handle.branch_ring) is not None
        and (always or ring.has_events)
    ]
    for handle in asked:
        handle.ask(AskBranches())
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline and any(handle.owes_branches for handle in asked):
        wait()


def named_files(reports: Iterable[RankReport], branches: Iterable[RankBranches]) -> list[str]:
    """The user's files that positions and branches name."""
    named = [
        place.file
        for report in reports
        for place in (
            report.position,
            report.exited_at,
            *(call.where for call in report.calls),
            *(report.error.frames if report.error is not None else ()),
        )
        if place is not None and is_user_code(place.file)
    ]
    return named + [outcome.file for one in branches for outcome in one.outcomes]
