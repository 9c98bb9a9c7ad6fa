"""Takes the network away from this process and from all that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


def leave_network() -> bool:
    """Move to a network namespace that has nothing but a loopback interface (Linux).

    For a process that has one thread and has started nothing yet; it cannot go back.

    Returns
    -------
    bool
        Whether the kernel permits it; if not, nothing has changed.
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
            with contextlib.suppress(OSError):  # without a map files stay ours all the same
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
