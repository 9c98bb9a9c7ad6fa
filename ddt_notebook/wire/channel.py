"""The connection between the notebook and a rank: messages over an inherited socket pair.

A socket pair has no name and no port: only the two processes that hold its ends can use it.
Messages are JSON (see `messages`), so nothing that a rank sends is unpickled on arrival; a block of
bytes may travel beside a message. The stream ends when the other process does.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from multiprocessing.connection import Connection

from .messages import Envelope, Message, decode, encode


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """One end. Sending is safe from any thread; receive from one thread only."""

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
            Number of the request, also in its answer; 0 for what nobody has asked for.
        payload
            A block of bytes to send along.

        Raises
        ------
        Closed
            If the other side is gone.
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
            If the other side is gone.
        FormatError
            If the other side uses other messages than this one.
        """
        try:
            envelope, has_payload = decode(self._connection.recv_bytes())
            if has_payload:
                return replace(envelope, payload=self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Closed from error
        return envelope

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Whether a message (or the end of the stream) is there within ``timeout_s`` seconds."""
        try:
            return self._connection.poll(timeout_s)
        except OSError:
            return True  # receive() will say that it is closed

    def close(self) -> None:
        """Close this end; twice does no harm."""
        self._connection.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Our end, and the socket to hand to the rank."""
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs
