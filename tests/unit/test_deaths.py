"""Which deaths of a job's processes count as failures of their ranks."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from ddt_notebook.jobs.deaths import judge_deaths
from ddt_notebook.model import RankError

_OWN = RankError(type="ValueError", message="bad sample")
_OF_PEER = RankError(type="RuntimeError", message="Connection closed by peer [127.0.0.1]:4242")


def _one(launcher: str, gone_s: float, status: int | None, error: RankError | None) -> Any:
    rank = SimpleNamespace(
        exit_status=status,
        end_is_known=True,
        gone_s=gone_s,
        wall_s=1000.0,
        started=SimpleNamespace(launcher=launcher),
    )
    return SimpleNamespace(error=error, exit_status=None), rank


@pytest.mark.parametrize(
    ("launcher", "error", "killed_s", "counts"),
    [
        ("ray", _OWN, 5.3, False),  # Ray kills the others at once
        ("ray", _OWN, 4.9, True),
        ("ray", _OF_PEER, 5.3, True),  # that rank was killed first, which is seen a little later
        ("torchrun", _OWN, 5.3, True),  # it sends SIGTERM first, and waits
        ("torchrun", _OWN, 35.0, False),
    ],
)
def test_a_rank_that_was_killed_after_another_one_had_failed(
    launcher: str, error: RankError, killed_s: float, counts: bool
) -> None:
    failed = _one(launcher, 5.0, None, error)
    killed = _one(launcher, killed_s, -signal.SIGKILL, None)
    judge_deaths([failed, killed])
    assert killed[0].exit_status == (-signal.SIGKILL if counts else None)
