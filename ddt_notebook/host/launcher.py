"""The notebook's handle on its fork server."""

from __future__ import annotations

import atexit
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..model.frameworks import described, prepared
from ..wire.messages import (
    ChildEnded,
    Envelope,
    Failed,
    Message,
    ServerReady,
    Started,
    StartRank,
    StartStore,
    decode,
    encode,
)
from ..wire.recording_switch import records
from .errors import SessionError
from .surroundings import temporary_folder

#: A cold start imports torch from disk, which can take long on a busy machine.
_START_LIMIT_S = 120.0
_REPLY_LIMIT_S = 10.0
#: By whether it forks ranks, the framework that it has imported, and whether its ranks record.
_handles: dict[tuple[bool, str, bool], ForkServerHandle] = {}
_starting = threading.Lock()
# a child that is forked in another thread would find the lock taken for ever
os.register_at_fork(
    before=_starting.acquire,
    after_in_parent=_starting.release,
    after_in_child=_starting.release,
)


class ForkServerHandle:
    """Starts a fork server and talks to it.

    Parameters
    ----------
    warm
        True for a server that forks ranks; False for a server that spawns each rank in a new
        interpreter.
    framework
        A framework that it imports for its ranks beside torch; empty for none.
    """

    def __init__(self, *, warm: bool, framework: str = "") -> None:
        self._framework = framework
        self._owner = os.getpid()
        self._lock = threading.Lock()  # for the socket and what comes from it
        self._socket, theirs = socket.socketpair()
        self._pending = b""
        self._replies: dict[int, Message] = {}
        self._ended: dict[int, int] = {}  # by pid: exit code, negative for a signal
        self._requests = 0
        self._ready = False
        self._lost = False
        self._log = tempfile.TemporaryFile(prefix="ddt-server-", dir=temporary_folder())  # noqa: SIM115
        # with -P, files of the working folder cannot stand in for modules that the server imports
        command = [sys.executable, "-P", "-m", "ddt_notebook.rank.forkserver"]
        if framework:
            command += ["--framework", framework]
        self._process = subprocess.Popen(
            command if warm else [*command, "--cold"],
            stdin=theirs.fileno(),
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Jupyter signals its whole process group
            env=_environment(framework),
        )
        theirs.close()
        os.register_at_fork(after_in_child=self._forget_in_child)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it still runs and belongs to this process."""
        return not self._lost and self._owner == os.getpid() and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it can start ranks by now."""
        if not self._ready:
            self._receive(0.0)
        return self._ready

    def fileno(self) -> int:
        """The socket, for selectors: readable when `ended` may return new ones."""
        return self._socket.fileno()

    def wait_ready(self) -> None:
        """Wait until it can start ranks.

        Raises
        ------
        SessionError
            If it does not start.
        """
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._ready:
            if self._lost:
                raise SessionError(f"the ranks' parent process did not start: {self.said()}")
            if time.monotonic() > deadline:  # what it printed meanwhile is not the reason
                title = described(self._framework).title
                what = f"torch and {title}" if self._framework else "torch"
                raise SessionError(
                    f"the import of {what} has taken {_START_LIMIT_S:.0f} s and has not ended",
                    "on a busy machine, start the ranks again: the import goes on meanwhile",
                )
            self._receive(0.2)

    def start(self, request: StartRank | StartStore, sockets: tuple[int, ...] = ()) -> Started:
        """Start a process, which inherits these sockets.

        Raises
        ------
        SessionError
            If the server is gone, does not answer, or could not start it.
        """
        started = self.request(request, sockets)
        if not isinstance(started, Started):
            why = started.error if isinstance(started, Failed) else type(started).__name__
            raise SessionError(f"a rank could not be started: {why}")
        return started

    def request(self, message: Message, descriptors: tuple[int, ...] = ()) -> Message:
        """Send a request and wait for the answer.

        Raises
        ------
        SessionError
            If the server is gone or does not answer.
        """
        self.wait_ready()
        with self._lock:
            self._requests += 1
            number = self._requests
            try:
                line = encode(Envelope(message, number)) + b"\n"
                socket.send_fds(self._socket, [line], descriptors)
            except OSError as error:
                self._lost = True
                raise SessionError(f"the ranks' parent process is gone: {self.said()}") from error
        deadline = time.monotonic() + _REPLY_LIMIT_S
        while number not in self._replies:
            if not self._lost and time.monotonic() > deadline:
                self._process.kill()  # the next start begins with another one
                self._lost = True
            if self._lost:
                raise SessionError(f"the ranks' parent process does not answer: {self.said()}")
            self._receive(0.2)
            if number not in self._replies and self._process.poll() is None:
                self._process.send_signal(signal.SIGCONT)  # a cell may have stopped it
        return self._replies.pop(number)

    def ended(self, pids: Iterable[int]) -> dict[int, int]:
        """Those of these children that have ended: exit code, negative for a signal."""
        self._receive(0.0)
        with self._lock:
            return {pid: self._ended[pid] for pid in pids if pid in self._ended}

    def close(self) -> None:
        """End the server and every rank that it started."""
        if self._owner != os.getpid():
            return
        self._socket.close()
        try:
            self._process.wait(3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # on a very busy machine
                self._process.wait(10.0)
        self._log.close()
        self._lost = True

    def _receive(self, timeout_s: float) -> None:
        """Take what has come; threads wait at the same time, and one of them takes it for all."""
        if timeout_s:
            select.select([self._socket], [], [], timeout_s)
        with self._lock:
            while select.select([self._socket], [], [], 0.0)[0]:
                try:
                    data = self._socket.recv(1 << 16)
                except ConnectionResetError:  # it ended before it read a request
                    data = b""
                if not data:
                    self._lost = True
                    return
                *lines, self._pending = (self._pending + data).split(b"\n")
                for line in lines:
                    self._take(decode(line)[0])

    def _take(self, received: Envelope) -> None:
        match received.message:
            case ChildEnded(pid=pid, status=status):
                self._ended[pid] = status
            case ServerReady():
                self._ready = True
            case answer:
                if isinstance(answer, Started):
                    self._ended.pop(answer.pid, None)  # of an earlier process with this number
                self._replies[received.number] = answer

    def said(self) -> str:
        """The last line that it printed."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}"

    def _forget_in_child(self) -> None:
        # a child of the notebook must not keep the socket open: its end shows that we have ended
        self._socket.close()


def _environment(framework: str = "") -> dict[str, str]:
    """The environment variables that must be set before torch and a framework are imported."""
    loopback = "lo0" if platform.system() == "Darwin" else "lo"
    package_parent = str(Path(__file__).parent.parent.parent)
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    defaults = prepared()[framework].environment if framework else {}
    return {**defaults, **os.environ} | {
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", loopback),
        "TORCH_FR_BUFFER_SIZE": os.environ.get("TORCH_FR_BUFFER_SIZE", "2000"),
        # shows the names of unused parameters; DETAIL would crash DDP on gloo
        "TORCH_DISTRIBUTED_DEBUG": "INFO",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def server(*, warm: bool, framework: str = "") -> ForkServerHandle:
    """The notebook's fork server, which all its sessions share; starts it if necessary.

    Sessions for a framework have a server of their own: it is larger and takes longer to start.
    """
    with _starting:
        key = warm, framework, records()
        handle = _handles.get(key)
        if handle is None or not handle.usable:
            handle = _handles[key] = ForkServerHandle(warm=warm, framework=framework)
            atexit.register(handle.close)
        return handle


def is_warm(framework: str = "") -> bool:
    """Whether ranks can be forked without waiting."""
    handle = _handles.get((True, framework, records()))
    return handle is not None and handle.usable and handle.ready


def default_start_method() -> str:
    """``"fork"`` on Linux; elsewhere, where forking with torch loaded is not safe, ``"spawn"``."""
    return "fork" if sys.platform == "linux" else "spawn"


def warm() -> None:
    """Start the fork server in the background; returns at once."""
    with suppress(SessionError):  # the first session reports it
        server(warm=default_start_method() == "fork")


def cool() -> None:
    """End all fork servers of the notebook; the next session on this machine starts one again."""
    with _starting:
        for handle in _handles.values():
            if handle.usable:
                handle.close()
