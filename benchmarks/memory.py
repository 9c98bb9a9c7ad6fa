"""Proportional memory of all processes except the kernel, after DDP steps on four ranks."""

from __future__ import annotations

from . import peers
from .common import Figure, median_of, pss_megabytes, quantity, run_checked, session


def measure() -> list[Figure]:
    def once() -> float:
        with session() as active:
            run_checked(active, peers.DDP_STEPS)
            return pss_megabytes(list(active.process_ids()))

    used, note = median_of(once, 3)
    theirs = {"multiprocessing spawn": quantity(peers.spawn_memory_mb(), "MB")}
    return [Figure("memory (PSS) of 4 ranks and helpers", used, 450, "MB", theirs, note)]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
