"""Limits on a student's cell: what its ranks may start, write, use and reach.

`enclose` runs in each rank before the cell. Its audit hook cannot be removed by Python code, but
code in C can bypass it. Where the kernel permits it, `leave_network` also moves the whole grader to
its own network namespace, and the kernel enforces the limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
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
    """Limit what this process may start, write, use and reach from now on.

    Parameters
    ----------
    folder
        The working directory.
    processes
        The number of processes that it may start.
    file_bytes
        The largest file that it may write, in bytes.
    cpu_seconds
        CPU time after which the kernel ends it, in seconds.
    user_processes
        The number of processes and threads that this user may have (RLIMIT_NPROC); None for no
        limit.
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
        with contextlib.suppress(ValueError, OSError):  # there is a lower limit already
            resource.setrlimit(what, (limit, limit))
    sys.addaudithook(_hook(processes))


def _hook(processes: int) -> Callable[[str, tuple[Any, ...]], None]:
    left = processes

    def watch(event: str, details: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _STARTS:
            left -= 1
            if left < 0:
                raise PermissionError(f"a graded cell may start at most {processes} processes")
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
            raise PermissionError("a graded cell cannot reach other machines")


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _refuse_unless_own(event: str, details: tuple[Any, ...]) -> None:
    """Allow signals only to this process and to those that it started."""
    with contextlib.suppress(ProcessLookupError, TypeError):
        own, target = os.getpgrp(), details[0]
        if target not in (0, own) and (event == "os.killpg" or os.getpgid(target) != own):
            raise PermissionError("a graded cell may only signal its own processes")


def leave_network() -> bool:
    """Move this process to a network namespace with only a loopback interface (Linux).

    The process must have one thread and no children yet. It cannot move back.

    Returns
    -------
    bool
        Whether the kernel permitted it; if not, nothing has changed.
    """
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
            return False
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with contextlib.suppress(OSError):  # files still belong to this user without a map
                Path("/proc/self", name).write_text(text)
    _bring_up("lo")
    return True


def _bring_up(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14s", interface.encode(), 0, b"")
        found = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack("16sH14s", found)[1] | _IFF_UP
        fcntl.ioctl(
            any_socket, _SIOCSIFFLAGS, struct.pack("16sH14s", interface.encode(), flags, b"")
        )
