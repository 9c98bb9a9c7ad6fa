"""What it costs to watch a job with many ranks on one host, on made-up records.

The ranks' rings are files as ranks write them. One process stands for all of their processes: it
computes if they are at work, and sleeps if they wait. Another one answers for all monitors. 4,096
ranks are looked at as `ddt-notebook run` does while they wait for one of them, without the files.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from ddt_notebook.host.call_log_reader import RankRecorder
from ddt_notebook.host.observed_rank import ObservedRank
from ddt_notebook.host.rank_run import RankRun, groups_seen, read_calls, state_of
from ddt_notebook.jobs.watch import JobWatch, collect_garbage_rarely
from ddt_notebook.wire import job_files, ring
from ddt_notebook.wire.job_files import RankStarted
from ddt_notebook.wire.records import CallRecord, Group
from ddt_notebook.wire.ring import Record, RingWriter

from .common import Figure, check
from .many_ranks import ABSENT, CALLS, TOGETHER

_TICK_S, _AT_WORK_S, _WATCHED_S, _MOST = 0.05, 0.25, 20.0, 4096
_LIMITS = {2: 2.0, 8: 2.0, 64: 2.0, 512: 2.0}
#: A busy machine finds all ranks within this time, in seconds.
_FOUND_LIMIT_S = 300.0
#: Stand for the processes of ranks, at work and waiting.
_AT_WORK, _WAITS = "while True: pass", "import time; time.sleep(600)"
#: Answers for the monitors of ranks, with the number of the socket.
_MONITORS = """
import resource, selectors, socket, sys, time
from ddt_notebook.model import Position
from ddt_notebook.wire.channel import Channel, Closed
from ddt_notebook.wire.messages import MonitorStatus

