"""A simulated backend of a device: a call returns when its collective has been issued.

A thread stands for the device's stream. It runs the collectives of a group one after the other,
with gloo, and each of them when all ranks have issued it. Its recorder is that of NCCL, with the
names and the states that PyTorch's sources give it. Like a stream, it goes on with nothing behind a
collective that does not complete.
"""

from __future__ import annotations

import json
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

#: Is held while the device has something to do. Waiting for it, as for ``.item()``, is a call in C.
busy = threading.Lock()
_entries: list[dict[str, Any]] = []
_state = threading.Lock()
_LIMIT_S = 300.0


class _Issued(dist.Work):
    """The handle of a collective: waiting for it lets the stream wait, and not the host."""

    def __init__(self, entry: dict[str, Any]) -> None:
        super().__init__()
        self._entry = entry

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return bool(self._entry["retired"])


class _Group(dist.ProcessGroup):
    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._store, self._issued = store, 0
        self._stream: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def group_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names[self])

    def _get_sequence_number_for_group(self) -> int:
        return self._issued

    def allreduce(self, tensors: Any, options: Any = None) -> dist.Work:
        return self._issue("all_reduce", tensors, lambda: self._gloo.allreduce(tensors, options))

    def broadcast(self, tensors: Any, options: Any) -> dist.Work:
        return self._issue("broadcast", tensors, lambda: self._gloo.broadcast(tensors, options))

    def barrier(self, opts: Any = None) -> dist.Work:
        work = self._issue("all_reduce", [torch.ones(1)], self._gloo.barrier)
        with busy:  # the host waits, too
            return work

    def _issue(self, op: str, tensors: list[torch.Tensor], run: Callable[[], dist.Work]) -> _Issued:
        self._issued += 1
        frames, frame = [], sys._getframe(1)
        while frame is not None:
            at = {"filename": frame.f_code.co_filename, "line": frame.f_lineno}
            frames.append(at | {"name": frame.f_code.co_name})
            frame = frame.f_back
        sizes, dtypes = [list(tensor.shape) for tensor in tensors], ["Float"] * len(tensors)
        entry: dict[str, Any] = {
            "record_id": len(_entries),
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": self._issued,
            "p2p_seq_id": 0,
            "op_id": self._issued,
            "profiling_name": f"nccl:{op}",
            "input_sizes": sizes,
            "output_sizes": sizes,
            "input_dtypes": dtypes,
            "output_dtypes": dtypes,
            "state": "scheduled",
            "retired": False,
            "is_p2p": False,
            "time_created_ns": time.time_ns(),
            "frames": frames,
        }
        with _state:
            if all(one["retired"] for one in _entries):
                busy.acquire()
            _entries.append(entry)
        self._stream.put((entry, op, run))
        return _Issued(entry)

    def _run(self) -> None:
        while True:
            try:
                entry, op, run = self._stream.get(timeout=_LIMIT_S)
            except queue.Empty:
                return
            entry["state"] = "started"
            key = f"{entry['op_id']} {op}"
            self._store.add(key, 1)
            until_s = time.monotonic() + _LIMIT_S
            while self._store.add(key, 0) < self.size():
                if time.monotonic() > until_s:
                    return  # a stream that is stuck, in a process that a test has left behind
                time.sleep(0.02)
            run().wait()
            with _state:
                entry["state"], entry["retired"] = "completed", True
                if all(one["retired"] for one in _entries):
                    busy.release()


def _dump(entries: bool) -> dict[str, Any]:
    with _state:
        completed = sum(entry["retired"] for entry in _entries)
        status = {
            "last_enqueued_collective": str(len(_entries)),
            "last_started_collective": str(min(len(_entries), completed + 1)),
            "last_completed_collective": str(completed),
        }
        found = [dict(entry) for entry in _entries] if entries else []
    return {"pg_status": {"0": status} if _entries else {}, "entries": found}


def _dump_nccl_trace_json(collectives: bool = True, only_active: bool = False) -> bytes:
    dumped = _dump(collectives)
    for entry in dumped["entries"]:
        del entry["frames"]
    return json.dumps(dumped).encode()


def _dump_nccl_trace(*_: bool) -> bytes:
    return pickle.dumps(_dump(True))


torch._C._distributed_c10d._dump_nccl_trace_json = _dump_nccl_trace_json
torch._C._distributed_c10d._dump_nccl_trace = _dump_nccl_trace
dist.Backend.register_backend("simulated_nccl", _Group, devices=["cpu"])
