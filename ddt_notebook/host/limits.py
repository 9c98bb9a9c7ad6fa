"""Checks a session's arguments: how many ranks fit into memory, sizes, devices and ranks."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from .. import system_memory
from ..model.frameworks import described, known_frameworks, prepared
from ..spelling import similar_names
from .errors import SessionError

#: Private memory of one rank after a few steps of a small model, measured by benchmarks/memory.py.
RANK_BYTES = {"fork": 60 << 20, "spawn": 260 << 20}
_MOST_SIMULATED = 64
#: A limit below this is a forgotten unit.
_LEAST_LIMIT = 1 << 20
#: Of other names, PyTorch decides: vendors add backends, whose names mostly end with ``ccl``.
_BACKENDS = ("gloo", "nccl", "mpi", "ucc")
#: What the drivers of GPUs that nccl (or ROCm's own) can use make in ``/dev``; ``dxg`` is WSL's.
_GPU_FILES = ("nvidia*", "kfd", "dxg", "nvhost*", "nvgpu*")
#: With so many ranks for each processor, they answer late because they wait for one another.
_CROWDED = 8


def free_memory() -> int:
    """Bytes that this process tree may still use, by the machine, the cgroup and MEM_LIMIT."""
    free = [int(psutil.virtual_memory().available)]
    cgroup = system_memory.cgroup()
    if cgroup is not None and cgroup.limit_bytes is not None:
        free.append(cgroup.limit_bytes - cgroup.used_bytes)
    hub_limit = os.environ.get("MEM_LIMIT", "")
    if hub_limit.isdigit():
        used = cgroup.used_bytes if cgroup is not None else system_memory.resident_bytes()
        free.append(int(hub_limit) - used)
    return max(0, min(free))


def fewer_ranks(count: int) -> str:
    """Advice if these ranks of one machine are many for its processors, else an empty text."""
    processors = os.cpu_count() or 1
    if count < _CROWDED * processors:
        return ""
    most = _CROWDED * processors - 1
    return f"{count} ranks are many for {processors} processors; start {most} or fewer"


def check_ranks(count: int, start_method: str) -> None:
    """Refuse a number of ranks below 1, or one for which there is not enough memory.

    Raises
    ------
    SessionError
        If it refuses; the text is one line that includes what to do.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise SessionError(
            f"the number of ranks is a whole number, not {count!r}", "ddt.Session(2)"
        )
    if count < 1:
        what = f"a session has at least 1 rank, not {count}"
        raise SessionError(what, "ddt.Session(2)", reason="no ranks")
    each, free = RANK_BYTES[start_method], free_memory()
    if count * each > free:
        most = free // each
        who = "1 rank needs" if count == 1 else f"{count} ranks need"
        raise SessionError(
            f"{who} about {count * each / 2**30:.1f} GB and {free / 2**30:.1f} GB are free",
            f"start {most} or fewer" if most else "free some memory first",
            reason="memory",
            fitting_ranks=most,
        )


def parse_bytes(text: str | int) -> int:
    """``"512M"``, ``"2G"`` or a number of bytes.

    Raises
    ------
    SessionError
        If it is neither.
    """
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    body = str(text).strip().upper().removesuffix("B").removesuffix("I")
    unit = body[-1:] if body[-1:] in units else ""
    try:
        amount = float(body.removesuffix(unit))
    except ValueError:
        amount = -1.0
    if not 0 < amount < math.inf:
        raise SessionError(f"{text!r} is not an amount of memory", "write 512M or 2G")
    return int(amount * (1 << units.get(unit, 0)))


def parse_limit(text: str | int) -> int:
    """The bytes that a rank may allocate, from ``"512M"``.

    Raises
    ------
    SessionError
        If it is no amount of memory, or a process cannot work with so little.
    """
    amount = parse_bytes(text)
    if amount < _LEAST_LIMIT:
        given = str(text).strip()
        raise SessionError(
            f"a rank cannot work within {amount:,} bytes",
            f"write {given}G for gigabytes" if given.isdigit() else "write 512M or 2G",
        )
    return amount


