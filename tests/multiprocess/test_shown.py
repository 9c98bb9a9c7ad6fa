"""What ranks print is recorded unless the user's code prevents that."""

from __future__ import annotations

import ddt_notebook as ddt

CELL = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from ddt_notebook.rank.probes import shown

data = TensorDataset(torch.randn(16, 4))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(4, 1))
model(torch.randn(4, 4)).sum().backward()
def fail(*_):
    raise ValueError("odd")
shown.ShownRecord.writes = fail
with torch.no_grad():
    loss = sum(model(x).mean().item() for (x,) in loader)
print("loss", loss)
"""


def test_why_printed_values_are_not_recorded_is_noted() -> None:
    with ddt.Session(2) as session:
        run = session.run(CELL)
        assert run.ok
        (note,) = run.snapshot.notes
        assert note.endswith("ValueError: odd")
