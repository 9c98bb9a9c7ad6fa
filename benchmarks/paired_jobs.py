"""Measures what recording adds to a step of a job that torchrun starts, against the bare command.

Two bare jobs and a recorded one exist at the same time, and train in turns: a job that is not at
its turn waits for a message and takes no processor time, and its watcher is suspended. So all
turns have the same steps on the same machine within the same seconds, long after the start and the
first steps of all jobs. Their order alternates. The second bare job is the control: what it seems
to cost is the error of the method, since the memory of no two processes has the same addresses.
For the same reason the jobs are started anew several times.

A turn is measured by the clock of rank 0, and by the processor time of all processes of the job,
which are the ranks, the launcher and the watcher. Steps that are not measured precede it, since a
watcher that goes on has missed what the ranks did, and looks at them more often for a moment.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from .common import Figure, check
from .recording import SETUP

RANKS = 2
#: How often the jobs are started, and how many turns each one has then.
SETS, ROUNDS = 6, 12
#: A turn takes about this long, in seconds, and so long the steps before it.
_TURN_S, _BEFORE_S = 1.0, 0.4
#: On a busy machine, a job takes many times as long, in seconds.
_LIMIT_S = 300
#: Command that records a job.
RECORD = (sys.executable, "-c", "import sys; from ddt_notebook.cli import main; sys.exit(main())")
_SCRIPT = """
import socket, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
{network}
{setup}
step_s(100)
orders = socket.socket(socket.AF_UNIX)
orders.connect(sys.argv[1])
orders.sendall(b"%d\\n" % dist.get_rank())
for line in orders.makefile():
    orders.sendall(b"%r\\n" % step_s(int(line)))
dist.destroy_process_group()
"""


class _Job:
    """A job that trains when it is told to."""

    def __init__(self, folder: Path, network: str, *, recorded: bool) -> None:
        script = folder / "job.py"
        script.write_text(_SCRIPT.format(network=network, setup=SETUP))
        address = str(folder / "orders")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen(RANKS)
            server.settimeout(_LIMIT_S)
            job = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            job += ["--nproc-per-node", str(RANKS), str(script), address]
            record = [*RECORD, "run", "--to", f"{folder}/record", "--"] if recorded else []
            self._started = subprocess.Popen(
                [*record, *job],
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._watcher = self._started.pid if recorded else None
            try:
                ranks = [server.accept()[0] for _ in range(RANKS)]
                for rank in ranks:
                    rank.settimeout(_LIMIT_S)
                files = [rank.makefile("rw") for rank in ranks]
                for rank in ranks:
                    rank.close()  # the files keep the connections open
                numbered = {int(file.readline()): file for file in files}
            except BaseException:
                self.stop()
                raise
        self._ranks = [numbered[number] for number in range(RANKS)]
        process = psutil.Process(self._started.pid)
        self._processes = [process.pid, *(one.pid for one in process.children(recursive=True))]
        self._pause(signal.SIGSTOP)

    def train(self, before: int, steps: int) -> tuple[float, float]:
        """Seconds of a step by the clock, and of processor time of the whole job."""
        self._pause(signal.SIGCONT)
        self._step_s(before)
        before_s = self._used_s()
        taken_s = self._step_s(steps)
        used_s = (self._used_s() - before_s) / steps
        self._pause(signal.SIGSTOP)
        return taken_s, used_s

    def _step_s(self, steps: int) -> float:
        for rank in self._ranks:
            rank.write(f"{steps}\n")
            rank.flush()
        taken_s, *_ = [float(rank.readline()) for rank in self._ranks]
        return taken_s

    def _used_s(self) -> float:
        """Processor time of all threads of all processes."""
        used_ns = 0
        for pid in self._processes:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):  # a thread that has just ended
                    used_ns += int((thread / "schedstat").read_text().split()[0])
        return used_ns / 1e9

    def _pause(self, number: signal.Signals) -> None:
        if self._watcher is not None:
            os.kill(self._watcher, number)

    def finish(self) -> None:
        """Let the job end; it must have been well."""
        self._pause(signal.SIGCONT)
        for rank in self._ranks:
            rank.close()
        status = self._started.wait(_LIMIT_S)
        check(status == 0, f"the job ended with status {status}")

    def stop(self) -> None:
        """End the job as it is; torchrun ends its ranks."""
        if self._started.poll() is None:
            self._pause(signal.SIGCONT)
            os.killpg(self._started.pid, signal.SIGTERM)
            self._started.wait(_LIMIT_S)


def cost(network: str, where: str, limit: float, *, sets: int = SETS) -> Iterator[Figure]:
    """What recording adds to a step of this network, by the clock and in processor time."""
    costs: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, list[float]] = defaultdict(list)
    steps_ms: list[float] = []
    for _ in range(sets):
        with tempfile.TemporaryDirectory(prefix="ddt-cost-") as folder:
            taken = _set(Path(folder), network)
        for at, by in enumerate(("clock", "processor")):
            bare, control, recorded = (
                [turn[at] for turn in taken[kind]] for kind in ("bare", "control", "recorded")
            )
            usual = [math.sqrt(one * other) for one, other in zip(bare, control, strict=True)]
            costs[by].append(_percent(recorded, usual))
            errors[by].append(_percent(control, bare))
        steps_ms.append(1e3 * statistics.median(turn[0] for turn in taken["bare"]))
    for by, what in (
        ("clock", "time that recording adds to"),
        ("processor", "processor time that the whole of a recorded job adds to"),
    ):
        note = (
            f"step {statistics.median(steps_ms):.2f} ms, {sets} times {ROUNDS} turns of about "
            f"{_TURN_S:g} s, {min(costs[by]):+.1f} to {max(costs[by]):+.1f} %, control "
            f"{statistics.median(errors[by]):+.1f} % ({min(errors[by]):+.1f} to "
            f"{max(errors[by]):+.1f} %)"
        )
        yield Figure(f"{what} {where}", statistics.median(costs[by]), limit, "%", note=note)


def _percent(longer: list[float], shorter: list[float]) -> float:
    """By how much turns took longer than the others of the same round, as the median."""
    ratios = (one / other for one, other in zip(longer, shorter, strict=True))
    return 100 * (statistics.median(ratios) - 1)


def _set(folder: Path, network: str) -> dict[str, list[tuple[float, float]]]:
    """The turns of three jobs, by kind."""
    kinds = ["bare", "recorded", "control"]
    taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with ExitStack() as running:
        jobs = {}
        for kind in kinds:
            (folder / kind).mkdir()
            job = _Job(folder / kind, network, recorded=kind == "recorded")
            running.callback(job.stop)
            jobs[kind] = job
        step_s, _ = jobs["bare"].train(20, 20)
        before, steps = (max(1, round(wanted_s / step_s)) for wanted_s in (_BEFORE_S, _TURN_S))
        for number in range(ROUNDS):
            for kind in kinds if number % 2 else reversed(kinds):
                taken[kind].append(jobs[kind].train(before, steps))
        for job in jobs.values():
            job.finish()
    return taken
