"""The memory of a process and of its cgroup, as the operating system reports it.

The notebook asks about its ranks, and a rank about itself.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

#: Files of a cgroup: limit, usage, and the statistic of reclaimable cache, first those of version
#: 2, then those of version 1.
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The memory of the cgroup of this process, in bytes.

    Attributes
    ----------
    used_bytes
        What its processes use, without reclaimable cache.
    limit_bytes
        What they may use, None without a limit.
    """

    used_bytes: int
    limit_bytes: int | None


def cgroup() -> Cgroup | None:
    """The cgroup of this process; None if it cannot be read, such as outside Linux."""
    for folder, limit, usage, cache in _CGROUPS:
        with suppress(OSError, ValueError):
            used = int((folder / usage).read_text())
            used -= _figure(folder / "memory.stat", cache) or 0
            allowed = (folder / limit).read_text().strip()
            return Cgroup(used, int(allowed) if allowed != "max" else None)
    return None


def resident_bytes(pid: int | None = None) -> int:
    """Resident set size of a process, by default this one.

    Raises
    ------
    psutil.NoSuchProcess
        If the process has ended.
    """
    return int(psutil.Process(pid).memory_info().rss)


def pss_bytes(pid: int | None = None) -> int | None:
    """Proportional set size, which divides shared pages among the processes that share them.

    None if the system does not report it (Linux only).

    Raises
    ------
    psutil.NoSuchProcess
        If the process has ended.
    """
    with suppress(AttributeError, psutil.AccessDenied):
        return int(psutil.Process(pid).memory_full_info().pss)
    return None


def data_bytes(pid: int | str = "self") -> int | None:
    """Private memory that a process has mapped, as RLIMIT_DATA counts it; None if unknown."""
    return _kilobytes(pid, "VmData:")


def peak_bytes(pid: int | str = "self") -> int | None:
    """The largest resident set of a process so far, or since its peak was reset."""
    return _kilobytes(pid, "VmHWM:")


def _kilobytes(pid: int | str, name: str) -> int | None:
    with suppress(OSError):
        figure = _figure(Path(f"/proc/{pid}/status"), name)
        return figure * 1024 if figure is not None else None
    return None


def _figure(path: Path, name: str) -> int | None:
    """The number after a name, in a file with one name on each line."""
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:1] == [name]:
            return int(words[1])
    return None
