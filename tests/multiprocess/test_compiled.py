"""Compiled programs run on ranks as they do without the recorder."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt

from .conftest import Ranks

#: The compiler must make one graph of it, with the collective inside.
ONE_GRAPH = """
weights = [torch.nn.Parameter(torch.ones(3))]
weights[0].grad = torch.full((3,), 5.0)

@torch.compile(backend="eager", fullgraph=True)
def total(x):
    dist.all_reduce(x)
    return x * 2, torch.nn.utils.clip_grad_norm_(weights, 1.0)

assert total(torch.ones(3))[0].tolist() == [4.0, 4.0, 4.0]
"""
#: Between graphs, the compiler meets the recorder's functions: hooks, wrappers, trace functions.
BETWEEN_GRAPHS = """
import time

model = DDP(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best, kept = 1e9, []

def note(value):
    global best
    if value < best:
        best = value
    kept.append((value, time.time() > 0))

def shifted(x, step):
    for k in range(2):
        x = x + k
    note(x.sum().item())
    return x * 2 if step % 2 else x

@torch.compile(backend="eager")
def train(x, step):
    optimizer.zero_grad()
    loss = shifted(model(x), step).square().mean()
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    loss.backward()
    optimizer.step()

for step in range(3):
    train(torch.randn(4, 8), step)
assert len(kept) == 3
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 2
"""


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("source", [ONE_GRAPH, BETWEEN_GRAPHS], ids=["one graph", "between graphs"])
def test_what_is_compiled_runs_and_is_recorded(ranks: Ranks, source: str, trace: bool) -> None:
    run = ranks.session(2).run("torch.compiler.reset()\n" + source, trace=trace)
    assert run.ok, run.errors
    found = ddt.diagnose(run)
    assert found.ok, str(found)
    assert not found.notes, str(found)
    if source is BETWEEN_GRAPHS:
        for report in run.snapshot.ranks:
            # three of the function and three of DDP
            assert [call.op for call in report.calls].count("all_reduce") == 6
        assert [rank.backwards for rank in run.snapshot.training] == [3, 3]
