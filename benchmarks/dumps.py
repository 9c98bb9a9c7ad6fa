"""Processor time and memory for Flight Recorder dumps of large jobs, against bare ``pickle.load``.

``python -m benchmarks.dumps`` makes dumps in a temporary folder (3 GB) and measures each tool in a
process of its own. ``… make FOLDER RANKS ENTRIES`` only makes them; ``… time NAME FOLDER`` measures
one tool on them. In each job, one rank misses a collective of DDP, in which the others wait.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .common import Figure, check

ABSENT = 17
#: Ranks of one tensor parallel group.
TOGETHER = 8
#: Ranks, entries of each, backend, and the most memory in GB.
JOBS = (
    (1024, 1500, "nccl", 0.5),
    (1024, 1500, "gloo", 0.5),
    (4096, 400, "nccl", 1.0),
)
_PACKAGES = "/venv/lib/python3.11/site-packages/torch"


def _stack(*lines: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"name": name, "filename": file, "line": line} for file, line, name in lines]


def make(folder: Path, ranks: int, entries: int, backend: str = "nccl") -> None:
    """Write the dumps of a job whose ranks use three groups in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        data = pickle.dumps(dump(rank, ranks, entries, backend), protocol=2)
        (folder / f"{backend}_trace_rank_{rank}").write_bytes(data)


def dump(rank: int, ranks: int, entries: int, backend: str) -> dict[str, Any]:
    """The recorder of one rank: an all_reduce of DDP, one of its row and one of its column."""
    row = range(rank - rank % TOGETHER, rank - rank % TOGETHER + TOGETHER)
    column = range(rank % TOGETHER, ranks, TOGETHER)
    groups = {
        "0": ("default_pg", list(range(ranks))),
        f"{1 + row[0] // TOGETHER}": ("mesh_tp", list(row)),
        f"{1 + ranks // TOGETHER + column[0]}": ("mesh_dp", list(column)),
    }
    last = _stack(
        (f"{_PACKAGES}/distributed/distributed_c10d.py", 3245, "all_reduce"),
        (f"{_PACKAGES}/distributed/c10d_logger.py", 83, "wrapper"),
    )
    outer = _stack(
        ("/job/train.py", 42, "step"), ("/job/train.py", 80, "epoch"), ("/job/train.py", 99, "main")
    )
    of_ddp = _stack((f"{_PACKAGES}/autograd/graph.py", 979, "_engine_run_backward"))
    deep = _stack(*((f"/job/model/block{at}.py", 20 + at, "forward") for at in range(12)))
    sizes = [[1024, 1024], [4096], [512, 64]]
    written = []
    names = list(groups)
    for number in range(entries):
        which = number % 3
        # the default group counts up to the last collective, which one rank does not make
        if number >= entries - 3 and rank == ABSENT:
            break
        waits = number >= entries - 3
        group = names[which]
        written.append(
            {
                "frames": [*of_ddp, *outer] if which == 0 else [*last, *deep, *outer],
                "record_id": 500 + number,
                "pg_id": which,
                "process_group": (group, groups[group][0]),
                "thread_name": "pt_autograd_0",
                "thread_id": str(140_000_000_000 + rank),
                "collective_seq_id": 200 + number // 3,
                "p2p_seq_id": 0,
                "op_id": 200 + number // 3,
                "profiling_name": f"{backend}:all_reduce",
                "time_created_ns": 1_700_000_000_000_000_000 + number * 1000 + rank,
                "input_sizes": [list(sizes[which])],
                "input_dtypes": ["Float"],
                "output_sizes": [list(sizes[which])],
                "output_dtypes": ["Float"],
                "state": "completed" if not waits and backend == "nccl" else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": not waits,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )
    config = {
        name: {"name": name, "desc": text, "ranks": str(members)}
        for name, (text, members) in groups.items()
    }
    if backend == "gloo":  # writes none
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": written}


def _load(folder: str) -> list[int]:
    for file in Path(folder).iterdir():
        with file.open("rb") as stream:
            pickle.load(stream)
    return []


def _diagnose(folder: str) -> list[int]:
    import ddt_notebook as ddt

    return ddt.diagnose_dumps(folder).findings[0].ranks


def _torchfrtrace(folder: str) -> list[int]:
    from torch.distributed.flight_recorder import fr_trace

    sys.argv = ["torchfrtrace", "--prefix", "nccl_trace_rank_", folder]
    fr_trace.main()
    return []


TOOLS: dict[str, Callable[[str], list[int]]] = {
    "pickle.load": _load,
    "diagnose_dumps": _diagnose,
    "torchfrtrace": _torchfrtrace,
}


def run(tool: str, folder: Path, limit_s: float = 900.0) -> dict[str, Any]:
    """Processor time in seconds and peak memory in GB of a tool, its processes included."""
    command = [sys.executable, "-m", "benchmarks.dumps", "time", tool, str(folder)]
    # Linux lets a process begin with the peak memory of the process that started it; the shell's
    # is small
    command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit_s)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _time(tool: str, folder: str) -> None:
    found = TOOLS[tool](folder)
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)  # the largest of them
    children = min(len(os.sched_getaffinity(0)), 16) if others.ru_maxrss else 0
    print()
    print(
        json.dumps(
            {
                "cpu_s": own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime,
                "gb": (own.ru_maxrss + children * others.ru_maxrss) / 1e6,
                "ranks": found,
            }
        )
    )


def measure() -> list[Figure]:
    """Measure."""
    figures = []
    for ranks, entries, backend, limit_gb in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), ranks, entries, backend)
            bare, ours = (run(tool, Path(folder)) for tool in ("pickle.load", "diagnose_dumps"))
            check(ours.get("ranks") == [ABSENT], f"other ranks are blamed: {ours}")
            peers = {"pickle.load": f"{bare['cpu_s']:.1f} s"}
            what = f"{backend} dumps of {ranks:,} ranks × {entries:,} entries"
            times, gigabytes = ours["cpu_s"] / bare["cpu_s"], ours["gb"]
            note = f"{ours['cpu_s']:.1f} s of processor time"
            figures += [
                Figure(f"{what}, time of pickle.load", times, 2.5, "×", peers, note),
                Figure(f"{what}, memory", gigabytes, limit_gb, "GB"),
            ]
    return figures


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:6])
    elif sys.argv[1:2] == ["time"]:
        _time(sys.argv[2], sys.argv[3])
    else:
        for figure in measure():
            print(figure.row(), flush=True)
