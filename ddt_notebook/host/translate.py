"""A record of the call log, or an entry of the Flight Recorder, as a `Call`."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import replace

from ..model import Call, Position, flight
from ..wire import ring
from ..wire.records import FlightEntry
from ..wire.ring import Record

#: Gives the text of a line of a cell: cell number, line number.
SourceLine = Callable[[int, int], str]


def from_record(record: Record, sequence: int | None, source_line: SourceLine) -> Call:
    """A call that our wrapper saw."""
    call = record.call
    return Call(
        index=record.index,
        op=call.op,
        kind=call.kind,
        group=call.group.name,
        members=() if call.outside else call.group.members,
        sequence=None if call.outside else sequence,
        status=ring.STATUS_NAMES[record.status],
        reduce_op=call.reduce_op,
        root=call.root,
        peer=call.peer,
        tag=call.tag,
        shapes=call.shapes,
        dtypes=call.dtypes,
        output_shapes=call.output_shapes,
        where=_position(call.file, call.line, call.function, source_line) if call.file else None,
        caller=flight.library(call.library),
        asynchronous=call.asynchronous,
        entered_s=record.entered_s,
        left_s=record.left_s or None,
        rendezvous=call.rendezvous,
    )


def from_flight(
    entry: FlightEntry,
    sequence: int,
    members: tuple[int, ...],
    wall_offset_s: float,
    source_line: SourceLine,
) -> Call:
    """A collective that a library issued; its time is on the wall clock."""
    at = entry.where
    return Call(
        index=0,
        op=entry.op,
        group=entry.group,
        members=members,
        sequence=sequence,
        status="done" if entry.done else "pending",
        shapes=entry.shapes,
        dtypes=entry.dtypes,
        output_shapes=entry.output_shapes,
        where=_position(at.file, at.line, at.function, source_line) if at is not None else None,
        source="flight recorder",
        caller=entry.library,
        entered_s=entry.created_ns / 1e9 - wall_offset_s,
    )


def _position(file: str, line: int, function: str, source_line: SourceLine) -> Position:
    at = Position(file=file, line=line, function=function)
    code = source_line(at.cell, line) if at.cell is not None else linecache.getline(file, line)
    return replace(at, code=code.strip()[:200])
