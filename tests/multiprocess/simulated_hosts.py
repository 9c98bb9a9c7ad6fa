"""Hosts whose agents are real and whose ranks only answer, many in one process.

``python -m tests.multiprocess.simulated_hosts HOSTS FIRST ADDRESS:PORT`` with the key in DDT_JOIN.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

from ddt_notebook.host import agent as real
from ddt_notebook.host.agent_link import AgentLink
from ddt_notebook.host.join_key import VARIABLE, JoinKey
from ddt_notebook.wire.branch_ring import BranchRingWriter
from ddt_notebook.wire.channel import Channel, Closed
from ddt_notebook.wire.messages import (
    AskFlight,
    AskStatus,
    CellEnded,
    Done,
    EndRank,
    Failed,
    FlightEntries,
    FormGroup,
    GroupFormed,
    MakeDirectory,
    Message,
    MonitorStatus,
    Observe,
    Observed,
    RankReady,
    RankSpec,
    RunCell,
    Started,
    StartRank,
    StartStore,
)
from ddt_notebook.wire.ring import RingWriter

#: No process has such a number, so that no signal reaches one.
_PIDS = itertools.count(5_000_000)


class _Process:
    """A process that is not there."""

    stopped = False

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def used(self) -> tuple[float, float]:
        return 0.0, time.monotonic()

    def memory_share(self) -> int:
        return 1 << 20

    def resident_bytes(self) -> int | None:
        return 1 << 20

    def allocated_bytes(self, cap: int) -> int | None:
        return 0

    def signal(self, number: int) -> None:
        """Nobody is there."""


class _Server:
    """In place of the fork server: its ranks are answered for by one thread."""

    def __init__(self, *, warm: bool, framework: str = "") -> None:
        assert not framework
        self.ready = self.usable = warm
        self._read, self._write = socket.socketpair()
        self._channels: list[Channel] = []
        self._ended: dict[int, int] = {}
        self._pids: dict[Channel, int] = {}
        self._specs: dict[Channel, list[object]] = {}
        self._new = threading.Event()
        self._closed = False
        self._directories: list[str] = []
        threading.Thread(target=self._answer_all, daemon=True).start()

    def fileno(self) -> int:
        return self._read.fileno()

    def start(self, request: StartRank | StartStore, sockets: tuple[int, ...] = ()) -> Started:
        pid = next(_PIDS)
        if isinstance(request, StartStore):
            return Started(pid=pid, port=1)
        commands, questions = (Channel(os.dup(descriptor)) for descriptor in sockets)
        self._pids[commands] = pid
        self._channels += [commands, questions]
        return Started(pid=pid)

    def request(self, message: Message) -> Message:
        assert isinstance(message, MakeDirectory)
        Path(message.directory).mkdir(mode=0o700)
        self._directories.append(message.directory)
        return Done()

    def ended(self, pids: Iterable[int]) -> dict[int, int]:
        return {pid: self._ended[pid] for pid in pids if pid in self._ended}

    def close(self) -> None:
        self._closed = True
        for directory in self._directories:
            shutil.rmtree(directory)

    def _answer_all(self) -> None:
        while not self._closed:
            channels = tuple(self._channels)
            ready = wait(channels, 0.05) if channels else time.sleep(0.01)
            for channel in ready or ():
                try:
                    received = channel.receive()
                    answer = self._answer(channel, received.message)
                    if answer is not None:
                        channel.send(answer, number=received.number)
                        continue
                except Closed:
                    pass
                self._channels.remove(channel)
                if channel in self._pids:
                    self._ended[self._pids[channel]] = 0

    def _answer(self, channel: Channel, asked: Message) -> Message | None:
        match asked:
            case RankSpec() as spec:
                at = Path(spec.directory, f"rank{spec.rank}")
                self._specs[channel] = [
                    RingWriter(at.with_suffix(".calls")),
                    BranchRingWriter(at.with_suffix(".branches")),
                ]
                for name in ("out", "err", "crash"):
                    at.with_suffix(f".{name}").touch()
                return RankReady(torch_version="2.13.0", device="cpu")
            case FormGroup():
                return GroupFormed()
            case RunCell():
                return CellEnded(error=None, ended_s=time.monotonic())
            case Observe():
                return Observed()
            case AskStatus():
                return MonitorStatus(
                    position=None,
                    stack=(),
                    groups={},
                    cpu_s=0.0,
                    memory_bytes=1 << 20,
                    at_s=time.monotonic(),
                )
            case AskFlight():
                return FlightEntries(entries=())
            case EndRank():
                return None
        return Failed(error=f"not simulated: {type(asked).__name__}")


def start_all(shown: str, hosts: int, processes: int) -> list[subprocess.Popen[bytes]]:
    """Start the agents with the command that a session shows."""
    variable, *words = shlex.split(shown.splitlines()[0].partition(": ")[2])
    each = hosts // processes
    return [
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(each), str(each * number), words[2]],
            env=os.environ | dict([variable.split("=", 1)]),
        )
        for number in range(processes)
    ]


def _serve(address: str, port: int, key: JoinKey, label: str) -> None:
    link = AgentLink(address, port, key)
    with suppress(Exception):  # the session has ended
        real.Agent(link, "lo", label, lambda text: None).serve()
    link.close()


def main() -> None:
    """Serve until the session ends."""
    count, first = int(sys.argv[1]), int(sys.argv[2])
    address, _, port = sys.argv[3].partition(":")
    key = JoinKey.from_text(os.environ.pop(VARIABLE))
    real.launcher = SimpleNamespace(ForkServerHandle=_Server)  # type: ignore[assignment]
    real.LocalProcess = _Process  # type: ignore[assignment,misc]
    threads = [
        threading.Thread(target=_serve, args=(address, int(port), key, f"node{first + number}"))
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