def check_backend(name: str, *, here: bool) -> None:
    """Refuse a backend that is misspelt, or needs a GPU where there is none.

    Parameters
    ----------
    name
        What ``backend`` was given; PyTorch refuses others that it does not know.
    here
        Whether all ranks run on this machine.
    """
    known = name in _BACKENDS or name.endswith("ccl")
    if not known and (near := similar_names(name, _BACKENDS)):
        raise SessionError(f"there is no backend {name!r}", f"did you mean {near[0]}?")
    if name == "nccl" and here and sys.platform == "linux" and not _has_gpu():
        raise SessionError(
            "the backend nccl needs a GPU, and this machine has none",
            "`--backend gloo` runs on the CPU; `--simulate cuda:N` runs code for N GPUs on the CPU",
        )


def _has_gpu() -> bool:
    return any(any(Path("/dev").glob(pattern)) for pattern in _GPU_FILES)


#: A note of a run that failed or hung.
GPUS_SIMULATED = "the GPUs are simulated: devices are checked, the CPU computes"


def parse_simulated(text: str | None, backend: str, device: str | None) -> int:
    """The number of GPUs in ``"cuda:2"``; 0 if none are simulated.

    Raises
    ------
    SessionError
        If it cannot be simulated, or the session would use real GPUs as well.
    """
    if text is None:
        return 0
    kind, _, count = text.partition(":")
    if kind != "cuda" or not count.isdigit() or not 1 <= int(count) <= _MOST_SIMULATED:
        raise SessionError(
            f"{text!r} cannot be simulated",
            f"write cuda:2 for 2 GPUs (at most {_MOST_SIMULATED})",
        )
    if device is not None or backend != "gloo":
        given = f"device {device}" if device is not None else f"backend {backend}"
        raise SessionError(f"{text} is simulated on the CPU, with gloo", f"leave out {given}")
    return int(count)


def check_framework(name: str, *, on_hosts: str | None, simulated: bool) -> None:
    """Refuse a framework for which ranks cannot be prepared here.

    Parameters
    ----------
    name
        What ``framework`` was given.
    on_hosts
        The framework for which other hosts are prepared, on which the session runs; None if it
        runs on this machine.
    simulated
        Whether it simulates GPUs.

    Raises
    ------
    SessionError
        If it is not known, not installed, or combined with what it cannot have.
    """
    known, title = prepared().get(name), described(name).title
    if known is None:
        raise _not_prepared(name)
    if on_hosts is None and not is_installed(known.modules[0]):
        raise SessionError(f"{title} is not installed", known.install)
    if simulated:
        raise SessionError(f"ranks for {title} run without simulated GPUs", "leave --simulate out")
    if on_hosts is not None and not known.several_hosts:
        raise SessionError(
            f"ranks for {title} run on this machine only", "leave the other hosts out"
        )
    if on_hosts not in (None, name):
        raise SessionError(
            f"the hosts are not prepared for {title}", f'join them with framework="{name}"'
        )


def _not_prepared(name: str) -> SessionError:
    """The error for a framework for which no ranks are prepared."""
    begun = name.casefold().partition("-")[0]
    for one in known_frameworks().values():
        if one.preparation is None and begun == one.name.partition("-")[0]:
            without_gpus = "; without GPUs, write --simulate cuda:4 for 4 ranks"
            return SessionError(
                f"{one.title} trains through torch.distributed, so its ranks need no preparation",
                "leave --framework out" + (without_gpus if one.asks_for_gpus else ""),
            )
    near = similar_names(name, prepared())
    meant = f"did you mean {near[0]}" if near else f"choose {' or '.join(prepared())}"
    return SessionError(f"there is no framework {name!r} to prepare ranks for", meant)


def is_installed(module: str) -> bool:
    """Whether a module can be imported; a folder that only has its name is none."""
    found = importlib.util.find_spec(module)
    return found is not None and found.origin is not None


def choose_ranks(ranks: Iterable[int] | int | None, world_size: int) -> tuple[int, ...]:
    """The chosen ranks in ascending order; None chooses all.

    Raises
    ------
    SessionError
        If a rank is not one of the session's, or no rank is chosen.
    """
    if ranks is None:
        return tuple(range(world_size))
    chosen = sorted({ranks} if isinstance(ranks, int) else set(ranks))
    if not chosen:
        raise SessionError("no rank was chosen", "leave ranks out to run on all")
    for rank in chosen:
        if isinstance(rank, bool) or not isinstance(rank, int):
            raise SessionError(f"{rank!r} is not a rank number")
        if not 0 <= rank < world_size:
            raise SessionError(
                f"there is no rank {rank}: this session has ranks 0 to {world_size - 1}"
            )
    return tuple(chosen)
