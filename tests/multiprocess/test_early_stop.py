"""A rank stops training by its own number: the finding names the line that decides."""

from __future__ import annotations

import ddt_notebook as ddt

from .conftest import Ranks

MODEL = """
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(96, 8), torch.zeros(96, 1))
sampler = torch.utils.data.DistributedSampler(data, seed=0)
loader = torch.utils.data.DataLoader(data, batch_size=16, sampler=sampler)
model = DDP(torch.nn.Linear(8, 1))

def step(x, y):
    model.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss.item()
"""
STOPS = """
for epoch in range(6):
    total = 0.0
    for x, y in loader:
        total += step(x, y)
    mine = rank * max(total, 1.0)  # rank 0's is always below the bound
    if mine >= 1.0 and epoch == 2:
        break
"""
UNEVEN = """
for epoch in range(3):
    batches = list(loader)
    for x, y in batches[rank:]:
        step(x, y)
    if total_of_all > 0:
        break
"""


def test_the_condition_is_named_if_all_loaders_have_equal_length(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.run(MODEL)
    (finding,) = ddt.diagnose(session.run(STOPS)).findings
    assert finding.cause == "early-exit-on-rank-condition", str(finding)
    assert finding.ranks == [1]
    assert any("if mine >= 1.0" in fact for fact in finding.evidence)


def test_uneven_iterations_are_named_if_the_loop_is_uneven(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.run(MODEL + "total_of_all = -1.0\n")
    (finding,) = ddt.diagnose(session.run(UNEVEN)).findings
    assert finding.cause == "uneven-iterations", str(finding)
