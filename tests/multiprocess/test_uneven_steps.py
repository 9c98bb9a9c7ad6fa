"""Optimizer steps that some ranks leave out are found if replicas end apart, and only then."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt

from .conftest import Ranks

MODEL = """
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(100 + rank)

def backward():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 6)).square().mean()
    loss.backward()
    return loss
"""
FAULTS = {
    "on its number": """
for i in range(5):
    backward()
    if rank != 1 or i < 3:
        optimizer.step()
""",
    "one rank never": """
for i in range(5):
    backward()
    if rank < 2:
        optimizer.step()
""",
    "swallowed before the step": """
for i in range(5):
    try:
        backward()
        if rank == 2 and i == 3:
            raise ValueError("cannot log")
        optimizer.step()
    except ValueError:
        pass
""",
    "in a function": """
def train(net, opt, steps):
    for i in range(steps):
        backward()
        if not (dist.get_rank() == 0 and i % 2):
            opt.step()

train(model, optimizer, 6)
""",
    "nothing left at the end": """
class Trainer:
    def __init__(self):
        self.net = DDP(torch.nn.Linear(6, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=0.1)

    def fit(self, skip):
        for i in range(11):
            self.opt.zero_grad()
            self.net(torch.randn(4, 6)).square().mean().backward()
            if not skip(i):
                self.opt.step()

def main():
    Trainer().fit(lambda i: rank == 1 and i == 7)

main()
""",
    "one rank never, in a function": """
def main():
    net = DDP(torch.nn.Linear(6, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(5):
        opt.zero_grad()
        net(torch.randn(4, 6)).square().mean().backward()
        if rank < 2:
            opt.step()

main()
""",
}
HEALTHY = {
    "one rank steps and hands out": """
for i in range(4):
    backward()
    if rank == 0:
        optimizer.step()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
""",
    "made equal at the end": """
for i in range(4):
    backward()
    if rank != 1 or i < 3:
        optimizer.step()
for p in model.parameters():
    dist.all_reduce(p.data)
    p.data /= world_size
""",
    "averaged in a function after its optimizer is gone": """
def steps(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(4):
        net(torch.randn(4, 6)).square().mean().backward()
        if rank != 1 or i < 3:
            opt.step()

def main():
    net = DDP(torch.nn.Linear(6, 1))
    for _ in range(2):
        steps(net)
        with torch.no_grad():
            for p in net.parameters():
                dist.all_reduce(p)
                p /= world_size

main()
""",
    "all skip together": """
for i in range(6):
    loss = backward().detach()
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    if i == 2 or loss.item() > 1e6:
        continue
    optimizer.step()
""",
    "each tunes its copy afterwards": """
for i in range(3):
    backward()
    optimizer.step()
for i in range(rank + 1):
    optimizer.zero_grad()
    model.module(torch.randn(4, 6)).square().mean().backward()
    optimizer.step()
""",
    "uneven data inside join": """
with model.join():
    for i in range(4 + rank):
        backward()
        optimizer.step()
""",
}


@pytest.mark.parametrize("name", FAULTS)
def test_steps_that_are_left_out_are_found(ranks: Ranks, name: str) -> None:
    report = ddt.diagnose(ranks.session(3).run(MODEL + FAULTS[name]))
    (finding,) = report.findings
    assert finding.cause == "steps-skipped-on-some-ranks", str(report)
    assert len(finding.ranks) == 1


@pytest.mark.parametrize("name", HEALTHY)
def test_equal_or_intended_steps_give_no_finding(ranks: Ranks, name: str) -> None:
    run = ranks.session(3).run(MODEL + HEALTHY[name])
    assert run.ok, run.errors
    report = ddt.diagnose(run)
    causes = [f.cause for f in (*report.findings, *report.hints)]
    assert "steps-skipped-on-some-ranks" not in causes, str(report)
