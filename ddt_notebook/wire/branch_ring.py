"""The ring of branch events of a rank, in a mapped file that outlives the process.

The technique is that of `ring`: one writer, any number of readers, no lock. An event is only the
index of its outcome, in 4 bytes; a table describes each outcome once. So writing an event takes
a fraction of a microsecond, and always-on recording is affordable.

Layout of the file::

    header    version, number of events, number of events when the run began, end of the table,
              number of events that the counters include
    times     MOST_OUTCOMES counters: how often the rank went each way in this run
    events    EVENTS indices of outcomes
    table     one JSON array for each outcome; only appended to
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from ..model import FormatError, codec
from ..model.branches import BranchOutcome
from .mapped_file import MappedReader, create

#: Version of the layout; a reader rejects a file that has another one.
VERSION = 2
_MAGIC = int.from_bytes(b"ddtways\0", "little")
#: How many events are kept; a power of two.
EVENTS = 8192
#: After this many events, the writer counts them.
COUNT_EACH = EVENTS // 2
#: Index 0 stands for all outcomes that no longer fit into the table.
MOST_OUTCOMES = 4096
_TABLE_BYTES = 1 << 20
_HEADER_NUMBERS = 8
_TIMES_AT = 8 * _HEADER_NUMBERS
_EVENTS_AT = _TIMES_AT + 8 * MOST_OUTCOMES
_TABLE_AT = _EVENTS_AT + 4 * EVENTS
FILE_BYTES = _TABLE_AT + _TABLE_BYTES
_LENGTH = struct.Struct("<I")
#: Positions in the header.
_VERSION, COUNT_AT, _RUN_START, _TABLE_END, _COUNTED = 1, 2, 3, 4, 5

#: What the table holds of an outcome.
_FIELDS = ("file", "line", "function", "kind", "to_line", "error")
_OTHER = BranchOutcome(file="", line=0)


def _check(descriptor: int) -> None:
    if os.fstat(descriptor).st_size != FILE_BYTES:
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
    events, header
        Parts of the file, for the recorder, which writes events itself.
    """

    __slots__ = (
        "_counted",
        "_map",
        "_outcomes",
        "_table_end",
        "_times",
        "count",
        "events",
        "header",
        "run_start",
    )

    def __init__(self, path: Path, *, reserve: bool = False) -> None:
        self._map = create(path, FILE_BYTES, reserve=reserve)
        whole = memoryview(self._map)
        self.header = whole[:_TIMES_AT].cast("Q")
        self._times = whole[_TIMES_AT:_EVENTS_AT].cast("Q")
        self.events = whole[_EVENTS_AT:_TABLE_AT].cast("I")
        self._table_end = _TABLE_AT
        self._outcomes = 1
        self.count = self.run_start = self._counted = 0
        self.header[_VERSION] = VERSION
        self.header[_TABLE_END] = _TABLE_AT
        self.header[0] = _MAGIC

    def begin_run(self) -> None:
        """Begin a new run: forget all outcomes, so that a long session does not fill the table."""
        for index in range(self._outcomes):
            self._times[index] = 0
        self._outcomes = 1
        self._table_end = self.header[_TABLE_END] = _TABLE_AT
        self.run_start = self.header[_RUN_START] = self.count
        self._counted = self.header[_COUNTED] = self.count

    def add_outcome(self, outcome: BranchOutcome) -> int:
        """Describe an outcome, and return its index; 0 if the table is full."""
        data = json.dumps([getattr(outcome, name) for name in _FIELDS]).encode()
        end = self._table_end + _LENGTH.size + len(data)
        if self._outcomes >= MOST_OUTCOMES or end > FILE_BYTES:
            return 0
        self._map[self._table_end : end] = _LENGTH.pack(len(data)) + data
        self._table_end = self.header[_TABLE_END] = end
        self._outcomes += 1
        return self._outcomes - 1

    def write(self, index: int) -> int:
        """Write an event, the index of its outcome, and return the number of all events."""
        count = self.count
        self.events[count & (EVENTS - 1)] = index
        self.count = self.header[COUNT_AT] = count = count + 1
        if not count % COUNT_EACH:
            self.count_times()
        return count

    def since(self, number: int) -> list[int]:
        """The events from a number on, of which the ring must still hold all."""
        return [self.events[at & (EVENTS - 1)] for at in range(number, self.count)]

    def count_times(self) -> None:
        """Count the events since the last call by outcome."""
        for index, times in Counter(self.since(self._counted)).items():
            self._times[index] += times
        self._counted = self.header[_COUNTED] = self.count


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
        super().__init__(path, FILE_BYTES, _check)

    @property
    def has_events(self) -> bool:
        """Whether the current run has had any events; takes microseconds."""
        header = self._numbers("Q", _HEADER_NUMBERS, 0)
        return bool(header[COUNT_AT] > header[_RUN_START])

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
        header = self._numbers("Q", _HEADER_NUMBERS, 0)
        count, run_start = header[COUNT_AT], header[_RUN_START]
        kept = min(count, EVENTS)
        slots = self._numbers("I", kept, _EVENTS_AT)
        not_counted = range(max(header[_COUNTED], run_start), count)
        outcomes = self._outcomes(
            header[_TABLE_END], Counter(slots[number % EVENTS] for number in not_counted)
        )
        written = self._numbers("Q", _HEADER_NUMBERS, 0)[COUNT_AT]
        oldest = max(run_start, written - EVENTS)
        events = [slots[number % EVENTS] for number in range(oldest, count)]
        known = len(outcomes)
        return BranchLog(
            outcomes=tuple(outcomes),
            events=tuple(index if index < known else 0 for index in events),
            events_dropped=oldest - run_start,
        )

    def _numbers(self, kind: str, count: int, at: int) -> tuple[int, ...]:
        form = f"<{count}{kind}"
        return struct.unpack(form, self._content(at, struct.calcsize(form)))

    def _outcomes(self, table_end: int, not_counted: Counter[int]) -> list[BranchOutcome]:
        found = [_OTHER]
        at = _TABLE_AT
        while at < table_end:
            try:
                (length,) = _LENGTH.unpack(self._content(at, _LENGTH.size))
                at += _LENGTH.size
                found.append(_outcome(self._content(at, length)))
            except (struct.error, ValueError):  # the file was damaged
                break
            at += length
        times = self._numbers("Q", len(found), _TIMES_AT)
        return [
            replace(outcome, times=number + not_counted[index])
            for index, (outcome, number) in enumerate(zip(found, times, strict=True))
        ]
