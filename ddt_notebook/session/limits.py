"""What this machine can hold, estimated before ranks are started."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from .errors import SessionError

#: Private memory of one rank after a few steps of a small model (benchmarks/memory.py measures it).
RANK_BYTES = {"fork": 60 << 20, "spawn": 260 << 20}
_CGROUP_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def free_memory() -> int:
    """Bytes that this process tree may still take: of the machine, its cgroup and MEM_LIMIT."""
    free = [int(psutil.virtual_memory().available)]
    for limit, usage in _CGROUP_LIMITS:
        try:
            free.append(int(limit.read_text()) - int(usage.read_text()))
        except (OSError, ValueError):  # not in such a cgroup, or "max"
            continue
    hub_limit = os.environ.get("MEM_LIMIT", "")
    if hub_limit.isdigit():
        free.append(int(hub_limit))
    return max(0, min(free))


def check_ranks(count: int, start_method: str) -> None:
    """Refuse a number of ranks that is none or that memory cannot hold.

    Raises
    ------
    SessionError
        One line with what to do.
    """
    if count < 1:
        raise SessionError(f"a session has at least 1 rank, not {count}: %ddt_start -n 2")
    each, free = RANK_BYTES[start_method], free_memory()
    if count * each > free:
        most = max(1, free // each)
        raise SessionError(
            f"{count} ranks need about {count * each / 2**30:.1f} GB and {free / 2**30:.1f} GB are "
            f"free: start at most {most} (%ddt_start -n {min(most, 8)})"
        )


def parse_bytes(text: str | int) -> int:
    """``"512M"``, ``"2G"`` or a number of bytes.

    Raises
    ------
    SessionError
        If it is neither.
    """
    if isinstance(text, int):
        return text
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    body = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = body[-1:] if body[-1:] in units else ""
    try:
        amount = float(body.removesuffix(unit))
    except ValueError:
        amount = -1.0
    if amount <= 0:
        raise SessionError(f"{text!r} is no amount of memory: write 512M or 2G")
    return int(amount * (1 << units.get(unit, 0)))


def choose_ranks(ranks: Iterable[int] | int | None, world_size: int) -> tuple[int, ...]:
    """The ranks that are meant, ascending; None means all.

    Raises
    ------
    SessionError
        If there are no such ranks.
    """
    if ranks is None:
        return tuple(range(world_size))
    chosen = sorted({ranks} if isinstance(ranks, int) else set(ranks))
    if not chosen:
        raise SessionError("no rank was chosen: leave ranks out to run on all")
    for rank in chosen:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise SessionError(f"{rank!r} is no rank number")
        if not 0 <= rank < world_size:
            raise SessionError(
                f"there is no rank {rank}: this session has ranks 0 to {world_size - 1}"
            )
    return tuple(chosen)
