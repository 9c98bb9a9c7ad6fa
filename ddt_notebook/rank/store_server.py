"""Serves the TCPStore of a session; on Linux only to processes of the same user, and to root.

PyTorch's TCPStore asks nobody who connects. So it listens at a Unix socket whose name is removed
at once, and this process passes on what comes at the TCP port, after it asked the system who is at
the other end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from .probes.peers import owner

_CHUNK_BYTES = 1 << 16
_BACKLOG = 1024
#: Limit for PyTorch's store to connect to itself when it starts.
_LIMIT = timedelta(seconds=10)
_LOOPBACK = "127.0.0.1"
#: The second byte of the port is one of these, so that tools can print a name that has it.
_PLAIN = frozenset(range(ord("!"), ord("~"))) - {ord("/")}
_MOST_TRIES = 100


def listen(address: str) -> socket.socket:
    """A socket that listens at a free port; its two bytes can be a file's name, if possible."""
    tries = 0
    while True:
        listener, tries = socket.socket(), tries + 1
        listener.bind((address, 0))
        if _can_be_a_name(listener) or tries == _MOST_TRIES:
            listener.listen(_BACKLOG)
            return listener
        listener.close()


def serve(listener: socket.socket, folder: str) -> None:
    """Serve a store at this socket until the process is killed.

    Parameters
    ----------
    listener
        From `listen`.
    folder
        A folder that only this user can read, for as long as the store starts; empty for a
        temporary one.
    """
    local = listener.getsockname()[0] == _LOOPBACK
    if local and _can_be_a_name(listener) and _system_tells_users():
        try:
            asyncio.run(_serve_own_user(listener.dup(), folder))
        except Exception:  # noqa: BLE001  (another torch, a full folder: as PyTorch does it)
            traceback.print_exc()
            _end_connections(listener)
    at = listener.getsockname()  # afterwards, the object has no socket
    store = _store(at, listener.detach(), libuv=True)  # noqa: F841  (serves while it exists)
    while True:
        signal.pause()


def _system_tells_users() -> bool:
    """Whether it says to whom a connection belongs; else the store would refuse everybody."""
    if sys.platform != "linux":
        return False
    with socket.socket() as server, socket.socket() as client:
        server.bind((_LOOPBACK, 0))
        server.listen()
        client.connect(server.getsockname())
        with server.accept()[0] as accepted:
            return owner(accepted) is not None


def _end_connections(listener: socket.socket) -> None:
    """End those that were taken while it was tried; their clients connect again."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as taken:
            if taken.getsockname() == listener.getsockname():
                taken.getpeername()  # the listener itself has none
                taken.shutdown(socket.SHUT_RDWR)


async def _serve_own_user(listener: socket.socket, folder: str) -> None:
    """Raises an error if that cannot be done here; else it does not return."""
    descriptor, name = _unix_listener(listener, folder)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if owner(writer.get_extra_info("socket")) not in (0, os.getuid(), os.geteuid()):
            writer.close()
            return
        with suppress(OSError):
            from_store, to_store = await asyncio.open_unix_connection(name)
            await asyncio.gather(_copy(reader, to_store), _copy(from_store, writer))

    async with await asyncio.start_server(pass_on, sock=listener, backlog=_BACKLOG):
        # it connects to itself through the port, and so shows that all this works here
        at = listener.getsockname()
        store = await asyncio.to_thread(_store, at, descriptor, libuv=False)  # noqa: F841
        # it warns of each connection that a Unix socket has no such option as TCP_NODELAY
        with suppress(OSError), Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
        await asyncio.Event().wait()


def _unix_listener(port_from: socket.socket, folder: str) -> tuple[int, str]:
    """The descriptor of a Unix socket that listens, and a path that leads only this process there.

    A store that does not use libuv takes any socket that listens, if the port stands where the
    address of a TCP socket has it: there, a Unix socket has the first two bytes of its name.
    """
    with tempfile.TemporaryDirectory(dir=folder or None) as private:
        name = _bytes_of(port_from)
        os.chdir(private)
        try:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(name)
            listener.listen(_BACKLOG)
            here = os.open(name, os.O_PATH)
        finally:
            os.chdir("/")
    return listener.detach(), f"/proc/self/fd/{here}"


def _can_be_a_name(listener: socket.socket) -> bool:
    high, low = _bytes_of(listener)
    return high != ord("/") and low in _PLAIN


def _bytes_of(listener: socket.socket) -> bytes:
    port: int = listener.getsockname()[1]
    return port.to_bytes(2, "big")


def _store(at: tuple[str, int], descriptor: int, *, libuv: bool) -> object:
    import torch.distributed as dist

    address, port = at
    return dist.TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=descriptor,
        use_libuv=libuv,
        timeout=_LIMIT,
    )


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()