folder, ranks = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
stack = tuple(Position(file="train.py", line=n, function="step") for n in range(12))
asking = selectors.DefaultSelector()
for rank in range(ranks):
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{folder}/{rank}.sock")
    server.listen(1)
    asking.register(server, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in asking.select():
        one = key.fileobj
        if isinstance(one, socket.socket):
            asking.register(Channel(one.accept()[0]), selectors.EVENT_READ)
            continue
        try:
            asked = one.receive()
        except Closed:
            sys.exit()
        now_s = time.monotonic()
        groups = {"0": (int(now_s), int(now_s))}
        answer = MonitorStatus(
            position=stack[-1],
            stack=stack,
            groups=groups,
            cpu_s=time.process_time(),
            memory_bytes=1 << 30,
            at_s=now_s,
        )
        one.send(answer, number=asked.number)
"""


def measure() -> list[Figure]:
    """Measure."""
    collect_garbage_rarely()
    first_s, next_s = _looks(_MOST)
    found = [
        Figure(f"a look at {_MOST:,} ranks that wait, nothing new", next_s, 0.2, "s"),
        Figure("the first look at them, which reads all calls", first_s, 3.0, "s"),
    ]
    for ranks, limit in _LIMITS.items():
        share = _watched(ranks, waiting=False)
        found.append(Figure(f"watcher of {ranks} ranks at work, of a core", share, limit, "%"))
    found.append(
        Figure("watcher of 512 ranks, 511 wait, of a core", _watched(512, waiting=True), 20, "%")
    )
    return found


def _looks(ranks: int) -> tuple[float, float]:
    """Processor time of the first look, and of the next ones (their median), in seconds."""
    groups = {"0": Group("0", tuple(range(ranks)))}
    for first in range(0, ranks, TOGETHER):
        groups[f"tp{first}"] = Group(f"tp{first}", tuple(range(first, first + TOGETHER)))
    runs = []
    for number in range(ranks):
        rank = ObservedRank(number, Path("/nonexistent"))
        rank.recorder = RankRecorder(_Records(number, groups), lambda cell, line: "")  # type: ignore[arg-type]
        runs.append(RankRun(rank, asked=True))
    times = []
    for _ in range(6):
        before_s = time.process_time()
        read_calls(runs)
        state = state_of(runs, groups_seen(runs))
        times.append(time.process_time() - before_s)
        check(len(state.waiting) == ranks - 1, "a rank does not wait")
    return times[0], statistics.median(times[1:])


class _Records:
    """A ring whose last call has not ended, but on one rank, which has not made it."""

    table_full = False
    turn = bytes(8)

    def __init__(self, rank: int, groups: dict[str, Group]) -> None:
        self.count = CALLS - 1 if rank == ABSENT else CALLS
        names = (f"tp{rank - rank % TOGETHER}", "0")
        self._records = [_record(n, groups[names[n % 2]]) for n in range(self.count)]
        self.blocked_in = None if rank == ABSENT else (CALLS - 1, time.monotonic() - 4)

    def read(self, index: int) -> Record:
        return self._records[index]

    def status(self, index: int) -> int:
        return self._records[index].status


def _record(number: int, group: Group) -> Record:
    last = number == CALLS - 1
    return Record(
        number,
        ring.PENDING if last else ring.DONE,
        1000.0 + number,
        0.0 if last else 1000.5 + number,
        -1 if last else number // 2 + 1,
        _call(group, number // 2),
    )


def _call(group: Group, before: int) -> CallRecord:
    values: dict[str, Any] = {"shapes": ((1024, 1024),), "dtypes": ("float32",)}
    where: dict[str, Any] = {"file": __file__, "line": 1, "function": "main"}
    return CallRecord(
        op="all_reduce", group=group, operations_before=before, reduce_op="SUM", **values, **where
    )


def _watched(ranks: int, *, waiting: bool) -> float:
    """The share of a core that the watcher uses, in per cent."""
    folder = Path(tempfile.mkdtemp())
    monitors = subprocess.Popen(
        [sys.executable, "-c", _MONITORS, str(folder), str(ranks)], stdout=subprocess.PIPE
    )
    process = subprocess.Popen([sys.executable, "-c", _WAITS if waiting else _AT_WORK])
    try:
        assert monitors.stdout is not None
        check(bool(monitors.stdout.readline()), "no monitor answers")
        writers = _write(folder, ranks, process.pid, waiting=waiting)
        watch = JobWatch(folder, hang_after_s=1000)
        job = watch.job
        limit_s = time.monotonic() + _FOUND_LIMIT_S
        while not (job.ranks and all(one.earlier_status is not None for one in job.ranks)):
            watch.step(_TICK_S, at_work_s=_AT_WORK_S)
            check(time.monotonic() < limit_s, "not all monitors have answered twice")
        check(len(job.ranks) == len(writers), "not all ranks were found")
        begun_s, used_s = time.monotonic(), time.process_time()
        while time.monotonic() - begun_s < _WATCHED_S:
            watch.step(_TICK_S, at_work_s=_AT_WORK_S)
        return 100 * (time.process_time() - used_s) / (time.monotonic() - begun_s)
    finally:
        for one in (monitors, process):
            one.kill()
            one.wait()
        shutil.rmtree(folder)


def _write(folder: Path, ranks: int, pid: int, *, waiting: bool) -> list[RingWriter]:
    group = Group("0", tuple(range(ranks)))
    writers = []
    for rank in range(ranks):
        writer = RingWriter(folder / f"host-{rank}.calls")
        writers.append(writer)
        started = RankStarted(
            rank=rank,
            world_size=ranks,
            host=socket.gethostname(),
            pid=pid,
            born_s=psutil.Process(pid).create_time(),
            started_s=time.monotonic(),
            wall_s=time.time(),
            socket=f"{folder}/{rank}.sock",
        )
        job_files.write(folder / f"host-{rank}.rank", started)
        for number in range(CALLS - (rank == ABSENT)):
            index = writer.begin(_call(group, number), time.monotonic(), blocking=True)
            if number < CALLS - 1 or not waiting:
                writer.end(index, ring.DONE, time.monotonic(), number + 1)
    return writers
