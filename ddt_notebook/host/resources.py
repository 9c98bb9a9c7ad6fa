"""Where each rank computes, and how much of the memory that it may allocate it has."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

from .. import system_memory
from .pool import RankPool


@dataclass(frozen=True, slots=True)
class RankResources:
    """One rank's.

    Attributes
    ----------
    device
        What the variable ``device`` is on it, empty as long as it has not told; ``cuda:0
        (simulated)`` where the CPU computes.
    resident_bytes
        Resident set size, None if that was not asked for.
    allocated_bytes
        What it has allocated since its start; None without a cap, and where the system does not
        tell.
    cap_bytes
        What it may allocate since its start, None without a cap.
    """

    device: str
    resident_bytes: int | None = None
    allocated_bytes: int | None = None
    cap_bytes: int | None = None


def of_ranks(pool: RankPool, *, resident: bool) -> dict[int, RankResources]:
    """Every rank's, without a word to the ranks: they may be busy, or stuck.

    Parameters
    ----------
    pool
        The ranks.
    resident
        Whether the resident set is wanted: while a cell runs, the ranks tell it themselves.
    """
    cap = pool.options.memory
    simulated = " (simulated)" if pool.options.simulated_gpus else ""
    return {
        handle.rank: RankResources(
            device=f"{handle.device}{simulated}" if handle.device else "",
            resident_bytes=_resident(handle.pid) if resident and handle.alive else None,
            allocated_bytes=_allocated(handle.pid, cap)
            if cap is not None and handle.alive
            else None,
            cap_bytes=cap,
        )
        for handle in tuple(pool.handles)
    }


def _resident(pid: int) -> int | None:
    with suppress(psutil.Error):
        return system_memory.resident_bytes(pid)
    return None


def _allocated(pid: int, cap: int) -> int | None:
    """How far private memory has come towards the limit that was set ``cap`` above its start."""
    with suppress(psutil.Error, AttributeError):  # it has ended, or this is not Linux
        limit, _ = psutil.Process(pid).rlimit(psutil.RLIMIT_DATA)
        used = system_memory.data_bytes(pid)
        if used is not None and limit != psutil.RLIM_INFINITY:
            return max(0, used - (int(limit) - cap))
    return None
