"""The connection between the notebook and a rank: messages over an inherited socket pair.

A socket pair has no name and no port: only the two processes that hold its ends can use it.
Messages are JSON (see `messages`), so nothing that a rank sends is unpickled on arrival. A message
may carry a block of bytes. The stream ends when the other process ends.
"""

from __future__ import annotations

import select
import socket
import threading
from dataclasses import replace
from multiprocessing.connection import Connection

from .messages import Envelope, Message, decode, encode


class Closed(Exception):
    """The other side has closed its end."""


class Channel:
    """One end of the connection. Any thread may send; only one thread may receive."""

    def __init__(self, connection: socket.socket | int) -> None:
        handle = connection if isinstance(connection, int) else connection.detach()
        self._connection = Connection(handle)
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._connection.fileno()

    def send(self, message: Message, *, number: int = 0, payload: bytes | None = None) -> None:
        """Send a message.

        Parameters
        ----------
        message
            What to send.
        number
            Number of the request, repeated in its answer; 0 for a message without request.
        payload
            A block of bytes to send along.

        Raises
        ------
        Closed
            If the other side has closed its end.
        """
        data = encode(Envelope(message, number, payload))
        try:
            with self._sending:
                self._connection.send_bytes(data)
                if payload is not None:
                    self._connection.send_bytes(payload)
        except OSError as error:
            raise Closed from error

    def receive(self) -> Envelope:
        """Wait for the next message.

        Raises
        ------
        Closed
            If the other side has closed its end.
        FormatError
            If the other side uses another version of the messages.
        """
        try:
            envelope, has_payload = decode(self._connection.recv_bytes())
            if has_payload:
                return replace(envelope, payload=self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Closed from error
        return envelope

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Whether a message or the end of the stream arrives within ``timeout_s`` seconds."""
        try:
            return self._connection.poll(timeout_s)
        except OSError:
            return True  # receive() will raise Closed

    @property
    def hung_up(self) -> bool:
        """Whether the other side has closed its end; messages that it sent may still be waiting."""
        poller = select.poll()
        try:
            poller.register(self._connection.fileno(), 0)  # POLLHUP is reported in any case
        except OSError:
            return True
        return bool(poller.poll(0))

    def close(self) -> None:
        """Close this end; closing it again has no effect."""
        self._connection.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Our end, and the socket to hand to the rank."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
