"""How long the parity of a large model and all views of a run take."""

from __future__ import annotations

import time

import ddt_notebook as ddt

from .common import Figure, median_of, run_checked, seconds, session

LARGE = """
model = torch.nn.Sequential(*[torch.nn.Linear(2500, 2500, bias=False) for _ in range(16)])
assert sum(p.numel() for p in model.parameters()) == 100_000_000
"""
DIFFERENT = "for p in model.parameters():\n    p.data.add_(rank)"
TRAINING = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
block = lambda: torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = DDP(torch.nn.Sequential(*[block() for _ in range(12)]))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(256, 8, 64))
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def measure() -> list[Figure]:
    figures = []
    with session(2) as active:
        run_checked(active, LARGE)
        took, note = median_of(lambda: seconds(lambda: ddt.parity(active).to_html()), 5)
        figures.append(Figure("parity of 100 M parameters, 2 ranks", took, 1.5, "s", note=note))
        run_checked(active, DIFFERENT)
        took, note = median_of(lambda: seconds(lambda: ddt.parity(active).to_html()), 5)
        figures.append(Figure("the same, all values differ", took, 1.5, "s", note=note))
    with session(4) as active:
        run = active.run(TRAINING, trace=True)
        assert run.ok, run.errors
        views = (
            ddt.placement,
            ddt.partition,
            ddt.parity,
            ddt.memory,
            ddt.collectives,
            ddt.timeline,
        )

        def show_all() -> None:
            for view in views:
                view(run)._repr_mimebundle_()

        def processor_s() -> float:
            begun = time.process_time()
            show_all()
            return time.process_time() - begun

        took, note = median_of(processor_s, 5)
        name = "all views of a run on 4 ranks, processor time"
        figures.append(Figure(name, took, 0.1, "s", note=note))
    return figures


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
