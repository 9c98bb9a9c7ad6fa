"""Reads PyTorch's Flight Recorders: every collective, including those that DDP issues itself.

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
    """Reads the recorders of this process; may be called from a side thread at any time.

    Operations of NCCL are in a recorder of their own. Reading its entries queries CUDA events,
    which waits for nothing; the counts are read without doing so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._general, self._device = _Recorder(on_device=False), _Recorder(on_device=True)

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each group id: operations enqueued and completed. Takes microseconds."""
        return _if_known(self._general.counts, {})

    def counts_on_device(self) -> dict[str, tuple[int, int]]:
        """The same for groups whose operations a device runs later than they are issued."""
        return _if_known(self._device.counts, {})

    def begin_run(self) -> None:
        """Begin a cell: later entries belong to it."""
        with self._lock:
            for recorder in (self._general, self._device):
                recorder.begin_run()

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
        found = self._general.drain(stacks) + self._device.drain(stacks)
        # a group of both has two counts, and calls are counted by the device's; later versions of
        # torch may show one recorder under both names
        groups = self._device.groups
        found = tuple(entry for entry in found if entry.on_device or entry.group not in groups)
        return with_members(found, _members()) if found else found


class _Recorder:
    """One of the recorders.

    Parameters
    ----------
    on_device
        Whether it is that of NCCL.
    """

    def __init__(self, *, on_device: bool) -> None:
        self._on_device = on_device
        self._last_record = -1
        self._last_counts: dict[str, tuple[int, int]] = {}
        self._run_start = 0
        self._newest = -1
        self.groups: set[str] = set()  #: names of the groups whose entries were read

    def begin_run(self) -> None:
        self._last_record = self._newest  # the rest belongs to earlier cells
        self._run_start = self._newest + 1

    def counts(self) -> dict[str, tuple[int, int]]:
        status = self._read(entries=False).get("pg_status", {})
        return {
            name: (int(s["last_enqueued_collective"]), int(s["last_completed_collective"]))
            for name, s in status.items()
        }

    def drain(self, stacks: bool) -> tuple[FlightEntry, ...]:
        counts = self.counts()
        if counts == self._last_counts and not stacks:
            return ()
        self._last_counts = counts
        entries = self._read(entries=True).get("entries", [])
        new = [e for e in entries if e["record_id"] > self._last_record]
        self._newest = max([self._newest, *(e["record_id"] for e in new)])
        wanted = new
        frames = {}
        if stacks:
            wanted = [e for e in entries if e["record_id"] >= self._run_start]
            frames = self._frames() if 0 < len(wanted) <= _MAX_STACKS else {}
        found = tuple(
            self._entry(entry, frames.get(entry["record_id"]))
            for entry in wanted
            # the backends of devices do not count messages with their collectives
            if not (self._on_device and entry["is_p2p"])
        )
        pending = [e["record_id"] for e in new if not self._is_done(e)]
        if new:  # an entry that is pending is read again next time
            self._last_record = min(pending, default=new[-1]["record_id"] + 1) - 1
        self.groups |= {entry.group for entry in found}
        return found

    def _read(self, *, entries: bool) -> dict[str, Any]:
        """The recorder's state, with its entries on request."""
        dump = torch_private.dump_flight_recorder_json
        if self._on_device:
            dump = torch_private.device_recorder("_dump_nccl_trace_json")
        read: dict[str, Any] = json.loads(dump(entries, False)) if dump is not None else {}
        return read

    def _frames(self) -> dict[int, list[dict[str, Any]]]:
        if not torch_private.available(LIBRARY_LINES):
            return {}
        dump = torch_private.dump_flight_recorder
        if self._on_device:
            dump = torch_private.device_recorder("_dump_nccl_trace")
        data = flight.unpickled_quickly(dump(True, True, False)) if dump is not None else {}
        return {entry["record_id"]: entry.get("frames", []) for entry in data.get("entries", [])}

    def _is_done(self, raw: dict[str, Any]) -> bool:
        """Whether an operation is complete: gloo retires it, and events of a device show it."""
        return bool(raw["retired"]) or (self._on_device and raw["state"] == "completed")

    def _entry(self, raw: dict[str, Any], frames: list[dict[str, Any]] | None) -> FlightEntry:
        """One entry as the notebook reads it."""
        lines = ((f["filename"], f["line"], f["name"]) for f in frames or ())
        user, library = flight.user_frame(lines)
        return FlightEntry(
            group=raw["process_group"][0],
            number=raw["collective_seq_id"] if self._on_device else raw["op_id"],
            op=flight.operation(raw),
            shapes=flight.shapes(raw["input_sizes"]),
            dtypes=flight.dtypes(raw["input_dtypes"]),
            output_shapes=flight.shapes(raw["output_sizes"]),
            done=self._is_done(raw),
            created_ns=raw["time_created_ns"],
            where=Position(file=user[0], line=user[1], function=user[2]) if user else None,
            library=library,
            on_device=self._on_device,
        )


def _if_known(read: Callable[[], T], otherwise: T) -> T:
    """The result of a function; stops reading the recorder if its format is unknown."""
    if not torch_private.available(LIBRARY_COLLECTIVES):
        return otherwise
    try:
        return read()
    except (KeyError, TypeError, ValueError) as error:
        torch_private.give_up(LIBRARY_COLLECTIVES, f"{type(error).__name__}: {error}")
        return otherwise


def _members() -> dict[str, tuple[int, ...]]:
    """Members of each group but the default one; the recorder has them for NCCL only."""
    if not dist.is_initialized():
        return {}
    return {
        group.group_name: tuple(dist.get_process_group_ranks(group))
        for group in torch_private.process_groups()
        if group is not dist.group.WORLD
    }


def torch_version() -> str:
    """Version of torch in this process."""
    return str(torch.__version__)
