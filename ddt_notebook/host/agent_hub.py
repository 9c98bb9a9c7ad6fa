"""The notebook's side of the agents, which run the ranks of a session on several hosts.

A thread exchanges messages with the agents, passes on what ranks send, and writes what has changed
in the ranks' files into copies in the session's folder. So a session reads connections and files
as if its ranks were here. Short commands for ranks are sent by the thread of the session itself,
since waking another one takes longer.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from ..model import FormatError
from ..wire.agent_messages import (
    BLOCK_BYTES,
    CREDIT_BYTES,
    STREAM_WINDOW,
    AgentHello,
    AgentWelcome,
    AskClock,
    ClockTold,
    Connection,
    Credit,
    EndAgent,
    FileBytes,
    ProcessesSeen,
    RankBytes,
    RankClosed,
)
from ..wire.file_copy import write_changes
from ..wire.messages import (
    ChildEnded,
    Envelope,
    Failed,
    Message,
    ServerReady,
    Started,
)
from . import interrupts
from .agent_link import (
    Listener,
    descriptor_of,
    from_frames,
    send_frames,
    send_pending,
    to_frames,
)
from .errors import SessionError
from .join_key import JoinKey

_START_LIMIT_S = 15.0
#: Plain numbers: an operation on ZeroMQ's flags takes some microseconds.
_IN, _OUT, _ERROR = int(zmq.POLLIN), int(zmq.POLLOUT), int(zmq.POLLERR)
#: How often the clock of a host is asked for; the quickest answer counts.
_CLOCK_ASKED = 5
_LONGEST_NAME = 64
_LONGEST_REASON = 300


@dataclass(eq=False, slots=True)
class HostAgent:
    """An agent that has joined.

    Attributes
    ----------
    identity, descriptor
        What ZeroMQ calls it, and the descriptor of its connection.
    hello
        What it said first.
    name
        Name of its host; unlike those of the others.
    ready
        Whether it can start ranks.
    lost
        Why it no longer takes part; empty while it does.
    ahead_s
        Its monotonic clock minus that of this machine.
    seen
        What it last reported about its processes.
    pids, keys
        Its processes that run, and the keys of its ranks.
    files_taken
        Bytes of its ranks' files that no credit has reported.
    """

    identity: bytes
    descriptor: int
    hello: AgentHello
    name: str
    ready: bool = False
    lost: str = ""
    ahead_s: float = 0.0
    seen: ProcessesSeen = field(default_factory=lambda: ProcessesSeen(at_s=0.0, used_s={}))
    pids: set[int] = field(default_factory=set)
    keys: set[int] = field(default_factory=set)
    files_taken: int = 0


@dataclass(eq=False, slots=True)
class _Stream:
    """One connection of a rank, on the notebook's side."""

    socket: socket.socket
    agent: HostAgent
    unacknowledged: int = 0
    taken: int = 0  #: bytes for the notebook that no credit has reported
    for_notebook: deque[bytes] = field(default_factory=deque)
    ended: bool = False
    relayed: int = 0  #: bytes that were read from the socket
    waited_for: int = 0  #: the events of the socket that are waited for


