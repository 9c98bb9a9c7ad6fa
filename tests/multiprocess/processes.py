"""What the tests of sessions share."""

from __future__ import annotations

import time

import psutil

#: A collective on all ranks: 1.0 on two of them.
REDUCE = "total = torch.tensor(float(rank))\ndist.all_reduce(total)\ntotal.item()"


def gone(pids: list[int], within_s: float = 5.0) -> bool:
    """Whether none of these processes exists any more."""
    deadline = time.monotonic() + within_s
    while any(psutil.pid_exists(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def descendants(pids: list[int]) -> list[int]:
    """All descendants of these processes."""
    return [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]
