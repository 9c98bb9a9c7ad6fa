"""Encrypted connections between hosts: that of an agent to the notebook, and what listens there."""

from __future__ import annotations

import errno
import functools
import hmac
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from ..model import FormatError, codec
from ..wire.agent_messages import RankBytes
from ..wire.messages import Envelope, Message, decode, encode
from .errors import SessionError
from .join_key import JoinKey

#: Both sides notice within this time that the other one or the network is gone, in milliseconds.
#: The threads of ZeroMQ send and answer heartbeats, also while Python computes.
HEARTBEAT_EVERY_MS, LOST_AFTER_MS = 500, 2000
_HANDSHAKE_MS = 10_000
#: Plain numbers: an operation on ZeroMQ's flags takes some microseconds.
_IN, _OUT, _IN_OR_ERROR = int(zmq.POLLIN), int(zmq.POLLOUT), int(zmq.POLLIN | zmq.POLLERR)
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
#: So many heads of messages that carry bytes are kept, and the longest, in bytes.
_KEPT_HEADS, _SHORT_HEAD = 2048, 72
_ADMISSION = "inproc://zeromq.zap.01"
#: Who has not shown to have the key may send so many bytes; a handshake takes less than 1,000.
_MOST_BEFORE_KEY = 1 << 14
#: Where Linux's ``tcp_info`` has the number of bytes that a connection has received.
_RECEIVED_AT, _RECEIVED = 128, struct.Struct("=Q")
#: Closes a connection with a reset.
_RESET = struct.pack("ii", 1, 0)


class AgentLink:
    """The connection.

    Parameters
    ----------
    host, port
        Where the notebook listens.
    key
        The key of the session.
    peer_name
        What listens there, in messages.

    Raises
    ------
    SessionError
        If the notebook cannot be reached, is another one, or does not accept the key.
    """

    def __init__(self, host: str, port: int, key: JoinKey, peer_name: str = "notebook") -> None:
        self._peer_name = peer_name
        try:
            self.peer: tuple[str, int] = (socket.gethostbyname(host), port)
        except OSError as error:
            raise SessionError(f"the host {host} is not known here: {error}") from error
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.curve_serverkey = key.notebook
        self._socket.curve_secretkey = key.agents_secret
        self._socket.curve_publickey = zmq.curve_public(key.agents_secret)
        set_limits(self._socket)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._socket.setsockopt(zmq.CONNECT_TIMEOUT, _HANDSHAKE_MS)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._events = self._socket.get_monitor_socket()
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._events, zmq.POLLIN)
        self._registered: dict[int, int] = {}
        self._socket.connect(f"tcp://{self.peer[0]}:{port}")
        try:
            self._await_handshake(host, port)
        except SessionError:
            self.close()
            raise

    def _await_handshake(self, host: str, port: int) -> None:
        where = f"{host}:{port}"
        until_s = time.monotonic() + _HANDSHAKE_MS / 1000
        while time.monotonic() < until_s:
            if not self._events.poll(200):
                continue
            event = recv_monitor_message(self._events)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return
            if event in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
                break
            if event in (zmq.EVENT_CLOSED, zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECT_RETRIED):
                raise SessionError(
                    f"no {self._peer_name} with this key answers at {where}",
                    "it does not wait for hosts yet or any more, or another program listens there",
                )
        else:
            raise SessionError(f"nobody answers at {where}", "is a firewall in between?")
        raise SessionError(
            f"the {self._peer_name} at {where} does not accept this key",
            "a key is good for one start only",
        )

    def wait(
        self, readers: list[int], writers: list[int], timeout_s: float
    ) -> tuple[list[int], list[int]] | None:
        """Wait for the notebook, or for one of these descriptors.

        Returns
        -------
        tuple or None
            The descriptors that can be read and written; None if the connection has ended.
        """
        wanted: dict[int, int] = dict.fromkeys(readers, _IN)
        for descriptor in writers:
            wanted[descriptor] = wanted.get(descriptor, 0) | _OUT
        for descriptor in self._registered.keys() - wanted.keys():
            self._poller.unregister(descriptor)
        for descriptor, events in wanted.items():
            if self._registered.get(descriptor) != events:
                self._poller.register(descriptor, events)
        self._registered = wanted
        came = dict(self._poller.poll(round(timeout_s * 1000)))
        if self._events in came:
            while self._events.poll(0):
                event = recv_monitor_message(self._events)["event"]
                if event == zmq.EVENT_DISCONNECTED:
                    return None
        own = {d: e for d, e in came.items() if isinstance(d, int)}
        return (
            [d for d, e in own.items() if e & _IN_OR_ERROR],
            [d for d, e in own.items() if e & _OUT],
        )

    def received(self) -> Iterator[Envelope]:
        """The messages that have come."""
        while frames := _received(self._socket):
            yield from_frames([frame.bytes for frame in frames])

    def send(self, message: Message, number: int = 0, payload: bytes | None = None) -> None:
        """Send a message to the notebook."""
        send_frames(self._socket, to_frames(message, number, payload))

    def close(self) -> None:
        """Close the connection."""
        self._socket.disable_monitor()
        self._context.destroy(linger=200)


