"""What the always-on recording costs in a DDP step: with and without it, turn by turn."""

from __future__ import annotations

import statistics

from .common import Figure, Session, run_checked, session

#: As many as there are cores, and more: then they fight for the cores, which drowns the difference
#: in noise, and processor time tells more than the clock.
RANKS = (2, 4)
ROUNDS = 40

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
    with session(ranks) as on, session(ranks, DDT_RECORDING="off") as off:
        for active in (on, off):
            run_checked(active, network + PREPARE)
            _step_s(active)
        ratios, plain, processor = [], [], []
        for turn in range(ROUNDS):
            # Whoever comes second finds warmer caches: they take turns at that, too.
            first, second = (on, off) if turn % 2 else (off, on)
            times = {id(active): _step_s(active) for active in (first, second)}
            ratios.append(times[id(on)][0] / times[id(off)][0])
            processor.append(times[id(on)][1] / times[id(off)][1])
            plain.append(times[id(off)][0])
    cost = 100 * (statistics.median(ratios) - 1)
    quarter, _, three_quarters = statistics.quantiles(ratios, n=4)
    note = (
        f"step {1e3 * statistics.median(plain):.2f} ms, {ROUNDS} pairs, "
        f"middle half {100 * (quarter - 1):+.1f} to {100 * (three_quarters - 1):+.1f} %, "
        f"processor time of a rank {100 * (statistics.median(processor) - 1):+.1f} %"
    )
    return Figure(what, cost, 2.0, "%", note=note)


def _step_s(active: Session) -> tuple[float, float]:
    """Wall and processor time of a step, in seconds."""
    run_checked(active, STEPS)
    wall, cpu = active.pull("step_s", rank=0)  # type: ignore[misc]
    return wall, cpu


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
