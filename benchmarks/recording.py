"""What the always-on recording costs in a DDP step: with and without it, turn by turn.

Two processes with the same code need not be equally fast: their memory lies elsewhere. Therefore
sessions are started anew several times, and a second session without recording is the control:
what it seems to cost is the error of the method.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

from .common import Figure, Session, run_checked, session

#: As many as there are cores, and more: then they fight for the cores, which drowns the difference
#: in noise, and processor time tells more than the clock.
RANKS = (2, 4)
SESSIONS, ROUNDS = 5, 12

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
"""
STEPS = """
dist.barrier()
wall, cpu = time.perf_counter(), time.process_time()
for _ in range(steps):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
# All steps of the block and all threads of the rank: a cost that falls on a few steps counts too.
step_s = (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps
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
    off = {"DDT_RECORDING": "off"}
    with session(ranks) as on, session(ranks, **off) as plain, session(ranks, **off) as control:
        kinds = [on, plain, control]
        for active in kinds:
            run_checked(active, network + PREPARE)
            _step_s(active)
        order = list(range(len(kinds)))
        for _ in range(ROUNDS):
            random.shuffle(order)  # whoever comes later finds warmer caches
            times = {at: _step_s(kinds[at]) for at in order}
            yield [times[at] for at in range(len(kinds))]


def _percent(longer: float, shorter: float) -> float:
    return 100 * (longer / shorter - 1)


def _step_s(active: Session) -> tuple[float, float]:
    """Wall and processor time of a step, in seconds."""
    run_checked(active, STEPS)
    wall, cpu = active.pull("step_s", rank=0)  # type: ignore[misc]
    return wall, cpu


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
