"""Reads PyTorch's Flight Recorder: every collective, including those that DDP issues itself.

If torch lacks the private functions for it, nothing is read, and the session reports that (see
`torch_private`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ...model import Position, flight
from ...model.torch_features import LIBRARY_COLLECTIVES, LIBRARY_LINES
from ...wire.records import FlightEntry, with_members
from .. import torch_private

T = TypeVar("T")

#: With more new entries than this, stacks are left out, because symbolising them takes too long.
_MAX_STACKS = 400


class FlightReader:
    """Reads the recorder of this process; may be called from a side thread at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_record = -1
        self._last_counts: dict[str, tuple[int, int]] = {}
        self._run_start = 0
        self._newest = -1

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each group id: operations enqueued and completed. Takes microseconds."""
        return _if_known(_counts, {})

    def begin_run(self) -> None:
        """Begin a cell: later entries belong to it."""
        with self._lock:
            self._last_record = self._newest  # the rest belongs to earlier cells
            self._run_start = self._newest + 1

    def drain(self, *, stacks: bool = False) -> tuple[FlightEntry, ...]:
        """Entries since the last drain, and those that were still pending then.

        Parameters
        ----------
        stacks
            Return all entries of this cell, with their stacks. This is slow; stacks are left out if
            there are many entries.
        """
        with self._lock:
            return _if_known(lambda: self._drain(stacks), ())

    def _drain(self, stacks: bool) -> tuple[FlightEntry, ...]:
        counts = _counts()
        if counts == self._last_counts and not stacks:
            return ()
        self._last_counts = counts
        entries = _read(entries=True).get("entries", [])
        new = [e for e in entries if e["record_id"] > self._last_record]
        self._newest = max([self._newest, *(e["record_id"] for e in new)])
        wanted = new
        frames = {}
        if stacks:
            wanted = [e for e in entries if e["record_id"] >= self._run_start]
            frames = self._frames() if 0 < len(wanted) <= _MAX_STACKS else {}
        found = tuple(_entry(entry, frames.get(entry["record_id"])) for entry in wanted)
        retired = [e["record_id"] for e in new if not e["retired"]]
        found = with_members(found, _members()) if found else found
        if new:  # an entry that has not retired yet is read again next time
            self._last_record = min(retired, default=new[-1]["record_id"] + 1) - 1
        return found

    @staticmethod
    def _frames() -> dict[int, list[dict[str, Any]]]:
        if not torch_private.available(LIBRARY_LINES):
            return {}
        data = flight.unpickled(torch_private.dump_flight_recorder(True, True, False))
        return {entry["record_id"]: entry.get("frames", []) for entry in data.get("entries", [])}


def _if_known(read: Callable[[], T], otherwise: T) -> T:
    """The result of a function; stops reading the recorder if its format is unknown."""
    if not torch_private.available(LIBRARY_COLLECTIVES):
        return otherwise
    try:
        return read()
    except (KeyError, TypeError, ValueError) as error:
        torch_private.give_up(LIBRARY_COLLECTIVES, f"{type(error).__name__}: {error}")
        return otherwise


def _counts() -> dict[str, tuple[int, int]]:
    status = _read(entries=False).get("pg_status", {})
    return {
        name: (int(s["last_enqueued_collective"]), int(s["last_completed_collective"]))
        for name, s in status.items()
    }


def _read(*, entries: bool) -> dict[str, Any]:
    """The Flight Recorder's state, with its entries on request."""
    read: dict[str, Any] = json.loads(torch_private.dump_flight_recorder_json(entries, False))
    return read


def _members() -> dict[str, tuple[int, ...]]:
    """Members of each group but the default one; the recorder has them for NCCL only."""
    if not dist.is_initialized():
        return {}
    return {
        group.group_name: tuple(dist.get_process_group_ranks(group))
        for group in torch_private.process_groups()
        if group is not dist.group.WORLD
    }


def _entry(raw: dict[str, Any], frames: list[dict[str, Any]] | None) -> FlightEntry:
    """One entry as the notebook reads it."""
    user, library = flight.user_frame((f["filename"], f["line"], f["name"]) for f in frames or ())
    return FlightEntry(
        group=raw["process_group"][0],
        number=raw["op_id"],
        op=flight.operation(raw),
        shapes=flight.shapes(raw["input_sizes"]),
        dtypes=flight.dtypes(raw["input_dtypes"]),
        output_shapes=flight.shapes(raw["output_sizes"]),
        done=raw["retired"],
        created_ns=raw["time_created_ns"],
        where=Position(file=user[0], line=user[1], function=user[2]) if user else None,
        library=library,
    )


def torch_version() -> str:
    """Version of torch in this process."""
    return str(torch.__version__)
