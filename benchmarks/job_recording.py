"""Measures what recording costs a DDP step of a job that torchrun starts.

As in `recording`, in two ways. By the clock: the job is run bare and below ``ddt-notebook run``, in
turns, and the medians of each pair are compared; pairs of two bare runs are the control. Inside the
recorder: the job's own ranks time the functions that record, which has almost no error. What
``--record-inputs`` adds is measured as processor time.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from .common import Figure
from .recording import MLP, SETUP, SPENT, SWITCH, TIMED, TRANSFORMER

RANKS, PAIRS = 2, 6
_PAIRS_OF_INPUTS = 3
_LIMIT_S = 180
_MAIN = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
_HEAD = """
import json
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
"""
#: The clock's share: the median of many short turns.
_CLOCK = """
import statistics
step_s(20)
found = statistics.median(step_s(20) for _ in range(40))
"""
_INSIDE = f"""{SWITCH}
{TIMED}
step_s(20)
{SPENT}
found = share
"""
#: Processor time of a step, all threads of the rank included.
_PROCESSOR = """
step_s(20)
before = time.process_time()
for _ in range(20):
    step_s(20)
found = (time.process_time() - before) / 400
"""
_TAIL = """
if dist.get_rank() == 0:
    print(json.dumps(found), flush=True)
dist.destroy_process_group()
"""


def measure() -> list[Figure]:
    found = []
    for name, network, limit in (
        ("small MLP", MLP, 2.0),
        ("small transformer", TRANSFORMER, 1.0),
    ):
        where = f"a DDP step of a job, {name}, {RANKS} ranks"
        costs, errors, steps = [], [], []
        for number in range(PAIRS):
            kinds = ("bare", "recorded", "control")
            turns = {
                kind: _run(network, _CLOCK, recorded=kind == "recorded")
                for kind in (kinds if number % 2 else reversed(kinds))
            }
            usual = (turns["bare"] + turns["control"]) / 2
            costs.append(100 * (turns["recorded"] / usual - 1))
            errors.append(100 * (turns["control"] / turns["bare"] - 1))
            steps.append(usual)
        note = (
            f"step {1e3 * statistics.median(steps):.2f} ms, {PAIRS} pairs, {min(costs):+.1f} to "
            f"{max(costs):+.1f} %, control {min(errors):+.1f} to {max(errors):+.1f} %"
        )
        cost = statistics.median(costs)
        found.append(
            Figure(f"cost of recording by the clock, {where}", cost, limit, "%", note=note)
        )
        shares = [_run(network, _INSIDE, recorded=True) for _ in range(3)]
        note = f"3 jobs, {min(shares):.2f} to {max(shares):.2f} %"
        what = f"time in the recorder, {where}"
        found.append(Figure(what, statistics.median(shares), limit, "%", note=note))
        found.append(_inputs(network, where))
    return found


def _inputs(network: str, where: str) -> Figure:
    """What it costs a recorded rank to keep its inputs, too: processor time, in pairs."""
    steps, costs, errors = [], [], []
    for _ in range(_PAIRS_OF_INPUTS):
        without, kept, control = (
            _run(network, _PROCESSOR, recorded=True, options=options)
            for options in ((), ("--record-inputs", "0"), ())
        )
        usual = (without + control) / 2
        steps.append(1e3 * usual)
        costs.append(1e3 * (kept - usual))
        errors.append(100 * (control / without - 1))
    step, cost = statistics.median(steps), statistics.median(costs)
    note = (
        f"{100 * cost / step:+.0f} % of {step:.2f} ms, {_PAIRS_OF_INPUTS} pairs, "
        f"{min(costs):.2f} to {max(costs):.2f} ms, "
        f"control {min(errors):+.1f} to {max(errors):+.1f} %"
    )
    what = f"processor time of keeping a rank's inputs, {where}"
    return Figure(what, cost, math.inf, "ms", note=note)


def _run(network: str, measured: str, *, recorded: bool, options: tuple[str, ...] = ()) -> float:
    """What rank 0 of the job prints."""
    with tempfile.TemporaryDirectory(prefix="ddt-cost-") as folder:
        script = Path(folder, "job.py")
        script.write_text(_HEAD + network + SETUP + measured + _TAIL)
        job = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        job += ["--nproc-per-node", str(RANKS), str(script)]
        run = [sys.executable, "-c", _MAIN, "run", "--to", f"{folder}/job", *options, "--"]
        done = subprocess.run(
            [*run, *job] if recorded else job,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=True,
        )
        return float(json.loads(done.stdout.split()[-1]))


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
