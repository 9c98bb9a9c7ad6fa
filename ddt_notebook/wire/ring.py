"""The write-ahead log of a rank's calls: a ring in a mapped file.

The rank writes each record *before* it makes the call. The pages belong to the file, not to the
process, so the notebook reads them whatever happens to the rank: SIGKILL, SIGABRT, a segmentation
fault, or C code that never gives the interpreter back. One writer, any number of readers, no lock:
a record's number is written last, and a reader that finds it changed under its hands reads again.

The kernel may stop a rank, or kill it, in the middle of a copy. So whatever belongs together is
written where nobody looks yet, and a last copy of at most 8 bytes, which cannot be halved, says
that it is there: a record's number, its status, or which of the two heads holds. Whole bytes are
copied, since `struct.pack_into` would clear its target first.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLOTS = 4096
SLOT_BYTES = 512
_HEADER_BYTES = 64
_NUMBER = struct.Struct("<Q")
# Of the two heads, that holds whose place is the turn's remainder; the turn itself comes before
# them. Records written so far; number of the record in which the rank is blocked, plus 1 (0: in
# none); since when.
_HEAD = struct.Struct("<QQd")
# record number plus 1; status; length of the JSON; entered, left; operations after the call
_SLOT = struct.Struct("<QBxHxxxxddq")
_STATUS_AT = 8
_END = struct.Struct("<dq")
_END_AT = _SLOT.size - _END.size
#: Fields that may be long: file, function, shapes, dtypes, shapes of outputs, library, rendezvous.
_LONG = frozenset({"f", "n", "s", "d", "o", "lib", "z"})
_ROOM = SLOT_BYTES - _SLOT.size

#: How often a reader looks again at what changes under its hands.
_ATTEMPTS = 20

PENDING, ISSUED, DONE, FAILED = range(4)
STATUS_NAMES = ("pending", "issued", "done", "failed")


@dataclass(slots=True)
class Record:
    """One record as read from the ring; times are monotonic seconds, 0 if not known."""

    index: int
    status: int
    entered_s: float
    left_s: float
    operations_after: int
    fields: dict[str, Any]


def _open(path: Path, *, create: bool) -> mmap.mmap:
    size = _HEADER_BYTES + SLOTS * SLOT_BYTES
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        if create:
            os.ftruncate(descriptor, size)
        access = mmap.ACCESS_WRITE if create else mmap.ACCESS_READ
        return mmap.mmap(descriptor, size, access=access)
    finally:
        os.close(descriptor)


def _shortened(fields: Mapping[str, Any]) -> bytes:
    """The record without its line and tensors, and without the members if those do not fit."""
    kept = {name: value for name, value in fields.items() if name not in _LONG}
    for without in ((), ("m",), ("m", "g")):
        short = {name: value for name, value in kept.items() if name not in without}
        text = json.dumps(short, separators=(",", ":")).encode()
        if len(text) <= _ROOM:
            break
    return text[:_ROOM]


def _head_at(turn: int) -> int:
    return _NUMBER.size + turn % 2 * _HEAD.size


class RingWriter:
    """The rank's side."""

    def __init__(self, path: Path) -> None:
        self._map = _open(path, create=True)
        self._count = self._turn = 0

    def begin(self, fields: Mapping[str, Any], now_s: float, *, blocking: bool) -> int:
        """Write a record before its call is made; returns its index."""
        index = self._count
        text = json.dumps(fields, separators=(",", ":")).encode()
        if len(text) > _ROOM:  # a path or a list of shapes was too long: keep what identifies it
            text = _shortened(fields)
        at = self._offset(index)
        self._put(at, _SLOT.pack(0, PENDING, len(text), now_s, 0.0, -1))
        self._put(at + _SLOT.size, text)
        self._put(at, _NUMBER.pack(index + 1))
        self._count = index + 1
        self.block(index if blocking else None, now_s)
        return index

    def end(self, index: int, status: int, now_s: float, operations_after: int) -> None:
        """Write how a call ended; the rank is no longer blocked."""
        self._finish(index, status, now_s, operations_after)
        self.block(None, now_s)

    def settle(self, index: int, status: int, now_s: float) -> None:
        """Write the later end of an asynchronous call."""
        self._finish(index, status, now_s, None)

    def block(self, index: int | None, now_s: float) -> None:
        """Say in which record the rank is blocked from now on; None for none."""
        self._turn += 1
        blocked = 0 if index is None else index + 1
        self._put(_head_at(self._turn), _HEAD.pack(self._count, blocked, now_s))
        self._put(0, _NUMBER.pack(self._turn))

    def _finish(self, index: int, status: int, now_s: float, operations: int | None) -> None:
        at = self._offset(index)
        number, *_, known = _SLOT.unpack_from(self._map, at)
        if number == index + 1:  # else the ring has come round: the record is gone
            self._put(at + _END_AT, _END.pack(now_s, known if operations is None else operations))
            self._put(at + _STATUS_AT, bytes((status,)))

    def _put(self, at: int, data: bytes) -> None:
        self._map[at : at + len(data)] = data

    @staticmethod
    def _offset(index: int) -> int:
        return _HEADER_BYTES + (index % SLOTS) * SLOT_BYTES


class RingReader:
    """The notebook's side."""

    def __init__(self, path: Path) -> None:
        self._map = _open(path, create=False)

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    @property
    def count(self) -> int:
        """Records written since the rank started."""
        return self._head()[0]

    @property
    def blocked_in(self) -> tuple[int, float] | None:
        """Index of the record in which the rank is blocked, and since when; None if in none."""
        _, number, since_s = self._head()
        return (number - 1, since_s) if number else None

    def _head(self) -> tuple[int, int, float]:
        for _ in range(_ATTEMPTS):
            (turn,) = _NUMBER.unpack(self._map[: _NUMBER.size])
            at = _head_at(turn)
            head = self._map[at : at + _HEAD.size]
            if _NUMBER.unpack(self._map[: _NUMBER.size])[0] == turn:
                break  # the writer was at the other head, if anywhere
        count, number, since_s = _HEAD.unpack(head)
        return count, number, since_s

    def status(self, index: int) -> int | None:
        """Status of a record, None if the ring has come round over it."""
        number, status, *_ = _SLOT.unpack_from(self._map, RingWriter._offset(index))
        return int(status) if number == index + 1 else None

    def read(self, index: int) -> Record | None:
        """One record, None if the ring has come round over it."""
        at = RingWriter._offset(index)
        for _ in range(_ATTEMPTS):
            slot = self._map[at : at + SLOT_BYTES]
            number, status, length, entered, left, after = _SLOT.unpack_from(slot)
            if number != index + 1:
                return None
            if self._map[at : at + _SLOT.size] != slot[: _SLOT.size]:
                continue  # written to in the meantime
            text = slot[_SLOT.size : _SLOT.size + length]
            try:
                return Record(index, status, entered, left, after, json.loads(text))
            except ValueError:  # cut short, or half written: read again
                continue
        return None
