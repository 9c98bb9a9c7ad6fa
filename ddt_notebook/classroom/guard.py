"""Limits on a student's cell, set in each rank before it runs.

An audit hook cannot be taken away by Python code again; code in C can go around it. Where the whole
grader lives in a network namespace of its own (`isolation`), the kernel enforces that, too.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

_STARTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
_NET = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_NAMES = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
_KILLS = frozenset({"os.kill", "os.killpg"})


def enclose(
    folder: str,
    *,
    processes: int,
    file_bytes: int,
    cpu_seconds: int,
    user_processes: int | None,
) -> None:
    """Bound what this process may start, write, use and reach from now on.

    Parameters
    ----------
    folder
        The working directory.
    processes
        How many processes it may start.
    file_bytes
        Size of a file that it may write.
    cpu_seconds
        Processor time, after which the kernel ends it.
    user_processes
        Processes and threads of this user in all (RLIMIT_NPROC); None: no such limit.
    """
    os.chdir(folder)
    for what, limit in (
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, user_processes),
    ):
        if limit is None:
            continue
        with contextlib.suppress(ValueError, OSError):  # a lower limit holds already
            resource.setrlimit(what, (limit, limit))
    sys.addaudithook(_hook(processes))


def _hook(processes: int) -> Callable[[str, tuple[Any, ...]], None]:
    left = processes

    def watch(event: str, details: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _STARTS:
            left -= 1
            if left < 0:
                raise PermissionError(f"a graded cell may start {processes} processes, no more")
        elif event in _NET:
            _refuse_unless_local(details[1] if len(details) > 1 else None)
        elif event in _NAMES:
            _refuse_unless_local(details[:1])
        elif event in _KILLS:
            _refuse_unless_own(event, details)

    return watch


def _refuse_unless_local(address: Any) -> None:
    if isinstance(address, tuple) and address:
        host = address[0]
        text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
        if text not in ("", "localhost") and not _is_loopback(text):
            raise PermissionError("a graded cell has no network beyond this machine")


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _refuse_unless_own(event: str, details: tuple[Any, ...]) -> None:
    """Signals may go to this process and to those that it started."""
    with contextlib.suppress(ProcessLookupError, TypeError):
        own, target = os.getpgrp(), details[0]
        if target not in (0, own) and (event == "os.killpg" or os.getpgid(target) != own):
            raise PermissionError("a graded cell may not signal processes of others")
