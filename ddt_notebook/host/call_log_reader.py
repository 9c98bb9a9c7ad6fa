"""Turns a rank's call log and its Flight Recorder into one list of `Call`s.

A call that our wrapper recorded and the Flight Recorder's entries for it are one call. An entry
without a record of the wrapper was issued by a library, such as DDP's reducer. Both kinds are
numbered in one sequence for each group, so that ranks can be compared call by call. They are
matched by the number of operations that the group's backend has received: a record contains this
number before and after the call, and each entry of the Flight Recorder contains it, too.

A long cell makes more calls than can be kept. `thin` drops the oldest calls that agree on all
ranks, so that what disagrees is never lost.
"""

from __future__ import annotations

import bisect
import linecache
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..model import Call, FormatError, Position, flight
from ..model.frameworks import known_operation
from ..model.operations import SENDS
from ..model.user_code import package_file
from ..wire import ring
from ..wire.records import FlightEntry, decode_callers, with_members
from ..wire.ring import Record, RingReader

#: Returns the text of a line of a cell: cell number, line number.
SourceLine = Callable[[int, int], str]

#: Records that are kept for each rank; those that agree on all ranks are dropped first.
KEEP = 2000
#: Group, ranks concerned, sequence number, tag of a message.
_Key = tuple[str, tuple[int, ...], int, int | None]


@dataclass(slots=True)
class _Noted:
    """A record with its place in the group's sequence."""

    record: Record
    sequence: int | None


@dataclass(slots=True)
class _GroupCount:
    """The sequence of one group on one rank."""

    sequence: int = 0
    operations: int = 0
    # of each record: operations before it, operations after it, and the sequence number it reached
    starts: list[int] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    known_from: int = 0

    def trim(self) -> None:
        """Forget all records but the last, since all later operations come after it."""
        if self.starts:
            self.known_from = self.starts[-1]
        for history in (self.starts, self.ends, self.reached):
            del history[:-1]


@dataclass(frozen=True, slots=True)
class CallList:
    """The calls of one rank.

    Attributes
    ----------
    calls
        The calls in order of time.
    left_out
        How many calls of the run are not in the list.
    by_record
        Index of a call by the index of its record in the ring.
    by_flight
        Index of a call by group and operation of its entry in the Flight Recorder.
    joined
        As in `RankReport`.
    """

    calls: tuple[Call, ...] = ()
    left_out: int = 0
    joined: Call | None = None
    by_record: dict[int, int] = field(default_factory=dict)
    by_flight: dict[tuple[str, int], int] = field(default_factory=dict)


