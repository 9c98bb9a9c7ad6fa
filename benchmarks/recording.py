"""What the always-on recording costs in a DDP step: with and without it, turn by turn.

Two processes with the same code need not be equally fast: their memory lies elsewhere. Therefore
the same ranks run with what records and without it, cell by cell in any order, and once more
without it as the control: what that seems to cost is the error of the method. What is not taken
away is what sleeps meanwhile (the monitor's thread), and PyTorch's own Flight Recorder.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

from .common import Figure, Session, run_checked, session

#: As many as there are cores, and more: then they fight for the cores, which drowns the difference
#: in noise, and processor time tells more than the clock.
RANKS = (2, 4)
SESSIONS, ROUNDS = 4, 15
KINDS = ("on", "off", "control")

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
PREPARE = """
import time
torch.set_num_threads(1)
model = DDP(network)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

from torch.optim import optimizer as optimizers
hooked = (DDP, "forward"), (torch.Tensor, "backward")
hooks = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
recording = [getattr(*place) for place in hooked], [dict(kind) for kind in hooks]
plain = [function.__wrapped__ for function in recording[0]], [{}, {}]

def switch(functions, registered):
    for place, function in zip(hooked, functions):
        setattr(*place, function)
    for kind, mine in zip(hooks, registered):
        kind.clear()
        kind.update(mine)
"""
STEPS = """
switch(*{})
dist.barrier()
wall, cpu = time.perf_counter(), time.process_time()
for _ in range(steps):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
# All steps of the block and all threads of the rank: a cost that falls on a few steps counts too.
step_s = (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps
switch(*recording)
"""


def measure() -> list[Figure]:
    networks = {"small MLP": MLP, "small transformer": TRANSFORMER}
    return [
        _figure(f"cost of recording on a DDP step, {name}, {ranks} ranks", network, ranks)
        for name, network in networks.items()
        for ranks in RANKS
    ]


def _figure(what: str, network: str, ranks: int) -> Figure:
    costs: list[float] = []
    errors: list[float] = []
    processor: list[float] = []
    plain: list[float] = []
    for _ in range(SESSIONS):
        for on, off, control in _turns(network, ranks):
            costs.append(_percent(on[0], off[0]))
            errors.append(_percent(control[0], off[0]))
            processor.append(_percent(on[1], off[1]))
            plain.append(off[0])
    quarter, cost, three_quarters = statistics.quantiles(costs, n=4)
    note = (
        f"step {1e3 * statistics.median(plain):.2f} ms, {SESSIONS} × {ROUNDS} turns, "
        f"middle half {quarter:+.1f} to {three_quarters:+.1f} %, "
        f"control {statistics.median(errors):+.1f} %, "
        f"processor time of a rank {statistics.median(processor):+.1f} %"
    )
    return Figure(what, cost, 2.0, "%", note=note)


def _turns(network: str, ranks: int) -> Iterator[list[tuple[float, float]]]:
    """Times of a step with recording, without it, and in the control: again and again."""
    with session(ranks) as active:
        run_checked(active, network + PREPARE)
        order = list(KINDS)
        for kind in order:
            _step_s(active, kind)
        for _ in range(ROUNDS):
            random.shuffle(order)  # whoever comes later finds warmer caches
            times = {kind: _step_s(active, kind) for kind in order}
            yield [times[kind] for kind in KINDS]


def _percent(longer: float, shorter: float) -> float:
    return 100 * (longer / shorter - 1)


def _step_s(active: Session, kind: str) -> tuple[float, float]:
    """Wall and processor time of a step, in seconds."""
    run_checked(active, STEPS.format("recording" if kind == "on" else "plain"))
    wall, cpu = active.pull("step_s", rank=0)  # type: ignore[misc]
    return wall, cpu


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
