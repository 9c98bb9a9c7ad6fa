"""Measures how a rank's main thread spends a cell, with the system's counters.

They show whether a slow rank computed longer or had to wait for a processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ...model.performance import RankPerformance

_THREADS = "/proc/self/task"
#: Shorter cells, in seconds, are not examined for what slows a rank.
_SLOW_FROM_S = 0.1
#: The system's counters of a thread are three numbers.
_COUNTERS_BYTES = 256


class _Counters(NamedTuple):
    """Time, processor time of the main thread, and how long each thread waited for a processor."""

    at_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: Mapping[int, float] = {}


class PerformanceRecord:
    """The counters of the main thread at the beginning of a cell and at its end."""

    def __init__(self) -> None:
        self._begun = self._ended = _Counters()

    def begin_run(self) -> None:
        """Begin a cell."""
        self._begun = self._ended = _read()

    def end_run(self) -> None:
        """End the cell."""
        self._ended = self._begun
        if time.monotonic() - self._begun.at_s > _SLOW_FROM_S:
            self._ended = _read()

    @property
    def is_long(self) -> bool:
        """Whether the cell took so long that its counters were read."""
        return self._ended is not self._begun

    def observed(self, rank: int) -> RankPerformance:
        """How the main thread of this rank spent the cell."""
        before = self._begun.queued_s
        queued = {
            thread: until - before.get(thread, 0.0)
            for thread, until in self._ended.queued_s.items()
        }
        return RankPerformance(
            rank=rank,
            ran_s=self._ended.at_s - self._begun.at_s,
            cpu_s=self._ended.cpu_s - self._begun.cpu_s,
            queued_s=queued.pop(os.getpid(), None),  # main thread
            queued_beside_s=sum(queued.values()),
        )


#: The record of this process.
RECORD = PerformanceRecord()


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankPerformance:
    """How the main thread spent the cell that has just ended."""
    return RECORD.observed(rank)


def _read() -> _Counters:
    return _Counters(time.monotonic(), time.thread_time(), _queued_s())


def _queued_s() -> dict[int, float]:
    """Waiting times by thread, in seconds; empty if the system does not count them."""
    queued = {}
    with suppress(OSError):
        for thread in os.listdir(_THREADS):
            with suppress(
                OSError, IndexError, ValueError
            ):  # the thread has ended, or is not counted
                counters = _content(f"{_THREADS}/{thread}/schedstat")
                queued[int(thread)] = int(counters.split()[1]) / 1e9
    return queued


def _content(path: str) -> bytes:
    """The content of a small file, which `open` takes several times as long to read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _COUNTERS_BYTES)
    finally:
        os.close(descriptor)
