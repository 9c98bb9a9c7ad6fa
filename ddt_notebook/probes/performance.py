"""How a rank's main thread spends its time: two readings of the system's own counters for a cell.

What a slow rank did tells it from one that merely had to wait for a processor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_Counters = tuple[float, float, float | None]
_COUNTERS = Path("/proc/thread-self/schedstat")


class PerformanceRecord:
    """The counters of the main thread at the beginning of a cell and at its end."""

    def __init__(self) -> None:
        self._begun: _Counters = (0.0, 0.0, None)
        self._ended: _Counters = self._begun

    def begin_run(self) -> None:
        """A cell begins."""
        self._begun = self._ended = _read()

    def end_run(self) -> None:
        """The cell has ended."""
        self._ended = _read()

    @property
    def ran_s(self) -> float:
        """How long the cell took."""
        return self._ended[0] - self._begun[0]

    def plain(self) -> dict[str, Any]:
        """A `RankPerformance` as plain data, less the rank."""
        (_, cpu, queued), (_, cpu_until, queued_until) = self._begun, self._ended
        return {
            "ran_s": self.ran_s,
            "cpu_s": cpu_until - cpu,
            "queued_s": None if queued is None or queued_until is None else queued_until - queued,
        }


#: Of this process.
RECORD = PerformanceRecord()


def observe(namespace: Mapping[str, Any], names: list[str] | None = None) -> dict[str, Any]:
    """A `RankPerformance` as plain data, less the rank."""
    return RECORD.plain()


def _read() -> _Counters:
    """Now, and for how long this thread has computed and has waited for a processor."""
    return time.monotonic(), time.thread_time(), _queued_s()


def _queued_s() -> float | None:
    try:
        return int(_COUNTERS.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # not Linux, or a kernel that does not count
        return None