class RankRecorder:
    """The calls of one rank, as far as the notebook has read them.

    Parameters
    ----------
    reader
        The rank's ring.
    source_line
        Gives the text of a line of a cell: cell number, line number.
    wall_s
        The wall clock of the rank's host minus its monotonic clock; by default of this one.
    """

    def __init__(
        self, reader: RingReader, source_line: SourceLine, *, wall_s: float | None = None
    ) -> None:
        self._reader = reader
        self._source_line = source_line
        self._next = 0
        self._noted: dict[int, _Noted] = {}
        self._open: set[int] = set()
        self._turn = b""  # the ring's turn when its records were read last
        #: Since when the rank was blocked when its records were read last; None if it was not.
        self.blocked_since_s: float | None = None
        self._awaits_work = False  # whether a call may end without a turn, as asynchronous ones do
        self._run_start = 0
        self._joined: _Noted | None = None  # the last init_process_group of an earlier cell
        self._new_groups = 0
        self._groups: dict[str, _GroupCount] = {}
        self._flight: dict[tuple[str, int], FlightEntry] = {}
        self._formed_s: float | None = None  # when the user's code began to form its last groups
        self._again_s = -math.inf  # the same, if it had formed groups before
        self._members: dict[str, tuple[int, ...]] = {}  # of groups that only libraries use, too
        self._wall_offset_s = time.time() - time.monotonic() if wall_s is None else wall_s
        self.dropped = 0
        self.overflowed = False
        self.thin_at = 2 * KEEP
        #: As in `BranchValues`, for the current run.
        self.branch_marks: tuple[tuple[int, int], ...] = ()
        self._positions: dict[tuple[str, int, str], Position] = {}
        self._callers: dict[str, tuple[Position, ...]] = {}
        self._changes = 0  # how often what was read has changed
        self._latest: tuple[tuple[Any, ...], CallList] | None = None

    def close(self) -> None:
        """Close the ring."""
        self._reader.close()

    # -- reading -------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """Forget earlier cells' calls, except for the counts."""
        self.drain()
        self._changes += 1
        self._positions.clear()  # the user may have changed a file
        self._callers.clear()
        for group in self._groups.values():
            group.trim()
        self._joined = _last_joined(self._noted.values(), self._joined)
        # the user may wait in this cell for handles of earlier cells
        self._noted = {i: n for i, n in self._noted.items() if i in self._open}
        self.thin_at = 2 * KEEP
        self._run_start = self._next
        self._flight.clear()
        self.branch_marks = ()
        self.dropped = 0
        self.overflowed = False

    def new_generation(self) -> None:
        """Start all counts from 0, since the process groups were formed again."""
        self.drain()
        self._changes += 1
        self._groups.clear()
        self._new_groups = 0
        self._flight.clear()
        self._members.clear()
        self._noted.clear()
        self._open.clear()
        self._joined = None

    def drain(self) -> bool:
        """Read the new records of the ring, and the ends of earlier calls, if there may be any."""
        turn = self._reader.turn
        if turn == self._turn and not self._awaits_work:
            return False
        self._turn = turn
        count = self._reader.count  # read first: all calls before a new record have ended by then
        for index in sorted(self._open):
            self._refresh(index)
        oldest = max(self._next, count - ring.SLOTS)
        self.overflowed |= oldest > self._next
        for index in range(oldest, count):
            record = self._reader.read(index)
            if record is None:
                self.overflowed = True
                continue
            self._number(record)
        self._next = count
        blocked = self._reader.blocked_in
        self.blocked_since_s = None if blocked is None else blocked[1]
        open_ = (self._noted[index].record for index in self._open if index in self._noted)
        self._awaits_work = any(record.status == ring.ISSUED for record in open_)
        return True

    def add_flight(self, entries: Iterable[FlightEntry]) -> None:
        """Add entries of the Flight Recorder; a later version of an entry replaces it.

        Groups that are formed again have the names of earlier ones, and count from 1 again: what
        was issued in those is left out, or a rank would seem to have made a call that it has not.
        """
        self._changes += 1
        for entry in entries:
            if self._entered_s(entry) < self._again_s:
                continue
            if entry.members:
                self._members[entry.group] = entry.members
            key = (entry.group, entry.number)
            known = self._flight.get(key)
            if known is not None and entry.where is None and entry.library is None:
                entry = replace(entry, where=known.where, library=known.library)
            self._flight[key] = entry
        for key in list(self._flight)[: max(0, len(self._flight) - 2 * KEEP)]:
            del self._flight[key]

    def flight(self, most: int) -> tuple[FlightEntry, ...]:
        """The ``most`` latest entries of the Flight Recorder that are known."""
        return with_members(list(self._flight.values())[-most:], self._members)

    def _refresh(self, index: int) -> None:
        known = self._noted.get(index)
        if known is not None and self._reader.status(index) == known.record.status:
            return
        self._changes += 1
        record = self._reader.read(index)
        noted = self._noted.get(index)
        if record is None or noted is None:
            self._open.discard(index)
            return
        noted.record = record
        if record.status in (ring.DONE, ring.FAILED):
            self._open.discard(index)
        self._extend_end(record)

    def _extend_end(self, record: Record) -> None:
        group = self._groups.get(record.call.group.name)
        before = record.call.operations_before
        if group is None or record.operations_after < 0 or before < 0:
            return
        at = bisect.bisect_right(group.starts, before) - 1
        if at >= 0 and group.starts[at] == before:
            group.ends[at] = record.operations_after
            group.operations = max(group.operations, record.operations_after)

    def _number(self, record: Record) -> None:
        self._changes += 1
        call = record.call
        sequence = call.number
        self._new_groups += call.op == "new_group" and bool(call.group.members)
        if call.op == "init_process_group":
            self._restart_counts(record.entered_s)
        if call.group.name and not call.outside and call.kind in ("collective", "p2p"):
            group = self._groups.setdefault(call.group.name, _GroupCount())
            before = call.operations_before
            if before >= 0:
                # a library issued the operations in between, which count as separate calls
                group.sequence += max(0, before - group.operations)
                group.operations = max(group.operations, before)
            if call.kind == "collective":
                group.sequence = group.sequence + 1 if sequence is None else sequence
                sequence = group.sequence
            if before >= 0:
                known = record.operations_after
                group.starts.append(before)
                group.ends.append(known if known >= 0 else math.inf)
                group.reached.append(group.sequence)
                group.operations = max(group.operations, known)
        self._noted[record.index] = _Noted(record, sequence)
        if record.status in (ring.PENDING, ring.ISSUED):
            self._open.add(record.index)

    def _restart_counts(self, formed_s: float) -> None:
        """Restart operation counts after the user's cell forms groups again; sequences continue."""
        if self._formed_s is not None:
            self._again_s = formed_s
        self._formed_s = formed_s
        for group in self._groups.values():
            group.operations = group.known_from = 0
            for history in (group.starts, group.ends, group.reached):
                history.clear()
        self._flight.clear()
        self._members.clear()

    # -- what was read -------------------------------------------------------------------------

    @property
    def names_missing(self) -> bool:
        """Whether calls may lack their file, function or group, for which the log had no room."""
        return self._reader.table_full

    @property
    def blocked(self) -> tuple[int, float] | None:
        """Index of the record in which the rank is blocked, and since when; None if not blocked."""
        return self._reader.blocked_in

    def reached(self) -> dict[str, int]:
        """For each group, the sequence number of the rank's last collective."""
        latest = {name: group.sequence for name, group in self._groups.items()}
        for name, number in self._flight:
            sequence = self._flight_sequence(name, number)
            if sequence is not None:
                latest[name] = max(latest.get(name, 0), sequence)
        return latest

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Members of each group that this rank's calls name."""
        groups = (noted.record.call.group for noted in self._noted.values())
        known = {group.name: group.members for group in groups if group.name and group.members}
        return self._members | known

    @property
    def new_groups(self) -> int:
        """How many groups all ranks made together, as far as this rank took part."""
        return self._new_groups

    @property
    def failed(self) -> bool:
        """Whether any call of this run raised."""
        return any(noted.record.status == ring.FAILED for noted in self._noted.values())

    @property
    def saw_libraries(self) -> bool:
        """Whether a library issued collectives in this run, as the Flight Recorder shows."""
        return any(self._flight_sequence(*key) is not None for key in self._flight)

    def pending_flight(self) -> tuple[str, int] | None:
        """The oldest incomplete entry that a library issued."""
        pending = [
            key
            for key, entry in self._flight.items()
            if not entry.done and self._flight_sequence(*key) is not None
        ]
        return min(pending, key=lambda key: self._flight[key].created_ns, default=None)

    def open_on_device(self) -> tuple[str, int] | None:
        """The oldest operation that was issued to a device and is not complete there."""
        return min(self._open_there(), key=lambda key: self._flight[key].created_ns, default=None)

    def _open_there(self) -> list[tuple[str, int]]:
        return [key for key in self._flight if self._is_open(key)]

    def _is_open(self, key: tuple[str, int]) -> bool:
        return self._flight[key].on_device and not self._flight[key].done

    def _record_of(self, name: str, number: int) -> int | None:
        """Index of the record of the call that issued an operation to a group's backend."""
        for index, noted in self._noted.items():
            call, after = noted.record.call, noted.record.operations_after
            begun = call.group.name == name and 0 <= call.operations_before < number
            pending = after < 0 and noted.record.status == ring.PENDING
            if begun and (number <= after or pending):
                return index
        return None

    def calls(self, members: dict[str, tuple[int, ...]], last: int | None = None) -> CallList:
        """The calls of this run, in order of time.

        Parameters
        ----------
        members
            Members of the groups by name, for calls that a library issued.
        last
            How many of the latest records to return; default: all.
        """
        known = {name: members.get(name, ()) for name, _ in self._flight}
        state = (self._changes, last, self.blocked, known, self.branch_marks)
        if last is not None and self._latest is not None and self._latest[0] == state:
            return self._latest[1]
        found = self._calls(known, last)
        if last is not None:
            self._latest = state, found
        return found

    def _calls(self, members: dict[str, tuple[int, ...]], last: int | None) -> CallList:
        blocked = self.blocked
        noted = [
            n
            for index, n in self._noted.items()
            if index >= self._run_start or (blocked is not None and blocked[0] == index)
        ]
        flight = [
            (key, sequence)
            for key in list(self._flight)
            if (sequence := self._flight_sequence(*key)) is not None
        ]
        left_out, joined = self.dropped, self._joined
        open_there = {key: self._record_of(*key) for key in self._open_there()}
        issued = set(open_there.values())
        if last is not None:
            # a host may have issued many calls behind the one that is open on the device
            since = next((i for i, n in enumerate(noted) if n.record.index in issued), math.inf)
            first = int(min(since, max(0, len(noted) - last)))
            since = next((i for i, (key, _) in enumerate(flight) if self._is_open(key)), math.inf)
            first_flight = int(min(since, max(0, len(flight) - last)))
            left_out += first + first_flight
            joined = _last_joined(noted[:first], joined)
            noted, flight = noted[first:], flight[first_flight:]
        found: list[tuple[float, _Noted | tuple[tuple[str, int], int]]] = []
        found += [(n.record.entered_s, n) for n in noted]
        found += [(self._entered_s(self._flight[key]), (key, n)) for key, n in flight]
        found.sort(key=lambda item: item[0])
        by_record: dict[int, int] = {}
        by_flight: dict[tuple[str, int], int] = {}
        calls = []
        for index, (entered_s, origin) in enumerate(found):
            if isinstance(origin, _Noted):
                by_record[origin.record.index] = index
                calls.append(self._call(origin, index))
                if origin.record.index in issued and calls[-1].status == "done":
                    calls[-1] = replace(calls[-1], status="issued")
            else:
                key, sequence = origin
                by_flight[key] = index
                calls.append(self._library_call(key, sequence, index, entered_s, members))
        by_flight |= {key: by_record[n] for key, n in open_there.items() if n in by_record}
        before = self._call(joined, joined.record.index) if joined is not None else None
        return CallList(tuple(calls), left_out, before, by_record, by_flight)

    def _entered_s(self, entry: FlightEntry) -> float:
        """When an operation of a library began; its entry contains wall-clock times."""
        return entry.created_ns / 1e9 - self._wall_offset_s

    def _call(self, noted: _Noted, index: int) -> Call:
        """The call of a record."""
        record, call = noted.record, noted.record.call
        called_from = package_file(call.library) if call.library else None
        return Call(
            index=index,
            op=call.op,
            kind=call.kind,
            group=call.group.name,
            members=() if call.outside else call.group.members,
            sequence=None if call.outside else noted.sequence,
            status=ring.STATUS_NAMES[record.status],
            reduce_op=call.reduce_op,
            detail=call.detail,
            root=call.root,
            peer=call.peer,
            tag=call.tag,
            shapes=call.shapes,
            dtypes=call.dtypes,
            output_shapes=call.output_shapes,
            where=self._position(call.file, call.line, call.function) if call.file else None,
            callers=self._called_from(call.callers) if call.callers else (),
            caller=None if called_from else flight.library(call.library),
            called_from=called_from,
            asynchronous=call.asynchronous,
            gives_up_after_s=call.gives_up_after_s or None,
            entered_s=record.entered_s,
            left_s=record.left_s or None,
            rendezvous=call.rendezvous,
            new_members=call.new_members,
            branches_before=call.branches_before,
            branch_hash=call.branch_hash,
        )

    def _library_call(
        self,
        key: tuple[str, int],
        sequence: int,
        index: int,
        entered_s: float,
        members: dict[str, tuple[int, ...]],
    ) -> Call:
        """The call of an entry of the Flight Recorder."""
        entry = self._flight[key]
        at = entry.where
        return Call(
            index=index,
            op=entry.op,
            group=entry.group,
            members=members.get(entry.group, ()),
            sequence=sequence,
            status="done" if entry.done else "issued" if entry.on_device else "pending",
            shapes=entry.shapes,
            dtypes=entry.dtypes,
            output_shapes=entry.output_shapes,
            where=self._position(at.file, at.line, at.function) if at is not None else None,
            source="flight recorder",
            caller=entry.library,
            entered_s=entered_s,
            branches_before=self._branches_before(entry),
        )

    def _position(self, file: str, line: int, function: str) -> Position:
        """A line with its text, which is read once in a run."""
        known = self._positions.get((file, line, function))
        if known is not None:
            return known
        at = Position(file=file, line=line, function=function)
        if at.cell is not None:
            code = self._source_line(at.cell, line)
        else:
            code = ""
            with suppress(ValueError):  # no file has such a name
                code = linecache.getline(file, line)
        found = replace(at, code=code.strip()[:200])
        self._positions[file, line, function] = found
        return found

    def _called_from(self, callers: str) -> tuple[Position, ...]:
        """The lines that led to a call, with their texts."""
        known = self._callers.get(callers)
        if known is None:
            try:
                known = tuple(self._position(*line) for line in decode_callers(callers))
            except FormatError:
                known = ()
            self._callers[callers] = known
        return known

    def _branches_before(self, entry: FlightEntry) -> int | None:
        """How many branch events precede an operation that DDP issued; None if that is unknown."""
        marks = self.branch_marks
        at = bisect.bisect_right(marks, (entry.created_ns, math.inf)) - 1
        return marks[at][1] if at >= 0 and marks[at][1] >= 0 else None

    def _flight_sequence(self, name: str, number: int) -> int | None:
        """Sequence number of a library's operation; None if it is part of a recorded call."""
        group = self._groups.get(name)
        if group is None:
            return number
        at = bisect.bisect_left(group.starts, number) - 1  # the last record that began before it
        if at < 0:  # before all known records, so in an earlier cell or before any cell
            return number if number > group.known_from else None
        if number <= group.ends[at]:
            return None
        return group.reached[at] + number - int(group.ends[at])

    # -- staying bounded -----------------------------------------------------------------------

    def matchable(self, rank: int) -> dict[_Key, tuple[int, tuple[Any, ...]]]:
        """Completed records, oldest first, by a key that is the same on all ranks concerned.

        The values are the index of the record, and the fields that must agree. The second part of a
        key contains the ranks concerned: the members of the group, or sender and receiver.
        """
        found: dict[_Key, tuple[int, tuple[Any, ...]]] = {}
        for index, noted in self._noted.items():
            call, sequence = noted.record.call, noted.sequence
            if noted.record.status != ring.DONE or not call.group.members or not sequence:
                continue
            name, tensors = call.group.name, (call.shapes, call.dtypes)
            if call.kind == "collective":
                operation = known_operation(call.op)
                if operation is not None and operation.uneven:
                    tensors = ((), call.dtypes)
                key: _Key = (name, call.group.members, sequence, None)
                found[key] = (index, (call.op, call.reduce_op, call.root, *tensors))
            elif call.kind == "p2p" and call.peer is not None:
                ends = (rank, call.peer)
                ends = ends if call.op in SENDS else ends[::-1]
                found[name, ends, sequence, call.tag] = (index, tensors)
        return found

    def drop_oldest(self, count: int) -> None:
        """Forget completed records whether they agree or not; `overflowed` then shows that."""
        done = [i for i, n in self._noted.items() if n.record.status == ring.DONE]
        self.drop(done[:count])
        self.overflowed |= count > 0

    def drop(self, indexes: list[int]) -> None:
        """Forget records that agree on every rank concerned."""
        self._changes += bool(indexes)
        for index in indexes:
            del self._noted[index]
        self.dropped += len(indexes)

    def __len__(self) -> int:
        return len(self._noted)