def _received(connection: zmq.Socket) -> list[zmq.Frame]:
    """The frames of the next message; none if none has come."""
    try:
        frames = [connection.recv(_NOBLOCK, copy=False)]
    except zmq.Again:
        return []
    while frames[-1].more:
        frames.append(connection.recv(_NOBLOCK, copy=False))
    return frames


def send_frames(connection: zmq.Socket, frames: list[bytes]) -> None:
    """Send a message."""
    for frame in frames[:-1]:
        connection.send(frame, _MORE)
    connection.send(frames[-1])


def set_limits(connection: zmq.Socket) -> None:
    """Set what both sides have in common."""
    connection.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_EVERY_MS)
    connection.setsockopt(zmq.HEARTBEAT_TIMEOUT, LOST_AFTER_MS)
    connection.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    # Credit limits what is on its way. A full queue would stop the heartbeats as well.
    connection.setsockopt(zmq.SNDHWM, 0)
    connection.setsockopt(zmq.RCVHWM, 0)
    connection.setsockopt(zmq.MAXMSGSIZE, 1 << 24)


class Listener:
    """The sockets of who listens; nobody without the key gets a message through.

    Parameters
    ----------
    secret
        The secret key of who listens, as CurveZMQ takes it.
    theirs
        The public key of those who may connect.
    """

    def __init__(self, secret: bytes, theirs: bytes) -> None:
        self._theirs = z85.decode(theirs)
        self.context = zmq.Context()
        self.admission = self.context.socket(zmq.REP)
        self.admission.bind(_ADMISSION)
        self.router = self.context.socket(zmq.ROUTER)
        self.router.curve_server = True
        self.router.curve_secretkey = secret
        self.router.setsockopt(zmq.ZAP_DOMAIN, b"ddt")
        self.router.setsockopt(zmq.LINGER, 300)
        set_limits(self.router)
        self.events = self.router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._port = 0
        self._without_key: set[int] = set()  # connections through which no message has come

    def bind(self, address: str, port: int) -> int:
        """Listen there; returns the port.

        Raises
        ------
        SessionError
            If that is not possible.
        """
        try:
            self.router.bind(f"tcp://{address}:{port}")
        except zmq.ZMQError as error:
            self.context.destroy(linger=0)
            taken = error.errno == errno.EADDRINUSE
            where = f"{address}:{port}" if port else address
            raise SessionError(
                f"this machine cannot listen at {where}: {os.strerror(error.errno or 0)}",
                "choose another port"
                if taken
                else "give one of its own addresses, which the other hosts can reach",
            ) from error
        endpoint = self.router.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
        self._port = int(endpoint.rpartition(":")[2])
        return self._port

    def admit(self, *, anybody: bool) -> None:
        """Say whether who connects may do so: who has the key, and if ``anybody`` may now."""
        version, number, *_, mechanism, key = self.admission.recv_multipart()[:7]
        welcome = anybody and mechanism == b"CURVE" and hmac.compare_digest(key, self._theirs)
        status = (b"200", b"OK") if welcome else (b"400", b"refused")  # ZeroMQ's RFC 27
        self.admission.send_multipart([version, number, *status, b"", b""])

    def disconnected(self) -> Iterator[int]:
        """The descriptors of the connections that have ended since the last call."""
        while self.events.poll(0):
            event = recv_monitor_message(self.events)
            descriptor = int(event["value"])
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._without_key.add(descriptor)
            else:
                self._without_key.discard(descriptor)
                yield descriptor

    def received(self) -> Iterator[list[zmq.Frame]]:
        """The messages that have come, each with the identity of its sender before it.

        ZeroMQ keeps what a stranger sends as its first message, which may be as long as any other,
        until the handshake takes too long. So who sends much before it has shown to have the key
        is disconnected.
        """
        while frames := _received(self.router):
            if self._without_key:
                self._without_key.discard(descriptor_of(frames))
            yield frames
        for descriptor in tuple(self._without_key):
            if not self._is_short(descriptor):
                self._without_key.discard(descriptor)

    def fileno(self) -> int:
        """A descriptor that can be read when messages may have come.

        Whoever uses the router may make it unreadable although a message is there, so
        `has_message` has to be asked before it is waited for.
        """
        return int(self.router.getsockopt(zmq.FD))

    def has_message(self) -> bool:
        """Whether `received` would return a message."""
        return bool(int(self.router.get(zmq.EVENTS)) & _IN)

    @property
    def look_again_ms(self) -> int:
        """How long one may wait before the next call of `received`, in milliseconds."""
        return 50 if self._without_key else 500

    def _is_short(self, descriptor: int) -> bool:
        """Whether this connection, which is not known to have the key, may stay as it is."""
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.getsockname()[1] != self._port or not hasattr(socket, "TCP_INFO"):
                return False
            size = _RECEIVED_AT + _RECEIVED.size
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
            if len(info) < size or _RECEIVED.unpack_from(info, _RECEIVED_AT)[0] < _MOST_BEFORE_KEY:
                return True
            # Without a reset, a sender whose window is closed would go on waiting for room.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
        return False

    def close(self) -> None:
        """Close all connections."""
        self.router.disable_monitor()
        self.context.destroy(linger=300)


