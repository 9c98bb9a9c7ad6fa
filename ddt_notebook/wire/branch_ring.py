"""The ring of branch events of a rank, in a mapped file that outlives the process.

The technique is that of `ring`: one writer, any number of readers, no lock. An event is only the
index of its outcome, in 4 bytes; a table describes each outcome once. So writing an event takes
less than a microsecond, and always-on recording is affordable.

Layout of the file::

    header    version, number of events, number of events when the run began, end of the table
    times     MOST_OUTCOMES counters: how often the rank went each way in this run
    events    EVENTS indices of outcomes
    table     one JSON array for each outcome; only appended to
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from ..model import FormatError, codec
from ..model.branches import BranchOutcome
from .mapped_file import MappedReader, create

#: Version of the layout; a reader rejects a file that has another one.
VERSION = 1
_MAGIC = int.from_bytes(b"ddtways\0", "little")
#: How many events are kept.
EVENTS = 8192
#: Index 0 stands for all outcomes that no longer fit into the table.
MOST_OUTCOMES = 4096
_TABLE_BYTES = 1 << 20
_HEADER_NUMBERS = 8
_TIMES_AT = 8 * _HEADER_NUMBERS
_EVENTS_AT = _TIMES_AT + 8 * MOST_OUTCOMES
_TABLE_AT = _EVENTS_AT + 4 * EVENTS
_FILE_BYTES = _TABLE_AT + _TABLE_BYTES
_LENGTH = struct.Struct("<I")
#: Positions in the header.
_VERSION, _COUNT, _RUN_START, _TABLE_END = 1, 2, 3, 4

#: What the table holds of an outcome.
_FIELDS = ("file", "line", "function", "kind", "to_line", "error")
_OTHER = BranchOutcome(file="", line=0)


def _check(descriptor: int) -> None:
    if os.fstat(descriptor).st_size != _FILE_BYTES:
        raise FormatError("this file does not hold the branch events of a rank")
    if struct.unpack("<QQ", os.pread(descriptor, 16, 0)) != (_MAGIC, VERSION):
        raise FormatError("this file does not hold branch events that this version reads")


class BranchRingWriter:
    """The rank's side.

    Parameters
    ----------
    path
        Path of the file, which is created if it does not exist.
    reserve
        Whether to take the file's space on the disk now, see `mapped_file.create`.

    Attributes
    ----------
    count
        How many events were written.
    run_start
        How many of them before the current run.
    """

    def __init__(self, path: Path, *, reserve: bool = False) -> None:
        self._map = create(path, _FILE_BYTES, reserve=reserve)
        whole = memoryview(self._map)
        self._header = whole[:_TIMES_AT].cast("Q")
        self._times = whole[_TIMES_AT:_EVENTS_AT].cast("Q")
        self._events = whole[_EVENTS_AT:_TABLE_AT].cast("I")
        self._table_end = _TABLE_AT
        self._outcomes = 1
        self.count = self.run_start = 0
        self._header[_VERSION] = VERSION
        self._header[_TABLE_END] = _TABLE_AT
        self._header[0] = _MAGIC

    def begin_run(self) -> None:
        """Begin a new run: forget all outcomes, so that a long session does not fill the table."""
        for index in range(self._outcomes):
            self._times[index] = 0
        self._outcomes = 1
        self._table_end = self._header[_TABLE_END] = _TABLE_AT
        self.run_start = self._header[_RUN_START] = self.count

    def add_outcome(self, outcome: BranchOutcome) -> int:
        """Describe an outcome, and return its index; 0 if the table is full."""
        data = json.dumps([getattr(outcome, name) for name in _FIELDS]).encode()
        end = self._table_end + _LENGTH.size + len(data)
        if self._outcomes >= MOST_OUTCOMES or end > _FILE_BYTES:
            return 0
        self._map[self._table_end : end] = _LENGTH.pack(len(data)) + data
        self._table_end = self._header[_TABLE_END] = end
        self._outcomes += 1
        return self._outcomes - 1

    def write(self, index: int) -> None:
        """Write an event: the index of its outcome."""
        count = self.count
        self._events[count % EVENTS] = index
        self._times[index] += 1
        self.count = self._header[_COUNT] = count + 1


def _outcome(data: bytes) -> BranchOutcome:
    """The outcome that `BranchRingWriter.add_outcome` wrote; raises `ValueError` if it is none."""
    plain = codec.parse(data.decode())
    if not isinstance(plain, list) or len(plain) != len(_FIELDS):
        raise FormatError("this is not an outcome of a branch")
    return codec.from_plain(BranchOutcome, dict(zip(_FIELDS, plain, strict=True)))


@dataclass(frozen=True, slots=True)
class BranchLog:
    """What the ring held at one moment; the fields are those of `RankBranches`."""

    outcomes: tuple[BranchOutcome, ...] = ()
    events: tuple[int, ...] = ()
    events_dropped: int = 0


class BranchRingReader(MappedReader):
    """The notebook's side; takes the path of a file that a `BranchRingWriter` has created."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _FILE_BYTES, _check)

    @property
    def has_events(self) -> bool:
        """Whether the current run has had any events; takes microseconds."""
        header = struct.unpack_from(f"<{_HEADER_NUMBERS}Q", self._map)
        return bool(header[_COUNT] > header[_RUN_START])

    def read(self) -> BranchLog:
        """The events of the current run, as far as they are kept.

        A rank that still runs may overwrite the oldest ones during the read; these are left out.
        If a cell has written to the file, there are none.
        """
        try:
            return self._read()
        except (ValueError, TypeError, IndexError, RecursionError, struct.error):
            return BranchLog()

    def _read(self) -> BranchLog:
        header = struct.unpack_from(f"<{_HEADER_NUMBERS}Q", self._map)
        count, run_start = header[_COUNT], header[_RUN_START]
        # a page that was never written has no place on a full disk, and reading it is a SIGBUS
        kept = min(count, EVENTS)
        slots = struct.unpack_from(f"<{kept}I", self._map, _EVENTS_AT)
        outcomes = self._outcomes(header[_TABLE_END])
        written = struct.unpack_from(f"<{_HEADER_NUMBERS}Q", self._map)[_COUNT]
        oldest = max(run_start, written - EVENTS)
        events = [slots[number % EVENTS] for number in range(oldest, count)]
        known = len(outcomes)
        return BranchLog(
            outcomes=tuple(outcomes),
            events=tuple(index if index < known else 0 for index in events),
            events_dropped=oldest - run_start,
        )

    def _outcomes(self, table_end: int) -> list[BranchOutcome]:
        found = [_OTHER]
        at = _TABLE_AT
        while at < table_end:
            try:
                (length,) = _LENGTH.unpack_from(self._map, at)
                at += _LENGTH.size
                found.append(_outcome(self._map[at : at + length]))
            except (struct.error, ValueError):  # the file was damaged
                break
            at += length
        times = struct.unpack_from(f"<{len(found)}Q", self._map, _TIMES_AT)
        return [
            replace(outcome, times=number) for outcome, number in zip(found, times, strict=True)
        ]
