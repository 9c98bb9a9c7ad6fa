"""The agent: one process on each host of a session, which starts the ranks there.

It dials out to the notebook, holds the warm fork server of its host, passes on what the notebook
and the ranks send to each other, and copies what changes in the ranks' files. A rank's output and
records travel before what it sends next. When the notebook or the network is gone, it ends with
all of its ranks.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from ..model import FormatError
from ..model.frameworks import described
from ..wire.agent_messages import (
    BLOCK_BYTES,
    CREDIT_BYTES,
    FILE_WINDOW,
    STREAM_WINDOW,
    AgentHello,
    AgentWelcome,
    AskClock,
    AskFacts,
    AskFile,
    AskMemory,
    ClockTold,
    Connection,
    Credit,
    EndAgent,
    EndTrials,
    FactsTold,
    ListenForTrials,
    MemoryTold,
    ProcessesSeen,
    RankBytes,
    RankClosed,
    RankFile,
    SignalProcess,
    StartHostRank,
    TrialEnded,
    TrialListening,
    TryConnection,
)
from ..wire.file_copy import FileCopy, copies, messages
from ..wire.messages import (
    ChildEnded,
    Done,
    Envelope,
    Failed,
    MakeDirectory,
    Message,
    ServerReady,
    Started,
    StartRank,
    StartStore,
)
from . import launcher, limits, surroundings
from .agent_link import AgentLink, send_pending
from .connection_trial import TrialListener, try_connection
from .errors import SessionError
from .host_facts import host_facts
from .process import LocalProcess

#: How often files are looked at: while they change, and when they have not changed for a second.
_LOOK_EVERY_S, _IDLE_LOOK_EVERY_S = 0.03, 0.25
_IDLE_AFTER_S = 1.0
_SEEN_EVERY_S = 0.25
#: Files that are copied without being asked for; the others only by `AskFile`.
_FOLLOWED: tuple[RankFile, ...] = ("calls", "err", "out", "crash", "threads")
_CONNECTIONS: tuple[Connection, ...] = ("commands", "questions")
#: A notebook answers the first message at once, unless it cannot read it.
_WELCOME_LIMIT_S = 30.0
#: So much of what a process printed last is told, in characters.
_LONGEST_SAID = 200


class _Stream:
    """One connection of a rank, on the agent's side."""

    def __init__(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        self.socket = ours
        self.for_rank: deque[bytes] = deque()
        self.unacknowledged = 0
        self.taken = 0  #: bytes for the rank that no credit has reported


class _Rank:
    """A rank of this host."""

    def __init__(self, key: int, files: Path) -> None:
        self.key = key
        self.pid = 0
        self.streams: dict[Connection, _Stream] = {}
        self.copies: dict[str, FileCopy] = copies(files)
        self.begun: set[str] = set()
        self.closed_by_notebook: set[Connection] = set()


class Agent:
    """Serves one notebook until the connection ends.

    Parameters
    ----------
    link
        The connection to the notebook.
    interface
        The network interface that the ranks use; None for the one that leads to the notebook.
    label
        What the user calls this host; empty for its name.
    say
        Receives what the person who started the agent should know.
    """

    def __init__(
        self,
        link: AgentLink,
        interface: str | None,
        label: str,
        say: Callable[[str], None],
    ) -> None:
        self._link = link
        self._say = say
        self._label = label
        self._address, self._interface = network_of(link.peer, interface)
        self._folder = Path(surroundings.temporary_folder(), f"ddt-{secrets.token_hex(8)}")
        self._ranks: dict[int, _Rank] = {}
        self._children: dict[int, LocalProcess] = {}
        self._reported: set[int] = set()
        self._files_unacknowledged = 0
        self._looked_s = self._changed_s = self._seen_s = 0.0
        self._server: launcher.ForkServerHandle | None = None
        self._told_ready = False
        self._server_looked_s = 0.0  #: 0 if it may have said something since
        self._gloo_interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        self._trials: TrialListener | None = None
        #: Answers of other threads, and a pair of sockets that wakes this one.
        self._answers: deque[tuple[Message, int]] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write):
            end.setblocking(False)
        self._welcome_until_s: float | None = time.monotonic() + _WELCOME_LIMIT_S

    def serve(self) -> None:
        """Answer the notebook until the connection ends.

        Raises
        ------
        SessionError
            If the notebook does not accept this agent, or the fork server cannot be started.
        """
        hello = AgentHello(
            host=socket.gethostname(),
            pid=os.getpid(),
            address=self._address,
            interface=self._interface,
            directory=str(self._folder),
            wall_s=time.time() - time.monotonic(),
            label=self._label,
        )
        self._link.send(hello)
        os.environ["GLOO_SOCKET_IFNAME"] = self._interface  # also if another one was chosen
        try:
            while self._step():
                pass
        finally:
            if self._server is not None:
                self._server.close()
            if self._trials is not None:
                self._trials.close()
            for rank in self._ranks.values():
                self._forget(rank)

    def _step(self) -> bool:
        """Wait for what comes next and process it; False at the end."""
        wait_s = _LOOK_EVERY_S if self._is_active else _IDLE_LOOK_EVERY_S
        by_descriptor: dict[int, tuple[_Rank, Connection]] = {}
        readers: list[int] = [self._wake_read.fileno()]
        readers += [self._server.fileno()] if self._server is not None else []
        writers: list[int] = []
        for rank in self._ranks.values():
            for name, stream in rank.streams.items():
                descriptor = stream.socket.fileno()
                by_descriptor[descriptor] = rank, name
                if stream.unacknowledged < STREAM_WINDOW and self._may_relay(name):
                    readers.append(descriptor)
                if stream.for_rank:
                    writers.append(descriptor)
        came = self._link.wait(readers, writers, wait_s)
        if came is None:
            return False
        readable, writable = came
        if not self._receive():
            return False
        for descriptor in writable:
            if descriptor in by_descriptor:
                self._write(*by_descriptor[descriptor])
        for descriptor in readable:
            if descriptor in by_descriptor:
                self._relay(*by_descriptor[descriptor])
        if self._wake_read.fileno() in readable:
            self._send_answers()
        if self._server is not None:
            self._look_after(self._server, came=self._server.fileno() in readable)
        self._look_at_files()
        self._show_processes()
        return True

    @property
    def _is_active(self) -> bool:
        return time.monotonic() - self._changed_s < _IDLE_AFTER_S

    # -- requests ------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Process what the notebook has sent; False if it ends this agent."""
        try:
            if not all(map(self._take, self._link.received())):
                return False
        except FormatError as error:
            raise SessionError(f"the notebook has sent what cannot be read: {error}") from error
        if self._welcome_until_s is not None and time.monotonic() > self._welcome_until_s:
            raise SessionError(
                f"the notebook has not answered for {_WELCOME_LIMIT_S:.0f} s",
                "does it have another version of ddt_notebook?",
            )
        return True

    def _take(self, received: Envelope) -> bool:
        """Process a message; False if it ends this agent."""
        match received.message:
            case EndAgent():
                return False
            case Failed(error=error):
                raise SessionError(f"the notebook did not accept this agent: {error}")
            case AgentWelcome(framework=framework):
                self._welcome_until_s = None
                self._start_server(framework)
                self._say("joined the session; this process ends with it")
            case SignalProcess(pid=pid, number=number):
                if pid in self._children and pid not in self._reported:
                    with suppress(ValueError):
                        self._children[pid].signal(signal.Signals(number))
            case RankBytes(key=key, connection=connection):
                self._pass_on(key, connection, received.payload or b"")
            case RankClosed(key=key, connection=connection):
                self._close(key, connection)
            case Credit(key=key, connection=connection, size=size):
                self._take_credit(key, connection, size)
            case request:
                self._reply(request, received.number)
        return True

    def _start_server(self, framework: str) -> None:
        known = described(framework)
        needs = known.preparation
        if needs is not None and not limits.is_installed(needs.modules[0]):
            why = f"{known.title} is not installed on this host: {needs.install}"
            self._link.send(Failed(error=why))
            raise SessionError(why)
        self._server = launcher.ForkServerHandle(warm=True, framework=framework)

    def _reply(self, request: Message, number: int) -> None:
        match request:
            case AskFacts(variables=variables):
                own = self._address, self._interface, self._gloo_interface
                self._answer_later(lambda: FactsTold(facts=host_facts(*own, variables)), number)
            case TryConnection(address=address, port=port, token=token, limit_s=limit_s, size=size):
                self._answer_later(
                    lambda: TrialEnded(trial=try_connection(address, port, token, limit_s, size)),
                    number,
                )
            case EndTrials():
                if self._trials is not None:
                    self._trials.close()
            case _:
                self._server_looked_s = 0.0  # its answer comes with what it reports
                try:
                    answer = self._answer(request)
                except (SessionError, OSError, psutil.Error) as error:
                    answer = Failed(error=str(error))
                self._link.send(answer, number)

    def _answer(self, request: Message) -> Message:
        match request:
            case StartHostRank():
                return self._start_rank(request)
            case StartStore():
                return self._start_store(request)
            case AskFile(key=key, file=file):
                if key in self._ranks:
                    self._copy(self._ranks[key], file)
                return Done()
            case AskClock():
                return ClockTold(at_s=time.monotonic())
            case AskMemory(pid=pid, cap_bytes=cap):
                return self._memory(pid, cap)
            case ListenForTrials(token=token, limit_s=limit_s):
                if self._trials is not None:
                    self._trials.close()
                self._trials = TrialListener(self._address, token, limit_s)
                return TrialListening(port=self._trials.port)
        return Failed(error=f"an agent does not answer {type(request).__name__}")

    def _answer_later(self, make: Callable[[], Message], number: int) -> None:
        """Answer in a thread what may take seconds: the ranks' messages must not wait for it."""

        def work() -> None:
            try:
                answer = make()
            except (OSError, ValueError, OverflowError) as error:
                answer = Failed(error=str(error))
            self._answers.append((answer, number))
            with suppress(OSError):
                self._wake_write.send(b"x")

        threading.Thread(target=work, name="ddt-answer", daemon=True).start()

    def _send_answers(self) -> None:
        with suppress(OSError):
            self._wake_read.recv(1 << 12)
        while self._answers:
            self._link.send(*self._answers.popleft())

    def _start_rank(self, request: StartHostRank) -> Message:
        assert self._server is not None
        if not self._folder.exists():
            made = self._server.request(MakeDirectory(directory=str(self._folder)))
            if isinstance(made, Failed):
                return made
        files = self._folder / f"rank{request.rank}"
        for old in self._folder.glob(f"rank{request.rank}.*"):
            old.unlink(missing_ok=True)
        rank = _Rank(request.key, files)
        pairs = {name: socket.socketpair() for name in _CONNECTIONS}
        try:
            theirs = tuple(pair[1].fileno() for pair in pairs.values())
            started = self._server.start(StartRank(fork=request.fork), theirs)
        finally:
            for _, their in pairs.values():
                their.close()
        rank.pid = started.pid
        self._note(started)
        rank.streams = {name: _Stream(ours) for name, (ours, _) in pairs.items()}
        self._ranks[rank.key] = rank
        self._changed_s = time.monotonic()
        return started

    def _start_store(self, request: StartStore) -> Message:
        assert self._server is not None
        return self._note(self._server.start(request))

    def _note(self, started: Started) -> Started:
        self._reported.discard(started.pid)
        self._children[started.pid] = LocalProcess(started.pid)
        return started

    def _memory(self, pid: int, cap: int | None) -> MemoryTold:
        process = self._children.get(pid)
        if process is None:
            return MemoryTold()
        return MemoryTold(
            share=process.memory_share(),
            resident=process.resident_bytes(),
            allocated=process.allocated_bytes(cap) if cap is not None else None,
        )

    # -- connections of ranks ------------------------------------------------------------------

    def _stream(self, key: int, connection: Connection) -> _Stream | None:
        rank = self._ranks.get(key)
        return rank.streams.get(connection) if rank is not None else None

    def _pass_on(self, key: int, connection: Connection, data: bytes) -> None:
        stream = self._stream(key, connection)
        if stream is not None and data:
            self._changed_s = time.monotonic()
            stream.for_rank.append(data)
            self._write(self._ranks[key], connection)

    def _write(self, rank: _Rank, connection: Connection) -> None:
        stream = rank.streams.get(connection)
        if stream is not None:
            # once the rank has ended, which its fork server reports, nothing is left to send
            stream.taken += send_pending(stream.socket, stream.for_rank)
            if stream.taken >= CREDIT_BYTES:
                self._link.send(Credit(key=rank.key, connection=connection, size=stream.taken))
                stream.taken = 0
        if stream is not None and not stream.for_rank and connection in rank.closed_by_notebook:
            self._drop(rank, connection)

    def _may_relay(self, connection: Connection) -> bool:
        """Whether what comes must not wait until the notebook has taken more of the files.

        What a monitor answers does not follow from the rank's files.
        """
        return connection == "questions" or self._files_unacknowledged < FILE_WINDOW

    def _relay(self, rank: _Rank, connection: Connection) -> None:
        """Pass on what a rank has sent, after what it had printed and recorded before."""
        stream = rank.streams.get(connection)
        if stream is None:
            return
        try:
            data = stream.socket.recv(BLOCK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        # what it wrote before its message; the message stays while the notebook is behind
        if not (self._copy_all(rank) or connection == "questions"):
            return
        if data:
            data = stream.socket.recv(len(data))
            stream.unacknowledged += len(data)
            self._link.send(RankBytes(key=rank.key, connection=connection), payload=data)
        else:
            self._link.send(RankClosed(key=rank.key, connection=connection))
            self._drop(rank, connection)

    def _close(self, key: int, connection: Connection) -> None:
        if key in self._ranks:
            rank = self._ranks[key]
            rank.closed_by_notebook.add(connection)
            stream = rank.streams.get(connection)
            if stream is not None and not stream.for_rank:
                self._drop(rank, connection)

    @staticmethod
    def _drop(rank: _Rank, connection: Connection) -> None:
        stream = rank.streams.pop(connection, None)
        if stream is not None:
            stream.socket.close()

    def _take_credit(self, key: int, connection: Connection, size: int) -> None:
        if not key:
            self._files_unacknowledged -= size
            return
        stream = self._stream(key, connection)
        if stream is not None:
            stream.unacknowledged -= size

    # -- files ---------------------------------------------------------------------------------

    def _look_at_files(self) -> None:
        now = time.monotonic()
        every_s = _LOOK_EVERY_S if self._is_active else _IDLE_LOOK_EVERY_S
        if now - self._looked_s >= every_s:
            self._looked_s = now
            for rank in list(self._ranks.values()):
                copied = self._copy_all(rank)
                if copied and self._is_over(rank) and self._copy(rank, "branches"):
                    self._forget(self._ranks.pop(rank.key))

    def _is_over(self, rank: _Rank) -> bool:
        """Whether a rank has ended, and the notebook has closed its connections."""
        return rank.pid in self._reported and rank.closed_by_notebook.issuperset(_CONNECTIONS)

    def _copy_all(self, rank: _Rank) -> bool:
        """Send what has changed in a rank's files; False if the notebook is behind."""
        if "branches" not in rank.begun:  # a reader needs its beginning
            self._copy(rank, "branches")
        return all(self._copy(rank, file) for file in _FOLLOWED)

    def _copy(self, rank: _Rank, file: RankFile) -> bool:
        copy = rank.copies[file]
        while self._files_unacknowledged < FILE_WINDOW:
            pieces = copy.changes(BLOCK_BYTES)
            if not pieces:
                return True
            rank.begun.add(file)
            self._changed_s = time.monotonic()
            for message, data in messages(copy, rank.key, file, pieces):
                self._files_unacknowledged += len(data)
                self._link.send(message, payload=data)
            if copy.whole:
                return True
        return False

    # -- processes -----------------------------------------------------------------------------

    def _look_after(self, server: launcher.ForkServerHandle, *, came: bool) -> None:
        now = time.monotonic()
        if not came and now - self._server_looked_s < _LOOK_EVERY_S:
            return
        self._server_looked_s = now
        if not self._told_ready and server.ready:
            self._told_ready = True
            self._link.send(ServerReady())
        if not server.usable:
            why = f"the fork server of this host has ended: {server.said()[:_LONGEST_SAID]}"
            self._link.send(Failed(error=why))
            raise SessionError(why)
        running = [pid for pid in self._children if pid not in self._reported]
        for pid, status in server.ended(running).items():
            ended = [rank for rank in self._ranks.values() if rank.pid == pid]
            for rank in ended:
                for name in tuple(rank.streams):  # its last messages
                    self._relay_rest(rank, name)
                self._copy_all(rank)
            self._reported.add(pid)
            self._link.send(ChildEnded(pid=pid, status=status))

    def _relay_rest(self, rank: _Rank, connection: Connection) -> None:
        for _ in range(STREAM_WINDOW // BLOCK_BYTES):
            if connection not in rank.streams:
                return
            self._relay(rank, connection)

    def _show_processes(self) -> None:
        now = time.monotonic()
        running = [pid for pid in self._children if pid not in self._reported]
        if not running or now - self._seen_s < _SEEN_EVERY_S:
            return
        self._seen_s = now
        processes = [self._children[pid] for pid in running]
        self._link.send(
            ProcessesSeen(
                at_s=now,
                used_s={process.pid: round(process.used()[0], 3) for process in processes},
                stopped=tuple(process.pid for process in processes if process.stopped),
            )
        )

    @staticmethod
    def _forget(rank: _Rank) -> None:
        for stream in rank.streams.values():
            stream.socket.close()
        for copy in rank.copies.values():
            copy.close()


def network_of(peer: tuple[str, int], interface: str | None) -> tuple[str, str]:
    """The address at which other hosts reach this one, and its interface.

    Parameters
    ----------
    peer
        The address of the notebook. Unless an ssh tunnel leads there, the interface towards it is
        the one that other hosts use as well.
    interface
        The interface that the user chose; None for no choice.

    Raises
    ------
    SessionError
        If there is no such interface.
    """
    addresses = {
        name: [one.address for one in known if one.family == socket.AF_INET]
        for name, known in psutil.net_if_addrs().items()
    }
    interface = interface or os.environ.get("GLOO_SOCKET_IFNAME")
    if interface:
        found = addresses.get(interface.split(",", maxsplit=1)[0].lstrip("="))
        if not found:
            known = ", ".join(name for name, there in addresses.items() if there)
            raise SessionError(
                f"this host has no interface {interface} with an IPv4 address", f"it has {known}"
            )
        return found[0], interface
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)  # sends nothing
        towards: str = probe.getsockname()[0]
    own = [one for there in addresses.values() for one in there]
    if towards.startswith("127."):  # through ssh, which tells at which address it was reached
        reached = os.environ.get("SSH_CONNECTION", "").split()[2:3]
        others = [one for one in own if not one.startswith("127.")]
        towards = next(iter([*(one for one in reached if one in own), *others]), towards)
    name = next((name for name, there in addresses.items() if towards in there), "")
    return towards, name
