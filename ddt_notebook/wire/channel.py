"""The connection between the notebook and a rank: messages over an inherited socket pair.

A socket pair has no name and no port: only the two processes that hold its ends can use it.
Messages are JSON (see `messages`), so nothing that a rank sends is unpickled on arrival. A message
may carry a block of bytes. The stream ends when the other process ends.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

from .messages import VERSION, Envelope, Message, decode, encode

#: Length of the header in which `Connection` sends the size of a message below 2 GiB, and what each
#: message begins with.
_HEADER, _BEGINNING = 4, f"[{VERSION},".encode()
#: For how long the rest of a message may be missing, in whole seconds.
_SILENCE_S = 60
#: The longest message without its payload, in bytes.
_LONGEST = 1 << 28
#: The longest message that may be diverted, in bytes; longer ones must wait for room.
_SHORT = 1 << 14


class Closed(Exception):
    """The other side has closed its end."""


class Channel:
    """One end of the connection. Any thread may send; only one thread may receive.

    Parameters
    ----------
    connection
        The socket.
    wary
        Whether the other side may send anything: a cell can write to the connection of its rank.
    """

    def __init__(self, connection: socket.socket | int, *, wary: bool = False) -> None:
        handle = connection if isinstance(connection, int) else connection.detach()
        self._connection = Connection(handle)
        self._wary = wary
        self._sending = threading.Lock()
        self._divert: Callable[[bytes, int], bool] | None = None
        self._sent = 0

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._connection.fileno()

    def divert(self, way: Callable[[bytes, int], bool]) -> None:
        """Send short messages another way from now on.

        Parameters
        ----------
        way
            Called with what would be written to the socket and how many bytes were written to it so
            far; returns whether it has sent this. Otherwise it is written to the socket.
        """
        self._divert = way

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
                short = payload is None and len(data) <= _SHORT
                if short and self._divert is not None:
                    framed = struct.pack("!i", len(data)) + data  # as `Connection` does
                    if self._divert(framed, self._sent):
                        return
                for part in (data,) if payload is None else (data, payload):
                    self._connection.send_bytes(part)
                    self._sent += _HEADER + len(part)
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
        if self._wary:
            self._refuse_other_text()
        try:
            envelope, has_payload = decode(self._connection.recv_bytes(_LONGEST))
            if has_payload:
                return replace(envelope, payload=self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise Closed from error
        return envelope

    def _refuse_other_text(self) -> None:
        """Raise `Closed` if what has arrived does not begin like a message.

        Text would be taken for the size of a message, and the rest would be waited for.
        """
        try:
            handle = self._connection.fileno()
            arrived = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=handle)
        except OSError:
            return
        try:
            flags = socket.MSG_PEEK | socket.MSG_DONTWAIT
            begin = arrived.recv(_HEADER + len(_BEGINNING), flags)[_HEADER:]
        except OSError:
            return
        finally:
            arrived.detach()
        if not _BEGINNING.startswith(begin):
            raise Closed

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

    def end(self) -> None:
        """End the connection, also for a thread that waits for a message here."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end; closing it again has no effect."""
        self._connection.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """Our end, and the socket to hand to the rank."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _SILENCE_S, 0))
    return Channel(ours, wary=True), theirs
