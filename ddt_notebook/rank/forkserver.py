"""The process from which ranks are forked; it reports how they end.

Run as ``python -m ddt_notebook.rank.forkserver``; its standard input is a socket to the notebook.
It imports torch and IPython once, has no CUDA context and runs no thread. So it forks a rank in
milliseconds, and the rank shares its memory. It reports the exit code or signal of every rank.
When the notebook ends in any way, it ends all ranks and removes the session's files.

The standard library's fork server is not suitable. Each process has only one, which the user's own
multiprocessing shares; it imports ``__main__`` again in each child; and it does not end its
children when the notebook is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..model.frameworks import prepared
from ..wire.messages import (
    ChildEnded,
    Done,
    Envelope,
    Failed,
    MakeDirectory,
    Message,
    RemoveDirectory,
    ServerReady,
    Started,
    StartRank,
    StartStore,
    decode,
    encode,
)

_PR_SET_PDEATHSIG = 1
#: Modules that the first step of DDP would import; `torch_private.import_ahead` imports the others.
_WARM = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.utils.data.distributed",
    "torch.optim",
    "torch.distributed.algorithms.join",
    "torch.distributed.device_mesh",
)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends (only on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)


class ForkServer:
    """Starts ranks on request, and reports how they end."""

    def __init__(self, notebook: socket.socket) -> None:
        self._notebook = notebook
        self._pending = b""
        self._children: set[int] = set()
        self._directories: set[str] = set()
        self._remains: list[tuple[float, int]] = []  # (when, process group) to be killed
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)

    def serve(self) -> None:
        """Answer requests until the notebook closes the connection; then end every child."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._notebook, selectors.EVENT_READ)
        selector.register(self._wake_read, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in selector.select(0.2 if self._remains else None):
                    if key.fileobj is self._wake_read:
                        self._wake_read.recv(4096)
                    elif not self._answer():
                        return
                self._reap()
        finally:
            self._end_all()

    def _answer(self) -> bool:
        """Answer what has come; False when the notebook has closed the connection."""
        data, descriptors, *_ = socket.recv_fds(self._notebook, 1 << 20, 8)
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        try:
            for line in lines:
                # the system never joins what follows a request with descriptors to it
                own = list(descriptors) if line is lines[-1] else []
                request, _ = decode(line)
                answer: Message
                try:
                    answer = self._do(request.message, own)
                except OSError as error:  # no process or memory left: the notebook decides
                    answer = Failed(error=f"{type(error).__name__}: {error}")
                self.send(answer, request.number)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _do(self, request: Message, descriptors: list[int]) -> Message:
        match request:
            case MakeDirectory():
                self._make_directory(request.directory)
                return Done()
            case StartRank():
                start = self._fork_rank if request.fork else self._spawn_rank
                return Started(pid=start(descriptors))
            case StartStore():
                return self._fork_store(request.address, request.folder)
            case RemoveDirectory():
                self._directories.discard(request.directory)
                shutil.rmtree(request.directory, ignore_errors=True)
                return Done()
        return Failed(error=f"a fork server does not answer {type(request).__name__}")

    def _make_directory(self, directory: str) -> None:
        if directory not in self._directories:
            # a server that was killed may have left it behind
            shutil.rmtree(directory, ignore_errors=True)
        self._directories.add(directory)
        Path(directory).mkdir(mode=0o700, exist_ok=True)

    def send(self, message: Message, number: int = 0) -> None:
        """Send the notebook a message; it answers request ``number`` unless that is 0."""
        try:
            self._notebook.sendall(encode(Envelope(message, number)) + b"\n")
        except OSError:
            pass  # the notebook is gone: the next receive ends the loop

    def _fork_rank(self, descriptors: list[int]) -> int:
        def run() -> None:
            from .worker import run_rank

            run_rank(*descriptors)

        return self._fork(run)

    def _fork(self, run: Callable[[], None]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._children.add(pid)
            return pid
        status = 1
        try:
            os.setsid()
            die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._notebook, self._wake_read, self._wake_write):
                end.close()
            run()
            status = 0
        except BaseException:  # noqa: BLE001  (no caller could handle it)
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _spawn_rank(self, descriptors: list[int]) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "ddt_notebook.rank.worker", *map(str, descriptors)],
            pass_fds=descriptors,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        self._children.add(process.pid)
        process.returncode = 0  # this server reaps it: Popen must not warn
        return process.pid

    def _fork_store(self, address: str, folder: str) -> Started:
        """Start the TCPStore of a session in a separate process, since it runs threads."""
        from . import store_server

        listener = store_server.listen(address)
        pid = self._fork(lambda: store_server.serve(listener, folder))
        port = listener.getsockname()[1]
        listener.close()
        return Started(pid=pid, port=port)

    def _reap(self) -> None:
        """Reap ranks that have ended, report them, and end the processes that they left behind."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if dead is None:
                break
            # Report before the pid is free again, or the notebook could signal a new process.
            # Processes left in the group, such as DataLoader workers, get time to end.
            status = dead.si_status if dead.si_code == os.CLD_EXITED else -dead.si_status
            self.send(ChildEnded(pid=dead.si_pid, status=status))
            self._signal_group(dead.si_pid, signal.SIGTERM)
            self._remains.append((time.monotonic() + 0.5, dead.si_pid))
            os.waitpid(dead.si_pid, 0)
            self._children.discard(dead.si_pid)
        now = time.monotonic()
        for when, group in self._remains:
            if when <= now:
                self._signal_group(group, signal.SIGKILL)
        self._remains = [item for item in self._remains if item[0] > now]

    @staticmethod
    def _signal_group(group: int, number: signal.Signals) -> None:
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            pass  # there is no process left in it

    def _end_all(self) -> None:
        groups = [*self._children, *(group for _, group in self._remains)]
        for pid in self._children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for group in groups:
            self._signal_group(group, signal.SIGKILL)
        for pid in self._children:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)


def warm_up(framework: str = "") -> None:
    """Import what ranks need, and the modules of a framework.

    Nothing of the framework may run here: TensorFlow's first operation starts threads, and a fork
    would lack them and wait for them without end.
    """
    gc.disable()  # imports make little garbage; collection would take a tenth of their time
    from . import torch_private

    for name in _WARM:
        importlib.import_module(name)
    torch_private.import_ahead()
    if framework:
        required, *others = prepared()[framework].modules
        importlib.import_module(required)
        for name in others:
            with suppress(ImportError):
                importlib.import_module(name)
    from . import worker

    gc.freeze()  # each collection below would visit half a million objects
    worker.prepare()
    gc.enable()
    gc.collect()
    with suppress(OSError, AttributeError):  # only the GNU C library has it
        ctypes.CDLL(None).malloc_trim(0)  # a rank that uses a free piece of a page copies the page
    gc.freeze()  # otherwise the garbage collector of each rank copies the shared pages


@contextmanager
def ended_with(notebook: socket.socket) -> Iterator[None]:
    """Have the kernel end this process as soon as the notebook closes the connection.

    The import of torch takes seconds, in which a thread that watches the connection would wait for
    the interpreter's lock most of the time. The notebook sends nothing before the server is ready.
    """
    if sys.platform == "linux":
        signal.signal(signal.SIGIO, signal.SIG_DFL)  # ends the process
    else:
        signal.signal(signal.SIGIO, lambda *_: os._exit(1))
    fcntl.fcntl(notebook, fcntl.F_SETOWN, os.getpid())
    before = fcntl.fcntl(notebook, fcntl.F_GETFL)
    fcntl.fcntl(notebook, fcntl.F_SETFL, before | os.O_ASYNC)
    if select.select([notebook], [], [], 0)[0]:  # it has ended already
        os._exit(1)
    try:
        yield
    finally:
        fcntl.fcntl(notebook, fcntl.F_SETFL, before)


def main() -> None:
    """Serve the notebook at standard input.

    With ``--cold``, spawn ranks and do not fork them; ``--framework NAME`` imports one for them.
    """
    notebook = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "--cold" not in sys.argv:
        with ended_with(notebook):
            at = sys.argv.index("--framework") + 1 if "--framework" in sys.argv else 0
            warm_up(sys.argv[at] if at else "")
    server = ForkServer(notebook)
    server.send(ServerReady())
    server.serve()


if __name__ == "__main__":
    main()
