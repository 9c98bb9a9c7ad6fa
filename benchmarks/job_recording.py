"""Measures what recording costs a DDP step of a job that torchrun starts.

The cost as a whole is in turns of a recorded job, with and without what records it, and of bare
jobs (`paired_jobs`). A recorded job also measures the time inside the functions of the recorder,
which has almost no error, without that of reading the clock, which an empty function in the same
place shows. What ``--record-inputs`` adds is measured by turns within a job, too: the lower
quartiles of their processor time are compared, since what else runs on the machine only adds to it,
and turns that are off as well are the control.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import paired_jobs
from .common import Figure, check
from .paired_jobs import RANKS
from .recording import MLP, SETUP, SWITCH, TIMED

#: On a busy machine a job takes many times as long.
_LIMIT_S = 900
_HEAD = """
import json
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
"""
#: Processor time of a step in a turn, all threads of the rank included.
_STEP = """
def turn_s(steps):
    dist.barrier()
    before = time.process_time()
    step_s(steps)
    return (time.process_time() - before) / steps
"""
#: All ranks switch in the same order.
_TURNS = """
turn_s(20)
taken = {"on": [], "off": [], "control": []}
shuffle = random.Random(0).shuffle
for _ in range(40):
    order = list(taken)
    shuffle(order)
    for kind in order:
        choose(kind == "on")
        taken[kind].append(turn_s(5))
"""
_INSIDE = f"""{_STEP}{SWITCH}
{TIMED.replace("perf_counter", "thread_time")}
turn_s(20)
inside = 0.0
whole_s = turn_s(200)
inside_s = inside / 200
switch(without[0], [dict(), dict(clock=timed(lambda *_: None))])
turn_s(20)
inside = 0.0
turn_s(200)
clock_s = inside / 200
# of passes(), losses() and the two hooks of the optimizer
found = 100 * (inside_s - 4 * clock_s) / whole_s
"""
#: The handler alone is switched; DDP's calls still pass through Python.
_INPUTS = f"""{_STEP}
from ddt_notebook.rank.recorded_rank import JobRecorder
kept = JobRecorder.installed._inputs
def choose(on):
    kept._counts.clear()
    kept._interception.handler = kept if on and dist.get_rank() == 0 else None
{_TURNS}
choose(False)
found = taken
"""
_TAIL = """
if dist.get_rank() == 0:
    print(json.dumps(found), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Figure]:
    found = []
    for name, (network, limit) in paired_jobs.NETWORKS.items():
        where = f"a DDP step of a job, {name}, {RANKS} ranks"
        share = _run(network, _INSIDE)
        found.append(Figure(f"processor time in the recorder, {where}", share, limit, "%"))
        found += paired_jobs.cost(name)
    what = (
        f"processor time of keeping a rank's inputs, a DDP step of a job, small MLP, {RANKS} ranks"
    )
    taken = _run(MLP, _INPUTS, "--record-inputs", "0")
    found.append(_of_turns(taken, what))
    return found


def _of_turns(taken: dict[str, list[float]], what: str) -> Figure:
    """The cost that turns show, with that of the control as the error of the method."""
    on, off, control = (
        statistics.quantiles(taken[kind], n=4)[0] for kind in ("on", "off", "control")
    )
    usual = statistics.quantiles(taken["off"] + taken["control"], n=4)[0]
    note = (
        f"step {1e3 * usual:.2f} ms, {len(taken['on'])} turns of 5 steps each, "
        f"control {100 * (control / off - 1):+.1f} %"
    )
    return Figure(what, 100 * (on / usual - 1), math.inf, "%", note=note)


def _run(network: str, measured: str, *options: str) -> Any:
    """What rank 0 of the job prints."""
    with tempfile.TemporaryDirectory(prefix="ddt-cost-") as folder:
        script = Path(folder, "job.py")
        script.write_text(_HEAD + network + SETUP + measured + _TAIL)
        job = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        job += ["--nproc-per-node", str(RANKS), str(script)]
        run = [*paired_jobs.RECORD, "run", "--to", f"{folder}/job", *options, "--"]
        started = subprocess.Popen(
            [*run, *job],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = started.communicate(timeout=_LIMIT_S)
        except BaseException:
            os.killpg(started.pid, signal.SIGTERM)  # torchrun ends its ranks
            raise
        check(started.returncode == 0, f"the job ended with status {started.returncode}")
        return json.loads(output.splitlines()[-1])


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
