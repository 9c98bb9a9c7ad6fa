"""Measures the cost of the always-on recording in a DDP step, in two ways.

The first is the time of a step with recording and without it. Two processes with the same code may
not be equally fast, since their memory has other addresses, and single steps differ by far more
than the cost. Therefore the same ranks take turns within one cell, in random order, and run once
more without recording as the control. The apparent cost of the control is the error of the method.

The second is the time inside the recorder, in separate cells. It has almost no error and includes
the work in the first steps of a cell, but not the recorder's effect on the caches.

Neither includes the monitor's thread, which sleeps, or PyTorch's own Flight Recorder.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from ddt_notebook.host.session import Session

from .common import Figure, run_checked, session

#: As many ranks as cores, and more. With more, they compete for the cores, and the noise exceeds
#: the difference.
RANKS = (2, 4)
SESSIONS, TURNS, CELLS = 2, 150, 5

MLP = """
network = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
)
batch = torch.randn(64, 256)
steps = 200
"""
TRANSFORMER = """
layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
network = torch.nn.TransformerEncoder(layer, 2)
batch = torch.randn(8, 32, 128)
steps = 80
"""
SETUP = """
import random, time

torch.set_num_threads(1)
model = DDP(network)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

def step_s(steps):
    dist.barrier()
    start = time.perf_counter()
    train(steps)
    return (time.perf_counter() - start) / steps
"""
SWITCH = """
from torch.optim import optimizer as optimizers

hooked = (DDP, "forward"), (torch.Tensor, "backward")
hooks = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
recording = [getattr(*place) for place in hooked], [dict(kind) for kind in hooks]
without = [function.__wrapped__ for function in recording[0]], [{}, {}]

def switch(functions, registered):
    for place, function in zip(hooked, functions):
        setattr(*place, function)
    for kind, mine in zip(hooks, registered):
        kind.clear()
        kind.update(mine)
"""
PREPARE = SETUP + SWITCH
BY_TURNS = f"""
taken = {{"on": [], "off": [], "control": []}}
shuffle = random.Random(len(taken)).shuffle
for _ in range({TURNS}):
    order = list(taken)
    shuffle(order)
    for kind in order:
        switch(*(recording if kind == "on" else without))
        taken[kind].append(step_s(20))
switch(*recording)
"""
TIMED = """
from ddt_notebook.rank.probes.training import RECORD
inside = 0.0

def timed(function):
    def call(*args, **kwargs):
        global inside
        start = time.perf_counter()
        function(*args, **kwargs)
        inside += time.perf_counter() - start
    return call

for name in ("passes", "losses", "after_backward"):
    setattr(RECORD, name, timed(getattr(RECORD, name)))
switch(recording[0], [{n: timed(f) for n, f in kind.items()} for kind in recording[1]])
"""
SPENT = """
inside = 0.0
taken_s = steps * step_s(steps)
share = 100 * inside / taken_s
"""


def measure() -> Iterator[Figure]:
    for name, network in {"small MLP": MLP, "small transformer": TRANSFORMER}.items():
        for ranks in RANKS:
            yield from _figures(f"a DDP step, {name}, {ranks} ranks", network, ranks)


def _figures(where: str, network: str, ranks: int) -> Iterator[Figure]:
    costs: list[float] = []
    errors: list[float] = []
    plain: list[float] = []
    shares: list[float] = []
    for _ in range(SESSIONS):
        with session(ranks) as active:
            run_checked(active, network + PREPARE)
            taken = _pull(active, BY_TURNS, "taken")
            pairs = zip(taken["off"], taken["control"], strict=True)
            costs += map(_percent, taken["on"], map(statistics.fmean, pairs))
            errors += map(_percent, taken["control"], taken["off"])
            plain += taken["off"]
            run_checked(active, TIMED)
            shares += [_pull(active, SPENT, "share") for _ in range(CELLS)]
    quarter, cost, three_quarters = statistics.quantiles(costs, n=4)
    note = (
        f"step {1e3 * statistics.median(plain):.2f} ms, {len(costs)} turns of 20 steps, "
        f"middle half {quarter:+.1f} to {three_quarters:+.1f} %, "
        f"control {statistics.median(errors):+.1f} %"
    )
    yield Figure(f"cost of recording by the clock, {where}", cost, 2.0, "%", note=note)
    note = f"{len(shares)} cells, {min(shares):.1f} to {max(shares):.1f} %"
    share = statistics.median(shares)
    yield Figure(f"time in the recorder, cells of {where}", share, 2.0, "%", note=note)


def _percent(longer: float, shorter: float) -> float:
    return 100 * (longer / shorter - 1)


def _pull(active: Session, source: str, name: str) -> Any:
    """Run a cell and return a variable of rank 0."""
    run_checked(active, source)
    return active.pull(name, rank=0)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
