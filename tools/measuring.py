"""Samples the peak memory of a process and its descendants while it runs."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

INTERVAL_S = 0.2


def pss_of_tree(pid: int) -> int:
    """Bytes of proportional set size of ``pid`` and its descendants; shared pages count once."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_pss(member.pid) for member in members)


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # the process has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class PeakMemory:
    """Samples the tree of a process from a thread.

    Attributes
    ----------
    peak
        The highest sample in bytes; 0 if the system does not report the proportional set size.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="peak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(timeout=10)

    def _sample(self) -> None:
        last = False
        while not last:  # what takes less than an interval is measured at its end
            last = self._ended.wait(INTERVAL_S)
            self.peak = max(self.peak, pss_of_tree(self.pid))
