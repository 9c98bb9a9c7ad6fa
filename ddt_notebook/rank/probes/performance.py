"""How a rank's main thread spends its time: two readings of the system's own counters for a cell.

What a slow rank did tells it from one that merely had to wait for a processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_THREADS = Path("/proc/self/task")


class _Counters(NamedTuple):
    """The time, for how long the main thread has computed, and for how long each thread queued."""

    at_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: Mapping[int, float] = {}


class PerformanceRecord:
    """The counters of the main thread at the beginning of a cell and at its end."""

    def __init__(self) -> None:
        self._begun = self._ended = _Counters()

    def begin_run(self) -> None:
        """A cell begins."""
        self._begun = self._ended = _read()

    def end_run(self) -> None:
        """The cell has ended."""
        self._ended = _read()

    @property
    def ran_s(self) -> float:
        """How long the cell took."""
        return self._ended.at_s - self._begun.at_s

    def plain(self) -> dict[str, Any]:
        """A `RankPerformance` as plain data, less the rank."""
        before = self._begun.queued_s
        queued = {
            thread: until - before.get(thread, 0.0)
            for thread, until in self._ended.queued_s.items()
        }
        return {
            "ran_s": self.ran_s,
            "cpu_s": self._ended.cpu_s - self._begun.cpu_s,
            "queued_s": queued.pop(os.getpid(), None),  # main thread
            "queued_beside_s": sum(queued.values()),
        }


#: Of this process.
RECORD = PerformanceRecord()


def observe(namespace: Mapping[str, Any], names: list[str] | None = None) -> dict[str, Any]:
    """A `RankPerformance` as plain data, less the rank."""
    return RECORD.plain()


def _read() -> _Counters:
    return _Counters(time.monotonic(), time.thread_time(), _queued_s())


def _queued_s() -> dict[int, float]:
    """By thread; empty where the system does not count (Linux does, nearly always)."""
    queued = {}
    with suppress(OSError):
        for thread in _THREADS.iterdir():
            with suppress(OSError, IndexError, ValueError):  # ended meanwhile, or not counted
                queued[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return queued