def _last_joined(noted: Iterable[_Noted], before: _Noted | None) -> _Noted | None:
    """The last record of an ``init_process_group`` that succeeded."""
    joined = (n for n in noted if n.record.call.op == "init_process_group")
    return max(
        (n for n in joined if n.record.status == ring.DONE),
        key=lambda n: n.record.index,
        default=before,
    )


def thin(recorders: dict[int, RankRecorder]) -> None:
    """Drop the oldest calls that agree on all ranks concerned, if a rank has too many calls.

    Parameters
    ----------
    recorders
        The recorders of all ranks, by rank.
    """
    if all(len(recorder) < recorder.thin_at for recorder in recorders.values()):
        return
    old = {
        rank: dict(list(recorder.matchable(rank).items())[:-KEEP])
        for rank, recorder in recorders.items()
    }
    for rank, records in old.items():
        droppable = []
        for key, (index, fields) in records.items():
            others = [old[other].get(key) for other in key[1] if other in old]
            if all(theirs is not None and theirs[1] == fields for theirs in others):
                droppable.append(index)
        recorders[rank].drop(droppable)
    for recorder in recorders.values():
        # calls that can never be compared, such as receives from any rank, are limited as well
        recorder.drop_oldest(max(0, len(recorder) - 4 * KEEP))
        recorder.thin_at = len(recorder) + KEEP
