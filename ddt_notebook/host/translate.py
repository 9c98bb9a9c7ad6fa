"""A record of the call log, or an entry of the Flight Recorder, as a `Call`."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..model import Call, Position, Rendezvous, flight
from ..wire import ring
from ..wire.ring import Record

#: Gives the text of a line of a cell: cell number, line number.
SourceLine = Callable[[int, int], str]


def from_record(record: Record, sequence: int | None, source_line: SourceLine) -> Call:
    """A call that our wrapper saw."""
    fields = record.fields
    where = None
    if "f" in fields:
        where = _position(fields["f"], fields["l"], fields["n"], source_line)
    return Call(
        index=record.index,
        op=fields["op"],
        kind=fields["kind"],
        group=fields.get("g", "0"),
        members=() if "none" in fields else tuple(fields.get("m", ())),
        sequence=None if "none" in fields else sequence,
        status=ring.STATUS_NAMES[record.status],  # type: ignore[arg-type]
        reduce_op=fields.get("r"),
        root=fields.get("root"),
        peer=fields.get("peer"),
        tag=fields.get("tag", 0),
        shapes=tuple(map(tuple, fields.get("s", ()))),
        dtypes=tuple(fields.get("d", ())),
        output_shapes=tuple(map(tuple, fields.get("o", ()))),
        where=where,
        caller=flight.library(fields.get("lib")),
        asynchronous="async" in fields,
        entered_s=record.entered_s,
        left_s=record.left_s or None,
        rendezvous=Rendezvous(**fields["z"]) if "z" in fields else None,
    )


def from_flight(
    entry: dict[str, Any],
    sequence: int,
    members: tuple[int, ...],
    wall_offset_s: float,
    source_line: SourceLine,
) -> Call:
    """A collective that a library issued; its time is on the wall clock."""
    frame, caller = flight.user_frame(entry.get("frames") or [])
    where = _position(*frame, source_line) if frame is not None else None
    return Call(
        index=0,
        op=entry["op"],
        group=entry["g"],
        members=members,
        sequence=sequence,
        status="done" if entry["done"] else "pending",
        shapes=tuple(map(tuple, entry["s"])),
        dtypes=tuple(entry["d"]),
        output_shapes=tuple(map(tuple, entry["o"])),
        where=where,
        source="flight recorder",
        caller=caller,
        entered_s=entry["ns"] / 1e9 - wall_offset_s,
    )


def _position(file: str, line: int, function: str, source_line: SourceLine) -> Position:
    at = Position(file=file, line=line, function=function)
    code = source_line(at.cell, line) if at.cell is not None else linecache.getline(file, line)
    return replace(at, code=code.strip()[:200])
