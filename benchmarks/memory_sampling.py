"""What the memory sampler costs a process that is busy."""

from __future__ import annotations

import statistics
import time

from ddt_notebook.probes.process_memory import MemorySampler

from .common import Figure

ROUNDS = 20
BUSY = 3_000_000


def measure() -> list[Figure]:
    ratios = []
    for turn in range(ROUNDS):
        # Whoever comes second finds a warmer processor: they take turns at that.
        times = {on: _cpu_s(sampling=on) for on in ((True, False) if turn % 2 else (False, True))}
        ratios.append(times[True] / times[False])
    cost = 100 * (statistics.median(ratios) - 1)
    note = f"processor time of a busy thread and the sampler, {ROUNDS} pairs"
    return [Figure("memory sampling at 10 Hz", cost, 1.0, "%", note=note)]


def _cpu_s(*, sampling: bool) -> float:
    sampler = MemorySampler()
    if sampling:
        sampler.start()
    start = time.process_time()
    total = 0
    for number in range(BUSY):
        total += number
    used = time.process_time() - start
    if sampling:
        sampler.stop()
    return used


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
