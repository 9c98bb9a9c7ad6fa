"""The write-ahead log of a rank's calls: a ring of records in a mapped file.

The rank writes each record *before* it makes the call. The notebook can read them whatever happens
to the rank: SIGKILL, SIGABRT, a segmentation fault, or C code that never releases the interpreter.
There are one writer, any number of readers, and no lock.

The kernel may stop or kill a rank in the middle of a copy. Therefore the rank first writes data to
a place that no reader uses yet. Then a last copy of at most 8 bytes, which is atomic, makes the
data visible: the number of a record, its status, or the number that selects the valid one of the
two heads. If a record's number has changed after a reader copied the record, it reads again.
What readers may use is written through views of whole numbers, each in one copy; `struct.pack_into`
clears its target before it writes.

Layout of the file::

    header    valid head (8 bytes), two heads, version
    slots     SLOTS times SLOT_BYTES: one record each
    table     values that many records share, see `records`; only appended to
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..model import FormatError
from ..model.collective import CallStatus
from .mapped_file import MappedReader, create
from .records import (
    COUNTS,
    NO_COUNTS,
    NO_GROUP,
    NO_NUMBER,
    VERSION,
    CallRecord,
    Counts,
    Group,
    counts,
    decode,
    decode_group,
    encode_group,
    encode_shared,
    shared_key,
)

T = TypeVar("T")
#: How many records have been written, the number of the record in which the rank is blocked, plus
#: 1, and when a call last began or ended.
_Head = tuple[int, int, float]

SLOTS = 4096
SLOT_BYTES = 512
#: The file is sparse, so unwritten pages take no memory. 250 groups of 1000 ranks fit.
TABLE_BYTES = 1 << 20
_HEADER_BYTES = 64
NUMBER = struct.Struct("<Q")
# A head: how many records have been written; number of the record in which the rank is blocked,
# plus 1 (0: in none); since when. A turn counter before both heads selects the valid one, which is
# head number turn % 2.
HEAD = struct.Struct("<QQd")
STAMP_AT = NUMBER.size + 2 * HEAD.size
STAMP = struct.Struct("<4sI")
_MAGIC = b"ddt\0"
# A slot: number of the record plus 1; status; length of the encoded record; entered, left;
# operations after the call. The encoded record follows.
SLOT = struct.Struct("<QBxHxxxxddq")
STATUS_AT = NUMBER.size
END_AT = SLOT.size - 2 * NUMBER.size
_ROOM = SLOT_BYTES - SLOT.size
#: A slot without the number of its record.
_BEGUN = struct.Struct("<BxHxxxxddq")
#: The header and slots consist of numbers of this size, as do the heads.
_WORD = NUMBER.size
_SLOT_WORDS, _HEADER_WORDS, _HEAD_WORDS = SLOT_BYTES // _WORD, _HEADER_BYTES // _WORD, 3
_ENTERED_WORD, _LEFT_WORD, _OPERATIONS_WORD = range(END_AT // _WORD - 1, END_AT // _WORD + 2)
#: Those of `COUNTS`.
_NUMBER_WORD, _BEFORE_WORD, _BRANCHES_WORD, _HASH_WORD = range(
    SLOT.size // _WORD, SLOT.size // _WORD + 4
)
#: How many slots are made ready to be written to at once, and the advice that does so: Linux's
#: ``MADV_POPULATE_WRITE``.
_AHEAD, _POPULATE_WRITE = 64, 23
#: The most different calls that are kept encoded.
_MOST_KNOWN = 1024

TABLE_AT = _HEADER_BYTES + SLOTS * SLOT_BYTES
FILE_BYTES = TABLE_AT + TABLE_BYTES
#: The table begins with a number, 1 if something did not fit. Entries (length, bytes) follow.
LENGTH = struct.Struct("<I")

#: No clock reaches this time, in seconds.
_LATEST_S = 1e11
#: How often a reader repeats a read during which the rank wrote.
_ATTEMPTS = 20

PENDING, ISSUED, DONE, FAILED = range(4)
STATUS_NAMES: tuple[CallStatus, ...] = ("pending", "issued", "done", "failed")


@dataclass(slots=True)
class Record:
    """One record as read from the ring; times are monotonic seconds, 0 if not known."""

    index: int
    status: int
    entered_s: float
    left_s: float
    operations_after: int
    call: CallRecord


def _check(descriptor: int) -> None:
    stamp = os.pread(descriptor, STAMP.size, STAMP_AT)
    if len(stamp) < STAMP.size or not stamp.startswith(_MAGIC):
        raise FormatError("this file is not the call log of a rank")
    (_, version) = STAMP.unpack(stamp)
    if version != VERSION:
        raise FormatError(
            f"this rank's call log has version {version}, and this ddt_notebook reads version "
            f"{VERSION}: install the same ddt_notebook for the ranks and for the notebook"
        )


def _is_time(monotonic_s: float) -> bool:
    """Whether a clock can show this; False for NaN and what else a damaged file may hold."""
    return 0.0 <= monotonic_s < _LATEST_S


def head_at(turn: int) -> int:
    """Where the head of a turn begins."""
    return NUMBER.size + turn % 2 * HEAD.size


def slot_at(index: int) -> int:
    """Where the slot of a record begins."""
    return _HEADER_BYTES + (index % SLOTS) * SLOT_BYTES


class RingWriter:
    """The rank's side of the ring.

    Parameters
    ----------
    path
        Path of the file, which is created if it does not exist.
    reserve
        Whether to take the file's space on the disk now, see `mapped_file.create`.
    """

    def __init__(self, path: Path, *, reserve: bool = False) -> None:
        self._map = create(path, FILE_BYTES, reserve=reserve)
        whole = memoryview(self._map)[:TABLE_AT]
        # the same memory as numbers of each kind
        self._words, self._signed, self._times = whole.cast("Q"), whole.cast("q"), whole.cast("d")
        self._count = self._turn = 0
        self._texts: dict[str | None, int] = {None: 0, "": 0}
        self._groups: dict[Group, int] = {NO_GROUP: 0}
        self._encoded: dict[Hashable, bytes] = {}
        self._table_end = TABLE_AT + NUMBER.size
        self._put(TABLE_AT, NUMBER.pack(0))  # a reader that looks there finds a written page
        self._put(STAMP_AT, STAMP.pack(_MAGIC, VERSION))

    @property
    def written(self) -> int:
        """How many records have been written."""
        return self._count

    def begin(self, call: CallRecord, now_s: float, *, blocking: bool) -> int:
        """Write a record before its call is made, and return its index."""
        return self.begin_known(self.shared(call), counts(call), now_s, blocking=blocking)

    def shared(self, call: CallRecord) -> bytes:
        """The slot of equal calls, without what differs, as `begin_known` takes it."""
        key = shared_key(call)
        known = self._encoded.get(key)
        if known is None:
            if len(self._encoded) >= _MOST_KNOWN:
                self._encoded.clear()
            data = COUNTS.pack(*NO_COUNTS)
            data += encode_shared(call, self._text_at, self._callers_at, self._group_at, _ROOM)
            known = _BEGUN.pack(PENDING, len(data), 0.0, 0.0, -1) + data
            self._encoded[key] = known
        return known

    def begin_known(self, shared: bytes, counted: Counts, now_s: float, *, blocking: bool) -> int:
        """Write a record before its call is made, and return its index.

        Parameters
        ----------
        shared
            The result of `shared` for an equal call.
        counted
            What differs, as `records.counts` returns it.
        now_s
            The time.
        blocking
            Whether the rank is blocked in the call from now on.
        """
        index, words, signed, times = self._count, self._words, self._signed, self._times
        # a short program takes no more of the disk than it needs
        if not index % _AHEAD and 0 < index < SLOTS:
            self._make_ready(index)
        word = _HEADER_WORDS + index % SLOTS * _SLOT_WORDS
        at = word * _WORD + _WORD
        words[word] = 0  # from here on, nobody reads the slot
        self._map[at : at + len(shared)] = shared
        times[word + _ENTERED_WORD] = now_s
        number, signed[word + _BEFORE_WORD], branches, branch_hash = counted
        if number != NO_NUMBER:
            signed[word + _NUMBER_WORD] = number
        if branches != NO_NUMBER:
            signed[word + _BRANCHES_WORD] = branches
            words[word + _HASH_WORD] = branch_hash
        words[word] = count = self._count = index + 1
        # as `block` does
        turn = self._turn = self._turn + 1
        head = 1 + turn % 2 * _HEAD_WORDS
        words[head] = count
        words[head + 1] = count if blocking else 0
        times[head + 2] = now_s
        words[0] = turn
        return index

    def _make_ready(self, index: int) -> None:
        """Let the kernel map the pages of the next slots at once: each would be a fault."""
        if sys.platform == "linux":
            begin = slot_at(index)
            beyond = begin % mmap.PAGESIZE
            with contextlib.suppress(OSError):  # an older kernel
                self._map.madvise(_POPULATE_WRITE, begin - beyond, beyond + _AHEAD * SLOT_BYTES)

    def end(
        self, index: int, status: int, now_s: float, operations_after: int | None = None
    ) -> None:
        """Write how a call, or the wait for it, ended; the rank is no longer blocked."""
        words, times = self._words, self._times
        word = _HEADER_WORDS + index % SLOTS * _SLOT_WORDS
        if words[word] == index + 1:  # otherwise the slot already holds a later record
            times[word + _LEFT_WORD] = now_s
            if operations_after is not None:
                self._signed[word + _OPERATIONS_WORD] = operations_after
            self._map[word * _WORD + STATUS_AT] = status
        # as `block` does: this runs right after a wait, when the processor has to load all code
        turn = self._turn = self._turn + 1
        head = 1 + turn % 2 * _HEAD_WORDS
        words[head] = self._count
        words[head + 1] = 0
        times[head + 2] = now_s
        words[0] = turn

    def settle(self, index: int, status: int, now_s: float) -> None:
        """Write how an asynchronous call ended later."""
        word = _HEADER_WORDS + index % SLOTS * _SLOT_WORDS
        if self._words[word] == index + 1:
            self._times[word + _LEFT_WORD] = now_s
            self._map[word * _WORD + STATUS_AT] = status

    def block(self, index: int | None, now_s: float) -> None:
        """Write in which record the rank is blocked from now on; None for none."""
        turn, words = self._turn + 1, self._words
        head = 1 + turn % 2 * _HEAD_WORDS
        words[head] = self._count
        words[head + 1] = 0 if index is None else index + 1
        self._times[head + 2] = now_s
        words[0] = self._turn = turn

    def _put(self, at: int, data: bytes) -> None:
        self._map[at : at + len(data)] = data

    # -- the table -----------------------------------------------------------------------------

    def _text_at(self, text: str | None) -> int:
        known = self._texts.get(text)
        if known is None:
            assert text is not None
            known = self._texts[text] = self._append(text.encode(errors="surrogatepass"))
        return known

    def _callers_at(self, callers: str) -> int:
        """The offset of the lines that led to a call; they may take half of the table."""
        if callers not in self._texts and self._table_end > TABLE_AT + TABLE_BYTES // 2:
            return 0
        return self._text_at(callers)

    def _group_at(self, group: Group) -> int:
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = self._append(encode_group(group))
        return known

    def _append(self, data: bytes) -> int:
        """Add an entry and return its offset, or 0 if the table is full."""
        at = self._table_end
        if at + LENGTH.size + len(data) > FILE_BYTES:
            self._put(TABLE_AT, NUMBER.pack(1))
            return 0
        self._put(at, LENGTH.pack(len(data)) + data)
        self._table_end = at + LENGTH.size + len(data)
        return at - TABLE_AT


class RingReader(MappedReader):
    """The notebook's side of the ring; takes the path of a file that a `RingWriter` has created."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, FILE_BYTES, _check)
        self._texts: dict[int, str] = {0: ""}
        self._groups: dict[int, Group] = {0: NO_GROUP}
        self._turn, self._latest = b"", (0, 0, 0.0)  # the turn that was read last, and its head

    @property
    def turn(self) -> bytes:
        """Changes whenever a call begins or ends; it takes a microsecond to read."""
        return os.pread(self._descriptor, NUMBER.size, 0).ljust(NUMBER.size, b"\0")

    @property
    def count(self) -> int:
        """How many records the rank has written since it started."""
        return self._head()[0]

    @property
    def blocked_in(self) -> tuple[int, float] | None:
        """Index of the record in which the rank is blocked, and since when; None if not blocked."""
        _, number, since_s = self._head()
        return (number - 1, since_s) if number else None

    @property
    def changed_s(self) -> float:
        """When a call last began or ended, in the clock's seconds; 0 if none has."""
        return self._head()[2]

    @property
    def table_full(self) -> bool:
        """Whether names or groups are missing from records, because the table was full."""
        return bool(NUMBER.unpack(self._content(TABLE_AT, NUMBER.size))[0])

    def _head(self) -> _Head:
        turn = self.turn
        if turn == self._turn:  # the writer has at most written to the other head meanwhile
            return self._latest
        for _ in range(_ATTEMPTS):
            before, head = turn, self._bytes(head_at(*NUMBER.unpack(turn)), HEAD.size)
            turn = self.turn
            if turn == before:
                break
        count, number, since_s = HEAD.unpack(head)
        self._turn = turn if turn == before else b""
        self._latest = count, number, since_s if _is_time(since_s) else 0.0
        return self._latest

    def status(self, index: int) -> int | None:
        """Status of a record, None if a later record has taken its slot."""
        number, status, *_ = SLOT.unpack(self._bytes(slot_at(index), SLOT.size))
        return int(status) if number == index + 1 else None

    def read(self, index: int) -> Record | None:
        """One record, None if a later record has taken its slot."""
        at = slot_at(index)
        for _ in range(_ATTEMPTS):
            slot = self._bytes(at, SLOT_BYTES)
            number, status, length, entered, left, after = SLOT.unpack_from(slot)
            if number != index + 1:
                return None
            if self._bytes(at, SLOT.size) != slot[: SLOT.size]:
                continue  # the rank wrote to it while it was copied
            if status > FAILED or not (_is_time(entered) and _is_time(left)):
                return None  # the file was damaged
            try:
                data = slot[SLOT.size : SLOT.size + length]
                call = decode(data, self._text_of, self._group_of)
            except (ValueError, struct.error, IndexError):
                continue
            return Record(index, status, entered, left, after, call)
        return None

    def _text_of(self, offset: int) -> str:
        return self._entry(self._texts, offset, lambda data: data.decode(errors="surrogatepass"))

    def _group_of(self, offset: int) -> Group:
        return self._entry(self._groups, offset, decode_group)

    def _entry(self, known: dict[int, T], offset: int, build: Callable[[bytes], T]) -> T:
        """An entry of the table; entries never change once a record refers to them."""
        found = known.get(offset)
        if found is None:
            at = TABLE_AT + offset
            (length,) = LENGTH.unpack(self._content(at, LENGTH.size))
            begin = at + LENGTH.size
            found = known[offset] = build(self._content(begin, length))
        return found
