"""Checks limits of this machine: files, processes, shared memory, memory, threads."""

from __future__ import annotations

import functools
import os
import resource
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..host.host_facts import SHARED
from ..host.limits import RANK_BYTES, free_memory
from ..model.preflight import Check, Verdict

#: A job of a few ranks with DataLoader workers can need this many.
_FEW_FILES, _FEW_PROCESSES = 1024, 512
_LITTLE_SHARED = 1 << 30
_GIB = 1 << 30

_check = functools.partial(Check, "resources")


def resource_checks(ranks: int, threads: int, environment: Mapping[str, str]) -> Iterator[Check]:
    """Check whether this machine can hold a number of ranks.

    Parameters
    ----------
    ranks
        How many ranks.
    threads
        The number of threads that an operation of torch uses in each rank.
    environment
        The environment variables, for ``OMP_NUM_THREADS``.
    """
    yield _limit("open files", resource.RLIMIT_NOFILE, _FEW_FILES, "ulimit -n 65536")
    yield _limit("processes", resource.RLIMIT_NPROC, _FEW_PROCESSES, "ulimit -u 8192")
    if SHARED.is_dir():
        usage = shutil.disk_usage(SHARED)
        yield shared_memory_check(usage.total, usage.free)
    yield _memory(ranks)
    yield _threads(ranks, threads, environment)
    yield _locked_memory()


def _limit(name: str, kind: int, few: int, fix: str) -> Check:
    soft, hard = resource.getrlimit(kind)
    if soft == resource.RLIM_INFINITY:
        return _check(name, "ok", "no limit")
    if soft >= few:
        return _check(name, "ok", f"at most {soft}")
    meaning = "DataLoader workers and the connections of many ranks can use them up"
    possible = hard == resource.RLIM_INFINITY or hard > soft
    return _check(
        name,
        "warning",
        f"at most {soft}",
        meaning,
        fix if possible else "ask the administrator of the machine",
    )


def shared_memory_check(total: int, free: int) -> Check:
    """Check whether enough shared memory is free."""
    seen = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free in {SHARED}"
    if free >= _LITTLE_SHARED:
        return _check("shared memory", "ok", seen)
    return _check(
        "shared memory",
        "warning",
        seen,
        "DataLoader workers and NCCL pass tensors through it; when it is full, workers die with a "
        "bus error",
        "give the container more (docker run --shm-size=8g), or use num_workers=0",
    )


def _memory(ranks: int) -> Check:
    free = free_memory()
    each = free / ranks
    seen = f"{free / _GIB:.1f} GiB free: {each / (1 << 20):.0f} MiB for each of {ranks} ranks"
    if each >= 4 * RANK_BYTES["fork"]:
        return _check("memory", "ok", seen)
    least = RANK_BYTES["fork"] >> 20
    verdict: Verdict = "warning" if each >= RANK_BYTES["fork"] else "error"
    meaning = f"an idle rank takes about {least} MiB, so little is left for the model and the data"
    return _check("memory", verdict, seen, meaning, "use fewer ranks or end other programs")


def _threads(ranks: int, threads: int, environment: Mapping[str, str]) -> Check:
    processors = len(os.sched_getaffinity(0))
    wanted = ranks * threads
    seen = f"{ranks} ranks × {threads} threads on {processors} processors"
    if wanted <= max(processors, ranks):
        return _check("threads", "ok", seen)
    if "OMP_NUM_THREADS" not in environment:
        meaning = "torchrun and sessions set 1 thread for each rank; other launchers do not"
        return _check("threads", "ok", seen, meaning)
    each = max(1, processors // ranks)
    meaning = "the threads share the processors, so every step is slower"
    return _check("threads", "warning", seen, meaning, f"set OMP_NUM_THREADS={each}")


def _locked_memory() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return _check("locked memory", "ok", "no limit")
    seen = f"at most {soft // 1024} KiB"
    if not Path("/sys/class/infiniband").is_dir():
        return _check("locked memory", "ok", seen)
    meaning = "InfiniBand locks its buffers in memory; NCCL fails with 'Cannot allocate memory'"
    return _check("locked memory", "error", seen, meaning, "ulimit -l unlimited")
