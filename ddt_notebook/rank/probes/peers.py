"""Finds out to which user the other end of a connection on this machine belongs.

Neither gloo nor TCPStore asks who connects. On Linux, the kernel tells the user of any socket.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_ANY_INTERFACE = struct.pack("=I", 0) + b"\xff" * 8
_LOOPBACK = "127."
#: Where the answer holds the user and the number of the socket: behind its header, four bytes, the
#: two ends and three numbers.
_USER_AT = _HEADER.size + 4 + 48 + 12
_USER_AND_SOCKET = struct.Struct("=II")


def owner(connection: socket.socket) -> int | None:
    """The user of the other end on this machine; None if that is closed or the system is silent."""
    with suppress(OSError):
        return _user_of(connection.getpeername(), connection.getsockname())
    return None


def stranger(connection: socket.socket) -> int | None:
    """The user of the other end, if that is neither this process's user nor root.

    None as well for an end on another machine, or if the system does not tell.
    """
    with suppress(OSError):
        near, far = connection.getsockname(), connection.getpeername()
        if connection.family == socket.AF_INET and far[0].startswith(_LOOPBACK):
            user = _user_of(far, near)
            return None if user in (None, 0, os.getuid(), os.geteuid()) else user
    return None


def _user_of(own: tuple[str, int], other: tuple[str, int]) -> int | None:
    """The user of the socket that has these two ends, its own first."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    (own_address, own_port), (other_address, other_port) = own, other
    ends = struct.pack("!HH", own_port, other_port)
    ends += socket.inet_aton(own_address).ljust(16, b"\0")
    ends += socket.inet_aton(other_address).ljust(16, b"\0")
    every_state = 0xFFFFFFFF
    asked = _ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, every_state) + ends + _ANY_INTERFACE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0) + asked)
        answer = kernel.recv(8192)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _BY_FAMILY or len(answer) < _USER_AT + _USER_AND_SOCKET.size:
        return None
    user, number = _USER_AND_SOCKET.unpack_from(answer, _USER_AT)
    return int(user) if number else None  # of what its process has closed, the user is told as 0
