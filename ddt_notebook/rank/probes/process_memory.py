"""Measures how much memory this process uses over time, and how much it may use."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import torch

from ... import system_memory
from ...model import Position
from ...model.memory import MemoryCount, RankMemory
from .frames import user_line

_PAGE = resource.getpagesize()
_STATM = Path("/proc/self/statm")
_PERIOD_S = 0.1
#: With more samples than this, every second one is dropped and the period is doubled.
_MAX_SAMPLES = 600
#: A new peak is this many times as high as the one before: smaller rises are noise.
_RISE = 1.01


def forget_peak() -> bool:
    """Reset the peak of the resident set; returns False if the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def limits(*, gpu: bool = True) -> dict[str, int]:
    """The limits on this process's memory, in bytes, and on that of its GPU if ``gpu`` is set.

    See `RankMemory.limits`.
    """
    total = int(psutil.virtual_memory().total)
    found = {"machine": total}
    cap = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if cap != resource.RLIM_INFINITY:
        found["rank"] = cap
    cgroup = system_memory.cgroup()
    if cgroup is not None and cgroup.limit_bytes is not None and cgroup.limit_bytes < total:
        found["cgroup"] = cgroup.limit_bytes
    if gpu and uses_gpu():
        found["GPU"] = int(torch.cuda.mem_get_info()[1])
    return found


def uses_gpu() -> bool:
    """Whether this process uses a GPU; does not initialize CUDA."""
    return bool(torch.cuda.is_initialized())


class MemorySampler(threading.Thread):
    """Samples the memory of this process ten times per second; the main thread makes it.

    Parameters
    ----------
    capped
        Whether the private memory of the process is limited, and so its peak is of interest.
    """

    def __init__(self, *, capped: bool = False) -> None:
        super().__init__(name="ddt-memory", daemon=True)
        self.started_s = time.monotonic()
        self._main = threading.get_ident()
        self._capped = capped
        self._counts: list[MemoryCount] = []
        self._highest = 0
        self._highest_at_ms: int | None = None
        self._highest_where: Position | None = None
        self._samples: list[tuple[int, int, int, int]] = []
        self._ended = threading.Event()
        self._statm = os.open(_STATM, os.O_RDONLY) if _STATM.exists() else None

    def run(self) -> None:
        """Sample until `stop`."""
        period_s = _PERIOD_S
        self._sample()
        while not self._ended.wait(period_s):
            self._sample()
            if len(self._samples) > _MAX_SAMPLES:
                del self._samples[1::2]
                period_s *= 2

    def count(self, parts: dict[str, int]) -> None:
        """Note what the rank holds now, in bytes by `MemoryKind`."""
        self._counts.append(MemoryCount(at_ms=self._now_ms(), parts=parts))

    def stop(self, memory: RankMemory) -> RankMemory:
        """Stop, and add the samples to what else was measured."""
        self._ended.set()
        self.join()
        self._sample()
        if self._statm is not None:
            os.close(self._statm)
        at, rss, data, gpu = zip(*self._samples, strict=True)
        return replace(
            memory,
            started_s=self.started_s,
            at_ms=at,
            rss_kb=rss,
            data_kb=data if any(data) else (),
            gpu_kb=gpu if any(gpu) else (),
            counts=tuple(self._counts),
            highest_at_ms=self._highest_at_ms,
            highest_where=self._highest_where,
        )

    def _now_ms(self) -> int:
        return round((time.monotonic() - self.started_s) * 1e3)

    def _sample(self) -> None:
        if self._statm is not None:
            fields = os.pread(self._statm, 200, 0).split()
            rss, data = int(fields[1]) * _PAGE, int(fields[5]) * _PAGE
        else:
            rss, data = system_memory.resident_bytes(), 0
        gpu = torch.cuda.memory_allocated() if uses_gpu() else 0
        at_ms = self._now_ms()
        self._samples.append((at_ms, rss >> 10, data >> 10, gpu >> 10))
        height = gpu or (data if self._capped and data else rss)
        if height > _RISE * self._highest:
            where = user_line(sys._current_frames().get(self._main))
            if where is not None:  # the cell may have begun late, or ended
                self._highest, self._highest_at_ms, self._highest_where = height, at_ms, where
