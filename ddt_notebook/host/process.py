"""A process on this machine, as the operating system shows it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil

from .. import system_memory

#: The unit in which the system counts processor time.
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class LocalProcess:
    """A process on this machine.

    Parameters
    ----------
    process
        Its process id, or the process as psutil knows it.
    """

    host = ""
    host_lost = False

    def __init__(self, process: int | psutil.Process) -> None:
        self._process = psutil.Process(process) if isinstance(process, int) else process
        self.pid: int = self._process.pid

    @property
    def exists(self) -> bool:
        """Whether the operating system still lists it."""
        return bool(psutil.pid_exists(self.pid))

    @property
    def ending(self) -> bool:
        """Whether it has ended or ends now."""
        try:
            return self._process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.Error:
            return True

    @property
    def stopped(self) -> bool:
        """Whether the operating system has suspended it."""
        try:
            return bool(self._process.status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def used(self) -> tuple[float, float]:
        """The processor time that it has used, and when that was measured, in seconds."""
        used_s = 0.0
        with suppress(psutil.Error):
            used_s = _used_s(self.pid)
        return used_s, time.monotonic()

    def memory_share(self) -> int:
        """Its share of memory in bytes (PSS; RSS if the system does not report PSS)."""
        with suppress(psutil.NoSuchProcess):
            return system_memory.pss_bytes(self.pid) or system_memory.resident_bytes(self.pid)
        return 0

    def resident_bytes(self) -> int | None:
        """Its resident set size; None if it has ended."""
        with suppress(psutil.Error):
            return system_memory.resident_bytes(self.pid)
        return None

    def allocated_bytes(self, cap: int) -> int | None:
        """What it has allocated since its limit was set to ``cap`` bytes above its use at start."""
        with suppress(psutil.Error, AttributeError):  # it has ended, or this is not Linux
            limit, _ = self._process.rlimit(psutil.RLIMIT_DATA)
            used = system_memory.data_bytes(self.pid)
            if used is not None and limit != psutil.RLIM_INFINITY:
                return max(0, used - (int(limit) - cap))
        return None


def _used_s(pid: int) -> float:
    """The processor time of a process; a watcher of many ranks asks often, and psutil takes long.

    Raises
    ------
    psutil.Error
        If the process has ended.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:  # not on Linux, or it has ended
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    try:
        # proc(5): the name may hold anything; the times of the user and the system follow it
        fields = os.read(descriptor, 4096).rpartition(b")")[2]
    except OSError as error:
        raise psutil.NoSuchProcess(pid) from error
    finally:
        os.close(descriptor)
    user, system = fields.split(None, 13)[11:13]
    return (int(user) + int(system)) / _TICKS_A_SECOND