class AgentHub:
    """Admits agents, and talks to them.

    Parameters
    ----------
    address, port
        Where it listens; port 0 for a free one.
    framework
        A framework that the agents import for their ranks; empty for none.

    Raises
    ------
    SessionError
        If it cannot listen there.
    """

    def __init__(self, address: str, port: int = 0, framework: str = "") -> None:
        self.framework = framework
        public, secret = zmq.curve_keypair()
        agents_public, agents_secret = zmq.curve_keypair()
        self.key = JoinKey(public, agents_secret)
        self._listener = Listener(secret, agents_public)
        self._router = self._listener.router
        self.port = self._listener.bind(address, port)
        self.address = address
        self.agents: list[HostAgent] = []
        self.admitted: int | None = None  #: how many agents may join; None: no more
        self.refused = ""  #: why the agent that came last could not join
        self._by_identity: dict[bytes, HostAgent] = {}
        self._streams: dict[tuple[int, Connection], _Stream] = {}
        self._poller = zmq.Poller()
        self._by_descriptor: dict[int, tuple[int, Connection]] = {}
        self._copies: dict[tuple[int, str], int | None] = {}
        self._files: dict[int, Path] = {}
        self._ended: dict[tuple[str, int], int] = {}
        self._answers: dict[int, Envelope | None] = {}
        self._numbers = 0
        self._keys = 0
        #: Who holds it may use the connections to the agents and to the ranks.
        self._at_work = threading.Lock()
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._to_do: deque[Callable[[], None]] = deque()
        self._woken = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._news_read, self._news_write = socket.socketpair()
        for end in (self._wake_read, self._wake_write, self._news_read, self._news_write):
            end.setblocking(False)
        self._closing = False
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="ddt-agents", daemon=True)
        self._thread.start()

    # -- called by the session -----------------------------------------------------------------

    def ready(self) -> list[HostAgent]:
        """The agents that can start ranks."""
        with self._lock:
            return [agent for agent in self.agents if agent.ready and not agent.lost]

    def fileno(self) -> int:
        """A descriptor that can be read when `ended` may return new ends."""
        return self._news_read.fileno()

    def ended(self, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Those of these processes that have ended: exit code, or negative signal."""
        with suppress(OSError):
            while self._news_read.recv(1 << 12):
                pass
        with self._lock:
            return {key: self._ended[key] for key in keys if key in self._ended}

    def request(self, agent: HostAgent, message: Message, limit_s: float) -> Message:
        """Ask an agent, and wait for its answer.

        Raises
        ------
        SessionError
            If it does not answer in time, or could not do it.
        """
        with self._answered:
            self._numbers += 1
            number = self._numbers
            self._answers[number] = None
        self._post(lambda: self._send(agent, message, number))
        until_s = time.monotonic() + limit_s
        with self._answered:
            while self._answers[number] is None and not agent.lost:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not self._thread.is_alive():
                    break
                self._answered.wait(min(left_s, 0.2))
            answer = self._answers.pop(number)
        if answer is None:
            raise SessionError(f"{agent.name} {agent.lost or 'does not answer'}")
        if isinstance(answer.message, Failed):
            raise SessionError(f"{agent.name}: {answer.message.error}")
        return answer.message

    def tell(self, agent: HostAgent, message: Message) -> None:
        """Send an agent a message that has no answer."""
        self._post(lambda: self._send(agent, message))

    def align_clock(self, agent: HostAgent) -> None:
        """Find out how far the clock of a host is ahead of this one's."""
        best_s = float("inf")
        for _ in range(_CLOCK_ASKED):
            before_s = time.monotonic()
            told = self.request(agent, AskClock(), _START_LIMIT_S)
            after_s = time.monotonic()
            if isinstance(told, ClockTold) and after_s - before_s < best_s:
                best_s = after_s - before_s
                agent.ahead_s = told.at_s - (before_s + after_s) / 2

    def start(self, agent: HostAgent, request: Message) -> Started:
        """Start a process on a host.

        Raises
        ------
        SessionError
            If it cannot be started.
        """
        started = self.request(agent, request, _START_LIMIT_S)
        if not isinstance(started, Started):
            raise SessionError(f"{agent.name} could not start a process")
        return started

    def open_streams(
        self, agent: HostAgent, files: Path, theirs: Mapping[Connection, socket.socket]
    ) -> int:
        """Pass on what is sent through these sockets to a rank that is to be started.

        Returns
        -------
        int
            The key of the rank.
        """
        with self._lock:
            self._keys += 1
            key = self._keys
        for their in theirs.values():
            their.setblocking(False)

        def begin() -> None:
            agent.keys.add(key)
            self._files[key] = files
            for connection, their in theirs.items():
                self._streams[key, connection] = _Stream(their, agent)
                self._watch((key, connection))

        self._post(begin)
        return key

    def pass_on(self, key: int, connection: Connection, data: bytes, sent: int) -> bool:
        """Pass on to a rank what would be written to its socket, without this detour.

        Parameters
        ----------
        key, connection
            The key of the rank, and its connection.
        data
            What to pass on.
        sent
            How many bytes were written to the socket so far.

        Returns
        -------
        bool
            False if it must be written to the socket: something else has to travel before it, or
            the rank is behind, or its connection is closed.
        """
        at = key, connection
        stream = self._streams.get(at)
        if stream is None or stream.relayed != sent or stream.unacknowledged >= STREAM_WINDOW:
            return False
        if self._to_do or not self._at_work.acquire(blocking=False):
            self._post(lambda: self._pass_on(at, stream, data))
            return True
        try:
            if self._streams.get(at) is stream:
                with interrupts.deferred():  # half a message would be taken for that of another
                    self._send_bytes(at, stream, data)
            if stream.unacknowledged >= STREAM_WINDOW:
                self._post(lambda: self._watch(at))
            if self._listener.has_message():  # which the thread would no longer be woken for
                self._wake()
        finally:
            self._at_work.release()
        return True

    def _pass_on(self, at: tuple[int, Connection], stream: _Stream, data: bytes) -> None:
        if self._streams.get(at) is stream:
            self._send_bytes(at, stream, data)
            self._watch(at)

    def forget(self, key: int) -> None:
        """Close the connections and files of a rank that was replaced or has not started."""
        self._post(lambda: self._forget(key))

    def close(self) -> None:
        """End all agents, and stop listening."""
        if self._closing:
            return
        self._closing = True
        if os.getpid() != self._owner:
            return
        for agent in list(self.agents):
            self.tell(agent, EndAgent())
        self._post(lambda: None)
        self._thread.join(5.0)

    # -- the thread ----------------------------------------------------------------------------

    def _post(self, do: Callable[[], None]) -> None:
        self._to_do.append(do)
        if not self._woken:  # so that what is sent to many ranks wakes the thread once
            self._wake()

    def _wake(self) -> None:
        self._woken = True
        with suppress(OSError):
            self._wake_write.send(b"x")

    def _serve(self) -> None:
        poller, listener = self._poller, self._listener
        for waited in (listener.admission, listener.events):
            poller.register(waited, _IN)
        for descriptor in (listener.fileno(), self._wake_read.fileno()):
            poller.register(descriptor, _IN)
        wait_ms = listener.look_again_ms
        try:
            while not (self._closing and not self._to_do):
                came = dict(poller.poll(wait_ms))
                with self._at_work:
                    self._work(came)
                    wait_ms = 0 if listener.has_message() else listener.look_again_ms
        finally:
            with self._at_work:
                for agent in list(self.agents):
                    self._lose(agent, "has left the session")
                self._listener.close()

    def _work(self, came: Mapping[Any, int]) -> None:
        self._take_all(came)
        for descriptor, events in came.items():
            at = self._by_descriptor.get(descriptor)
            if at in self._streams and events & _OUT:
                self._write(*at)
            if at in self._streams and events & (_IN | _ERROR):
                self._relay(*at)

    def _watch(self, at: tuple[int, Connection]) -> None:
        """Wait for what this connection of a rank needs from now on."""
        stream = self._streams.get(at)
        if stream is None:
            return
        room = stream.unacknowledged < STREAM_WINDOW and not stream.ended
        events = (_IN if room else 0) | (_OUT if stream.for_notebook else 0)
        if events != stream.waited_for:
            stream.waited_for = events
            self._poller.register(stream.socket.fileno(), events)  # without events: no longer
            self._by_descriptor[stream.socket.fileno()] = at

    def _close_stream(self, at: tuple[int, Connection]) -> None:
        stream = self._streams.pop(at)
        self._poller.register(stream.socket.fileno(), 0)
        self._by_descriptor.pop(stream.socket.fileno(), None)
        stream.socket.close()

    def _take_all(self, came: Mapping[Any, int]) -> None:
        if self._wake_read.fileno() in came:
            with suppress(OSError):
                self._wake_read.recv(1 << 12)
            self._woken = False  # before the rest: what comes later wakes it again
        while self._to_do:
            self._to_do.popleft()()
        if self._listener.admission in came:
            self._listener.admit(anybody=self.admitted is not None)
        if self._listener.events in came:
            for descriptor in self._listener.disconnected():
                for agent in list(self.agents):
                    if agent.descriptor == descriptor and not agent.lost:
                        self._lose(agent, "cannot be reached any more")
        for frames in self._listener.received():
            self._receive(frames)

    def _receive(self, frames: list[zmq.Frame]) -> None:
        identity = frames[0].bytes
        agent = self._by_identity.get(identity)
        if agent is not None and agent.lost:
            return
        try:
            received = from_frames([frame.bytes for frame in frames[1:]])
            if agent is None:
                self._join(identity, descriptor_of(frames), received.message)
            else:
                self._take(agent, received)
        except (FormatError, ValueError, TypeError, OverflowError, OSError) as error:
            if agent is None:
                self.refused = str(error)[:_LONGEST_REASON]
                self._refuse(identity, self.refused)
            else:
                self._send(agent, EndAgent())  # its ranks run as long as it does
                self._lose(agent, f"sent what cannot be read: {error}")

    def _refuse(self, identity: bytes, why: str) -> None:
        send_frames(self._router, [identity, *to_frames(Failed(error=why), 0, None)])

    def _join(self, identity: bytes, descriptor: int, hello: Message) -> None:
        if not isinstance(hello, AgentHello):
            return
        agents = [agent for agent in self.agents if not agent.lost]
        if self.admitted is None or len(agents) >= self.admitted:
            self._refuse(identity, "the session has all of its hosts")
            return
        plain = "".join(c if c.isalnum() or c in ".-_" else "_" for c in hello.label or hello.host)
        plain = plain[:_LONGEST_NAME] or "host"
        taken = {agent.name for agent in agents}
        name = next(
            one
            for number in range(len(taken) + 1)
            if (one := f"{plain}-{number + 1}" if number else plain) not in taken
        )
        agent = HostAgent(identity, descriptor, hello, name)
        with self._lock:
            self.agents = [*agents, agent]
        self._by_identity[identity] = agent
        self.refused = ""
        self._send(agent, AgentWelcome(framework=self.framework))

    def _take(self, agent: HostAgent, received: Envelope) -> None:
        match received.message:
            case RankBytes() | RankClosed() | Credit() | FileBytes() as of_rank:
                data = received.payload or b""
                if of_rank.key in agent.keys:
                    self._take_of_rank(of_rank, data)
                if isinstance(of_rank, FileBytes):  # those of a forgotten rank count as well
                    self._credit_files(agent, len(data))
            case ProcessesSeen() as seen:
                agent.seen = seen
            case ChildEnded(pid=pid, status=status):
                self._end(agent, pid, status)
            case ServerReady():
                agent.ready = True
            case Failed(error=error) if not received.number:
                if not agent.ready:
                    self.refused = f"{agent.name}: {error}"[:_LONGEST_REASON]
                self._lose(agent, f"has left the session: {error}")
            case answer:
                with self._answered:
                    if isinstance(answer, Started):
                        agent.pids.add(answer.pid)
                        self._ended.pop((agent.name, answer.pid), None)
                    if received.number in self._answers:
                        self._answers[received.number] = received
                        self._answered.notify_all()

    def _credit_files(self, agent: HostAgent, size: int) -> None:
        agent.files_taken += size
        if agent.files_taken >= CREDIT_BYTES:
            self._send(agent, Credit(key=0, connection="commands", size=agent.files_taken))
            agent.files_taken = 0

    def _take_of_rank(
        self, message: RankBytes | RankClosed | Credit | FileBytes, data: bytes
    ) -> None:
        if isinstance(message, FileBytes):
            self._write_file(message, data)
            return
        stream = self._streams.get((message.key, message.connection))
        if stream is None:
            return
        if isinstance(message, Credit):
            stream.unacknowledged -= message.size
            self._watch((message.key, message.connection))
            return
        if isinstance(message, RankClosed):
            stream.ended = True
        elif data:
            stream.for_notebook.append(data)
            if sum(map(len, stream.for_notebook)) > 2 * STREAM_WINDOW:
                raise FormatError("more than was asked for")
        self._write(message.key, message.connection)

    def _end(self, agent: HostAgent, pid: int, status: int) -> None:
        with self._lock:
            agent.pids.discard(pid)
            self._ended[agent.name, pid] = status
        self._news()

    def _lose(self, agent: HostAgent, why: str) -> None:
        """Note that an agent is gone, and all of its processes with it."""
        with self._answered:
            agent.lost = agent.lost or why
            for pid in agent.pids:
                self._ended[agent.name, pid] = -signal.SIGKILL
            agent.pids.clear()
            self._answered.notify_all()
        for key in tuple(agent.keys):
            self._forget(key)
        self._news()

    def _news(self) -> None:
        with suppress(OSError):
            self._news_write.send(b"x")

    def _send(
        self, agent: HostAgent, message: Message, number: int = 0, payload: bytes | None = None
    ) -> None:
        if not agent.lost:
            send_frames(self._router, [agent.identity, *to_frames(message, number, payload)])

    # -- connections and files of ranks --------------------------------------------------------

    def _relay(self, key: int, connection: Connection) -> None:
        stream = self._streams[key, connection]
        try:
            data = stream.socket.recv(BLOCK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            stream.relayed += len(data)
            self._send_bytes((key, connection), stream, data)
            self._watch((key, connection))
        else:
            self._send(stream.agent, RankClosed(key=key, connection=connection))
            self._close_stream((key, connection))

    def _send_bytes(self, at: tuple[int, Connection], stream: _Stream, data: bytes) -> None:
        key, connection = at
        stream.unacknowledged += len(data)
        self._send(stream.agent, RankBytes(key=key, connection=connection), payload=data)

    def _write(self, key: int, connection: Connection) -> None:
        stream = self._streams[key, connection]
        stream.taken += send_pending(stream.socket, stream.for_notebook)
        if stream.taken >= CREDIT_BYTES:
            credit = Credit(key=key, connection=connection, size=stream.taken)
            self._send(stream.agent, credit)
            stream.taken = 0
        if stream.ended and not stream.for_notebook:
            self._close_stream((key, connection))
        else:
            self._watch((key, connection))

    def _write_file(self, changed: FileBytes, data: bytes) -> None:
        at = changed.key, changed.file
        if at not in self._copies:
            files = self._files[changed.key]
            self._copies[at] = None
            with suppress(OSError):  # the folder was removed
                path = files.with_name(f"{files.name}.{changed.file}")
                self._copies[at] = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        descriptor = self._copies[at]
        if descriptor is None:
            return
        write_changes(descriptor, changed, data)

    def _forget(self, key: int) -> None:
        for at in [at for at in self._streams if at[0] == key]:
            for data in self._streams[at].for_notebook:  # as much as there is room for
                with suppress(OSError):
                    self._streams[at].socket.send(data)
            self._close_stream(at)
        for agent in self.agents:
            if key in agent.keys:
                agent.keys.discard(key)
                self._send(agent, RankClosed(key=key, connection="commands"))
                self._send(agent, RankClosed(key=key, connection="questions"))
        for copy in [copy for copy in self._copies if copy[0] == key]:
            descriptor = self._copies.pop(copy)
            if descriptor is not None:
                os.close(descriptor)
        self._files.pop(key, None)
