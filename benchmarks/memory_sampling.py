"""How much of a processor the memory sampler uses."""

from __future__ import annotations

import time

from ddt_notebook.model.memory import RankMemory
from ddt_notebook.rank.probes.process_memory import MemorySampler

from .common import Figure, median_of

LASTS_S = 2.0


def measure() -> list[Figure]:
    cost, note = median_of(_share_of_a_processor, 5)
    return [Figure("memory sampling at 10 Hz, of one processor", cost, 1.0, "%", note=note)]


def _share_of_a_processor() -> float:
    sampler = MemorySampler()
    # Only the sampler runs in this process.
    used, wall = time.process_time(), time.perf_counter()
    sampler.start()
    time.sleep(LASTS_S)
    sampler.stop(RankMemory(rank=0))
    return 100 * (time.process_time() - used) / (time.perf_counter() - wall)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
