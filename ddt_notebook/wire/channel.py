"""The one seam between the notebook and its ranks: JSON messages over an inherited socket pair.

A socket pair has no name and no port: nobody but the two processes that hold its ends can speak
on it. Messages are JSON, so nothing that a rank sends is ever unpickled on arrival; a message may
carry one block of bytes beside it. The end of the stream tells that the other side is gone.
"""

from __future__ import annotations

import json
import socket
import threading
from multiprocessing.connection import Connection
from typing import Any

Message = dict[str, Any]


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

    def send(self, message: Message, payload: bytes | None = None) -> None:
        """Send a message, with a block of bytes if there is one.

        Raises
        ------
        Closed
            If the other side is gone.
        """
        if payload is not None:
            message = message | {"payload": True}
        text = json.dumps(message, separators=(",", ":")).encode()
        try:
            with self._sending:
                self._connection.send_bytes(text)
                if payload is not None:
                    self._connection.send_bytes(payload)
        except OSError as error:
            raise Closed from error

    def receive(self) -> Message:
        """Wait for the next message; its block of bytes, if any, is under ``"payload"``.

        Raises
        ------
        Closed
            If the other side is gone.
        """
        try:
            message: Message = json.loads(self._connection.recv_bytes())
            if message.get("payload"):
                message["payload"] = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise Closed from error
        return message

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
