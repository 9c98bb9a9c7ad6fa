"""One rank's log as the rank writes it and as the notebook reads it, without a rank."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddt_notebook.host.call_log_reader import RankRecorder
from ddt_notebook.model import Call
from ddt_notebook.wire import ring
from ddt_notebook.wire.records import CallRecord, FlightEntry, Group
from ddt_notebook.wire.ring import RingReader, RingWriter


class RankLog:
    """A ring, its recorder, and the count of operations that a backend would keep."""

    def __init__(self, folder: Path, rank: int = 0, members: Sequence[int] = (0, 1)) -> None:
        path = folder / f"rank{rank}.calls"
        self.members = tuple(members)
        self.operations = 0
        self.open = 0  #: a call that has begun, for tests that end it later
        self.flown: list[FlightEntry] = []
        self.writer = RingWriter(path)
        self.recorder = RankRecorder(RingReader(path), lambda cell, line: f"  {cell}:{line}")

    def begin(self, op: str = "all_reduce", **fields: Any) -> int:
        """The rank enters a call."""
        known = {"group": Group("0", self.members), "operations_before": self.operations}
        record = CallRecord(op=op, **(known | fields))
        blocking = not record.asynchronous
        return self.writer.begin(record, time.monotonic(), blocking=blocking)

    def end(self, index: int, status: int = ring.DONE, operations: int = 1) -> None:
        """The rank leaves the call, which issued this many operations to the backend."""
        self.operations += operations
        self.writer.end(index, status, time.monotonic(), self.operations)

    def call(self, op: str = "all_reduce", *, operations: int = 1, **fields: Any) -> int:
        """A call that the rank enters and leaves."""
        index = self.begin(op, **fields)
        self.end(index, operations=operations)
        return index

    def library(self, *, done: bool = True, op: str = "all_reduce", **fields: Any) -> None:
        """DDP issues a collective: only the Flight Recorder sees it."""
        self.operations += 1
        self.fly(self.operations, done=done, op=op, **fields)

    def fly(self, number: int, *, done: bool = True, **fields: Any) -> None:
        """The Flight Recorder's entry for operation ``number`` arrives."""
        known = {"op": "all_reduce", "shapes": ((4,),), "dtypes": ("float32",)}
        known["created_ns"] = time.time_ns()
        entry = FlightEntry(group="0", number=number, done=done, **(known | fields))
        self.flown.append(entry)
        self.recorder.add_flight([entry])

    def calls(self) -> tuple[Call, ...]:
        """The notebook's report on this rank now."""
        self.recorder.drain()
        return self.recorder.calls({"0": self.members}).calls

    def numbered(self) -> list[tuple[str, int | None, str]]:
        """Operation, sequence number and source of each call, by number."""
        calls = sorted(self.calls(), key=lambda call: call.sequence or 0)
        return [(call.op, call.sequence, call.source) for call in calls]


#: How a client of CurveZMQ begins.
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE").ljust(64, b"\0")
LIMIT_S = 30.0


def is_ended_though_it_sends_on(port: int) -> bool:
    """Whether a connection is closed that begins with a message of 16 MB and has no key."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
        try:
            connection.sendall(GREETING + b"\x06" + struct.pack(">Q", (1 << 24) - 1))
            for _ in range(63):
                connection.sendall(bytes(1 << 18))
            while connection.recv(1 << 10):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
    return True


def garbage() -> Iterator[bytes]:
    """What programs without a key might send, without an end."""
    random_ = random.Random(1)
    while True:
        yield random_.randbytes(200)
        yield GREETING + random_.randbytes(400)
        yield b"GET / HTTP/1.0\r\n\r\n"
        yield GREETING[: random_.randrange(64)]
