"""One host tries to reach another one at a free port, as the ranks' backends will.

Who connects sends the token of the listener first, and the listener answers with another one. So
each side knows that it reached the other and no program or host with the same address. Then each
message is its size and so many bytes, and the answer says for how many nanoseconds the listener has
waited for a processor meanwhile.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..model.hosts import Trial, TrialEnd

_TOKEN_BYTES = 32
_ROUND_TRIPS = 10
#: Longer than a packet may be on any network, so that a lost long packet shows.
_BLOCK_BYTES = 1 << 18
_LONGEST_BYTES = 1 << 28
#: The bandwidth is the best of so long messages, since a busy host delays some of them.
_MESSAGE_BYTES = 1 << 21
#: No further message is sent after this time and so many round trips, which slow the first ones.
_LONG_ENOUGH_S, _LONG_ENOUGH_TRIPS = 0.3, 20
#: How much of its time a message needs in any case, of which a processor may explain the rest.
_LEAST_PART = 0.05
_ANSWER_BYTES = 8
_SCHEDULED = Path("/proc/thread-self/schedstat")
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
                before_s = _waited_s()
                while not self._closed.is_set():
                    size = int.from_bytes(_receive(connection, 4), "big")
                    if size > _LONGEST_BYTES:
                        return
                    _skip(connection, size)
                    waited_s = _waited_s() - before_s
                    connection.sendall(round(1e9 * waited_s).to_bytes(_ANSWER_BYTES, "big"))
                    before_s += waited_s
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
        How many bytes to send at most for the measurement of the bandwidth; 0 for none.
    """
    end: TrialEnd = "no answer"
    round_trip_s = None
    try:
        with socket.create_connection((address, port), limit_s) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(_sent(token))
            if not hmac.compare_digest(_receive(connection, _TOKEN_BYTES), _expected(token)):
                return Trial(end="other")
            times = [_exchange(connection, 0)[0] for _ in range(_ROUND_TRIPS)]
            round_trip_s = statistics.median(times)
            end = "stalled"
            _exchange(connection, _BLOCK_BYTES)
            if not size:
                return Trial(end="passed", round_trip_s=round_trip_s)
            connection.settimeout(10 * limit_s)
            best, at_most = _bandwidth(connection, size, min(times))
            return Trial(end="passed", round_trip_s=round_trip_s, bytes_per_s=best, at_most=at_most)
    except EOFError:
        return Trial(end="other" if round_trip_s is None else end, round_trip_s=round_trip_s)
    except ConnectionRefusedError as error:
        return Trial(end="refused", error=error.strerror or "")
    except TimeoutError:
        return Trial(end=end, round_trip_s=round_trip_s)
    except OSError as error:
        text = error.strerror or str(error)
        return Trial(end="unreachable" if round_trip_s is None else end, error=text)


def _bandwidth(connection: socket.socket, size: int, round_trip_s: float) -> tuple[float, float]:
    """How fast messages of so many bytes in all arrive.

    Returns
    -------
    tuple
        The best of them, and the same without the time in which it waited for a processor.
    """
    found = []
    until_s = time.monotonic() + _LONG_ENOUGH_S + _LONG_ENOUGH_TRIPS * round_trip_s
    for _ in range(max(1, size // _MESSAGE_BYTES)):
        took_s, waited_s = _exchange(connection, _MESSAGE_BYTES)
        took_s -= min(round_trip_s, took_s / 2)
        found.append((took_s, max(took_s - waited_s, _LEAST_PART * took_s)))
        if time.monotonic() > until_s:
            break
    took_s, least_s = min(found)
    return _MESSAGE_BYTES / took_s, _MESSAGE_BYTES / least_s


def _exchange(connection: socket.socket, size: int) -> tuple[float, float]:
    """Send a message of this size.

    Returns
    -------
    tuple
        How long its answer took, and for how much of that both sides have waited for a processor,
        in seconds.
    """
    waited_s = -_waited_s()
    before_s = time.perf_counter()
    connection.sendall(size.to_bytes(4, "big"))
    left = size
    while left:
        block = bytes(min(left, _BLOCK_BYTES))
        connection.sendall(block)
        left -= len(block)
    there_s = int.from_bytes(_receive(connection, _ANSWER_BYTES), "big") / 1e9
    took_s = time.perf_counter() - before_s
    return took_s, waited_s + _waited_s() + there_s


def _waited_s() -> float:
    """For how long this thread has been ready to run, and has not run; 0 if it is not known."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


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
