"""One host tries to reach another one at a free port, as the ranks' backends will.

Who connects sends the token of the listener first, and the listener answers with another one. So
each side knows that it reached the other and no program or host with the same address. Then each
message is its size and so many bytes, and one byte answers.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import statistics
import threading
import time
from contextlib import suppress

from ..model.hosts import Trial, TrialEnd

_TOKEN_BYTES = 32
_ROUND_TRIPS = 10
#: Longer than a packet may be on any network, so that a lost long packet shows.
_BLOCK_BYTES = 1 << 18
_LONGEST_BYTES = 1 << 28
_AT_ONCE = 16


class TrialListener:
    """Listens until `close`, or until a time limit.

    Parameters
    ----------
    address
        Where it listens, at a free port.
    token
        What others must know.
    limit_s
        How long it listens, in seconds.

    Raises
    ------
    OSError
        If it cannot listen there.
    """

    def __init__(self, address: str, token: str, limit_s: float) -> None:
        self._token = token
        self._until_s = time.monotonic() + limit_s
        self._listening = socket.create_server((address, 0))
        self._listening.settimeout(0.5)
        self.port = int(self._listening.getsockname()[1])
        self._closed = threading.Event()
        self._room = threading.Semaphore(_AT_ONCE)
        threading.Thread(target=self._serve, name="ddt-trial", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()

    def _serve(self) -> None:
        with self._listening:
            while not self._closed.is_set() and time.monotonic() < self._until_s:
                try:
                    connection, _ = self._listening.accept()
                except OSError:  # also TimeoutError
                    continue
                if self._room.acquire(blocking=False):
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
                else:
                    connection.close()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            try:
                connection.settimeout(max(0.1, min(10.0, self._until_s - time.monotonic())))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if not hmac.compare_digest(_receive(connection, _TOKEN_BYTES), _sent(self._token)):
                    return
                connection.sendall(_expected(self._token))
                while not self._closed.is_set():
                    size = int.from_bytes(_receive(connection, 4), "big")
                    if size > _LONGEST_BYTES:
                        return
                    _skip(connection, size)
                    connection.sendall(b"k")
            finally:
                self._room.release()


def try_connection(address: str, port: int, token: str, limit_s: float, size: int) -> Trial:
    """Connect to a `TrialListener`, and measure.

    Parameters
    ----------
    address, port, token
        Of the listener.
    limit_s
        Limit for each step, in seconds.
    size
        How many bytes to send for the measurement of the bandwidth; 0 for none.
    """
    end: TrialEnd = "no answer"
    round_trip_s = None
    try:
        with socket.create_connection((address, port), limit_s) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(_sent(token))
            if not hmac.compare_digest(_receive(connection, _TOKEN_BYTES), _expected(token)):
                return Trial(end="other")
            times = [_exchange(connection, 0) for _ in range(_ROUND_TRIPS)]
            round_trip_s = statistics.median(times)
            end = "stalled"
            _exchange(connection, _BLOCK_BYTES)
            if not size:
                return Trial(end="passed", round_trip_s=round_trip_s)
            connection.settimeout(10 * limit_s)
            took_s = max(_exchange(connection, size) - round_trip_s, 1e-9)
            return Trial(end="passed", round_trip_s=round_trip_s, bytes_per_s=size / took_s)
    except EOFError:
        return Trial(end="other" if round_trip_s is None else end, round_trip_s=round_trip_s)
    except ConnectionRefusedError as error:
        return Trial(end="refused", error=error.strerror or "")
    except TimeoutError:
        return Trial(end=end, round_trip_s=round_trip_s)
    except OSError as error:
        text = error.strerror or str(error)
        return Trial(end="unreachable" if round_trip_s is None else end, error=text)


def _exchange(connection: socket.socket, size: int) -> float:
    """Send a message of this size; returns how long its answer took, in seconds."""
    before_s = time.perf_counter()
    connection.sendall(size.to_bytes(4, "big"))
    left = size
    while left:
        block = bytes(min(left, _BLOCK_BYTES))
        connection.sendall(block)
        left -= len(block)
    _receive(connection, 1)
    return time.perf_counter() - before_s


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def _skip(connection: socket.socket, size: int) -> None:
    while size:
        part = len(connection.recv(min(size, _BLOCK_BYTES)))
        if not part:
            raise EOFError
        size -= part


def _sent(token: str) -> bytes:
    return hashlib.sha256(f"to {token}".encode()).digest()


def _expected(token: str) -> bytes:
    return hashlib.sha256(f"from {token}".encode()).digest()