def descriptor_of(frames: list[zmq.Frame]) -> int:
    """The descriptor of the connection through which a message has come."""
    return int(frames[-1].get(zmq.SRCFD))


def to_frames(message: Message, number: int, payload: bytes | None) -> list[bytes]:
    """The frames of a message."""
    if payload is None:
        return [encode(Envelope(message, number))]
    head = _head_of_bytes if isinstance(message, RankBytes) else _head
    return [head(message, number), payload]


def _head(message: Message, number: int) -> bytes:
    return encode(Envelope(message, number, b""))


#: What ranks send and receive is passed on in messages of few different heads.
_head_of_bytes = functools.lru_cache(_KEPT_HEADS)(_head)


def from_frames(frames: list[bytes]) -> Envelope:
    """The message in these frames.

    Raises
    ------
    FormatError
        If it is none.
    """
    if not 1 <= len(frames) <= 2:
        raise FormatError("what was received is not a message of ddt_notebook")
    with_payload = len(frames) == 2
    known = with_payload and len(frames[0]) <= _SHORT_HEAD
    envelope, has_payload = (_read_once if known else _read)(frames[0])
    if has_payload != with_payload:
        raise FormatError("what was received is not a message of ddt_notebook")
    return Envelope(envelope.message, envelope.number, frames[1] if has_payload else None)


def _read(head: bytes) -> tuple[Envelope, bool]:
    return decode(head, lambda data: codec.parse(data.decode()))


_read_once = functools.lru_cache(_KEPT_HEADS)(_read)


def send_pending(connection: socket.socket, pending: deque[bytes]) -> int:
    """Send as much of what is pending as there is room for; returns how many bytes.

    Nothing stays pending if the other side has closed the connection.
    """
    sent = 0
    while pending:
        data = pending[0]
        try:
            size = connection.send(data)
        except BlockingIOError:
            break
        except OSError:
            pending.clear()
            break
        sent += size
        if size == len(data):
            pending.popleft()
        else:
            pending[0] = data[size:]
    return sent
