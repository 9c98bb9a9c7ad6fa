"""Measures what recording adds to a step of a job that torchrun starts.

A recorded job and two bare ones exist at the same time, and train in short turns, in random order:
a job that is not at its turn waits for a message and takes no processor time, and its watcher is
suspended. So all turns have the same steps on the same processors within the same seconds, long
after the start and the first steps of all jobs.

The memory of no two processes has the same addresses, so that one of two equal jobs may be faster
by some per cent for as long as it exists. The second bare job shows that. Therefore the recorded
job also takes turns in which it runs as a bare one does: its hooks are removed, which is checked,
and its watcher stays suspended. The difference between its own turns has no such error.

A turn is measured by the clock of rank 0, and by the processor time of all processes of the job,
which are the ranks, the launcher and the watcher. Steps that are not measured precede it, since a
watcher that goes on has missed what the ranks did, and looks at them more often for a moment.

``python -m benchmarks.paired_jobs [mlp|transformer] [SETS]`` takes about 80 s for each set.
"""

from __future__ import annotations

import math
import os
import random
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
from typing import Literal

import psutil

from .common import Figure, check
from .recording import MLP, SETUP, SWITCH, TRANSFORMER

RANKS = 2
#: How often the jobs are started, and how many turns of each kind there are then.
SETS, ROUNDS = 2, 20
#: A turn takes about this long, in seconds, and so long the steps before it.
_TURN_S, _BEFORE_S = 0.5, 0.4
#: On a busy machine, a job takes many times as long, in seconds.
_LIMIT_S = 300
#: What is measured: the small networks, and what recording may add to a step of them, in per cent.
NETWORKS = {"small MLP": (MLP, 2.0), "small transformer": (TRANSFORMER, 1.0)}
#: Command that records a job.
RECORD = (sys.executable, "-c", "import sys; from ddt_notebook.cli import main; sys.exit(main())")
_SCRIPT = f"""
import os, socket, sys

processors = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {{processors[int(os.environ["LOCAL_RANK"]) % len(processors)]}})

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
NETWORK
{SETUP}
def hooks_called():
    seen = set()
    sys.setprofile(lambda frame, *_: seen.add(frame.f_code.co_filename))
    train(5)
    sys.setprofile(None)
    return any("/ddt_notebook/" in file for file in seen)

if hasattr(DDP.forward, "__wrapped__"):
    {SWITCH.strip().replace(chr(10), chr(10) + "    ")}
    def choose(kind):
        switch(*(recording if kind == "on" else without))
else:
    def choose(kind):
        pass

step_s(100)
orders = socket.socket(socket.AF_UNIX)
orders.connect(sys.argv[1])
orders.sendall(b"%d\\n" % dist.get_rank())
for line in orders.makefile():
    kind, steps = line.split()
    choose(kind)
    answer = hooks_called() if steps == "?" else step_s(int(steps))
    orders.sendall(b"%r\\n" % float(answer))
dist.destroy_process_group()
"""
_Kind = Literal["bare", "control", "off", "on"]
_KINDS: tuple[_Kind, ...] = ("bare", "control", "off", "on")


class _Job:
    """A job that trains when it is told to."""

    def __init__(self, folder: Path, network: str, *, recorded: bool) -> None:
        script = folder / "job.py"
        script.write_text(_SCRIPT.replace("NETWORK", network))
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

    def check_hooks(self) -> None:
        """Functions of the recorder are called in the turns that are recorded, and only there."""
        for kind, called in (("off", False), ("on", True)):
            check(self._order(kind, "?") == called, f"hooks of the recorder while {kind}")

    def train(self, kind: _Kind, before: int, steps: int) -> tuple[float, float]:
        """Seconds of a step by the clock, and of processor time of the whole job."""
        if kind == "on":
            self._pause(signal.SIGCONT)
        self._order(kind, before)
        before_s = self._used_s()
        taken_s = self._order(kind, steps)
        used_s = (self._used_s() - before_s) / steps
        self._pause(signal.SIGSTOP)
        return taken_s, used_s

    def _order(self, kind: str, steps: int | str) -> float:
        for rank in self._ranks:
            rank.write(f"{kind} {steps}\n")
            rank.flush()
        answer, *_ = [float(rank.readline()) for rank in self._ranks]
        return answer

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


def cost(name: str, *, sets: int = SETS) -> Iterator[Figure]:
    """What recording adds to a step of a network, by the clock and in processor time."""
    network, limit = NETWORKS[name]
    taken: dict[_Kind, list[tuple[float, float]]] = defaultdict(list)
    for number in range(sets):
        with tempfile.TemporaryDirectory(prefix="ddt-cost-") as folder:
            for kind, turns in _set(Path(folder), network, number).items():
                taken[kind] += turns
    step_ms = 1e3 * statistics.median(turn[0] for turn in taken["bare"])
    where = f"a DDP step of a job, {name}, {RANKS} ranks"
    for at, by in enumerate(("time", "processor time of the whole job")):
        bare, control, off, on = ([turn[at] for turn in taken[kind]] for kind in _KINDS)
        usual = [math.sqrt(one * other) for one, other in zip(bare, control, strict=True)]
        (low, cost, high), (_, equal, _) = _added(on, off), _added(control, bare)
        note = (
            f"step {step_ms:.2f} ms, {len(on)} pairs of turns of about {_TURN_S:g} s, "
            f"{low:+.1f} to {high:+.1f} %"
        )
        yield Figure(f"{by} that recording adds to {where}", cost, limit, "%", note=note)
        low, beside, high = _added(on, usual)
        note = f"{low:+.1f} to {high:+.1f} %, a second bare job {equal:+.1f} %"
        yield Figure(f"the same beside two bare jobs, {by}", beside, limit, "%", note=note)


def _added(longer: list[float], shorter: list[float]) -> tuple[float, float, float]:
    """By how many per cent turns took longer than others of the same round.

    The median in the middle of its confidence interval (95 %), as the ranks of the pairs show it.
    """
    added = sorted(100 * (one / other - 1) for one, other in zip(longer, shorter, strict=True))
    beside = math.ceil(0.98 * math.sqrt(len(added)))
    at = max(0, len(added) // 2 - beside)
    return added[at], statistics.median(added), added[-1 - at]


def _set(folder: Path, network: str, number: int) -> dict[_Kind, list[tuple[float, float]]]:
    """The turns of three jobs, by kind."""
    taken: dict[_Kind, list[tuple[float, float]]] = {kind: [] for kind in _KINDS}
    shuffle = random.Random(number).shuffle
    with ExitStack() as running:
        jobs = {}
        for kind in ("bare", "control", "on"):
            (folder / kind).mkdir()
            job = _Job(folder / kind, network, recorded=kind == "on")
            running.callback(job.stop)
            jobs[kind] = job
        jobs["on"].check_hooks()
        jobs["off"] = jobs["on"]
        step_s, _ = jobs["bare"].train("bare", 20, 20)
        before, steps = (max(1, round(wanted_s / step_s)) for wanted_s in (_BEFORE_S, _TURN_S))
        for _ in range(ROUNDS):
            order = list(_KINDS)
            shuffle(order)
            for kind in order:
                taken[kind].append(jobs[kind].train(kind, before, steps))
        for kind in ("bare", "control", "on"):
            jobs[kind].finish()
    return taken


if __name__ == "__main__":
    *_, asked, sets = "", *sys.argv[1:], *(["", str(SETS)][len(sys.argv) - 1 :])
    for name in NETWORKS:
        if asked in name.lower():
            for figure in cost(name, sets=int(sets)):
                print(figure.row(), flush=True)
