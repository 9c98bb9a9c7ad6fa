"""Finds out from the operating system (Linux) what a thread waits for.

The monitor's thread calls it. A thread that runs on a processor waits for nothing.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from threading import get_native_id

from ...model.rank import WaitsFor

#: Numbers of system calls, from Linux' ``arch/x86/entry/syscalls/syscall_64.tbl`` and
#: ``include/uapi/asm-generic/unistd.h``.
_X86_64: dict[int, WaitsFor] = {
    **dict.fromkeys((35, 230), "time"),  # nanosleep, clock_nanosleep
    **dict.fromkeys((0, 17, 19, 295), "file"),  # read, pread64, readv, preadv
    202: "lock",  # futex
    **dict.fromkeys((72, 73), "file lock"),  # fcntl, flock
    **dict.fromkeys((61, 247), "process"),  # wait4, waitid
    # poll, select, recvfrom, recvmsg, epoll_wait, pselect6, ppoll, epoll_pwait
    **dict.fromkeys((7, 23, 45, 47, 232, 270, 271, 281), "data"),
}
_AARCH64: dict[int, WaitsFor] = {
    **dict.fromkeys((101, 115), "time"),
    **dict.fromkeys((63, 65, 67, 69), "file"),
    98: "lock",
    **dict.fromkeys((25, 32), "file lock"),
    **dict.fromkeys((95, 260), "process"),
    **dict.fromkeys((22, 72, 73, 207, 212), "data"),
}
_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(platform.machine(), {})


def thread_waits_for(thread: int) -> tuple[WaitsFor, str]:
    """What a thread of this process waits for, and the path of the file that it reads or locks.

    Two empty strings if it runs, or if that is not known.

    Parameters
    ----------
    thread
        Its number in the operating system; that of the main thread is the process's.
    """
    with suppress(OSError, ValueError):
        shown = Path(f"/proc/self/task/{thread}/syscall").read_text(encoding="ascii")
        number, _, arguments = shown.partition(" ")
        waits_for = _CALLS.get(int(number), "")  # "running" is not a number
        if waits_for not in ("file", "file lock"):
            return waits_for, ""
        descriptor = int(arguments.split()[0], 16)
        file = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if file.startswith("/"):
            return waits_for, file
        return "data", ""  # a pipe or a socket
    return "", ""


def other_threads_run() -> bool:
    """Whether a thread of this process besides the calling one runs, or waits for a processor.

    TensorFlow's operations run in threads of its own, and so only where it is imported is that
    looked at. True if it is not known.
    """
    if "tensorflow" not in sys.modules:
        return True
    own = str(get_native_id())
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            if thread.name == own:
                continue
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                state = (thread / "stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
                if state in ("R", "D"):
                    return True
        return False
    return True


def holder_of_lock() -> int | None:
    """The process that holds the file lock for which this process waits; None if not known.

    ``/proc/locks`` lists each lock, and below it the processes that wait for it with an arrow
    (proc(5)). It does not list locks that another host holds on a shared file system.
    """
    waiter = str(os.getpid())
    holder = ""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, *fields = line.split()
            if fields[0] != "->":
                holder = fields[3]
            elif fields[4] == waiter:
                return int(holder) if int(holder) > 0 else None
    return None
