"""The parts of memory on real ranks, compared with computed sizes."""

from __future__ import annotations

from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.model.memory import RankMemory

from .conftest import Ranks

IN, HIDDEN, OUT, BATCH = 512, 2048, 256, 64
PARAMETERS = IN * HIDDEN + HIDDEN + HIDDEN * OUT + OUT
MODEL = f"""
import time
network = torch.nn.Sequential(
    torch.nn.Linear({IN}, {HIDDEN}), torch.nn.ReLU(), torch.nn.Linear({HIDDEN}, {OUT})
)
"""
STEP = """
optimizer.zero_grad()
model(torch.randn(64, 512)).square().mean().backward()
optimizer.step()
"""


def traced(ranks: Ranks, source: str, n: int = 2) -> tuple[RunResult, RankMemory]:
    session = ranks.session(n)
    session.restart()
    result = session.run(MODEL + dedent(source), trace=True)
    assert result.ok, result.errors
    return result, result.snapshot.memory[0]


@pytest.mark.parametrize(("optimizer", "states"), [("SGD", 0), ("Adam", 2), ("RMSprop", 1)])
def test_parameters_gradients_and_states(ranks: Ranks, optimizer: str, states: int) -> None:
    setting = f"model = DDP(network)\noptimizer = torch.optim.{optimizer}(model.parameters())\n"
    _, memory = traced(ranks, setting + 2 * STEP)
    size = 4 * PARAMETERS
    parts = memory.parts
    assert (memory.parameter_count, memory.trained_count) == (PARAMETERS, PARAMETERS)
    assert parts["parameters"] == parts["gradients"] == size
    assert parts.get("optimizer state", 0) == pytest.approx(states * size, rel=0.02)
    held = parts["parameters"] + parts["gradients"] + parts.get("optimizer state", 0)
    assert held == pytest.approx((2 + states) * size, rel=0.02)
    assert parts["DDP buckets"] == size
    assert (memory.optimizer, memory.wrapper, memory.measured) == (optimizer, "DDP", "step 2")


def test_buckets_that_are_the_gradients_count_once(ranks: Ranks) -> None:
    setting = """
    model = DDP(network, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters())
    """
    _, memory = traced(ranks, dedent(setting) + STEP)
    assert memory.parts["gradients"] == 4 * PARAMETERS
    assert "DDP buckets" not in memory.parts


def test_activations_are_what_backward_keeps(ranks: Ranks) -> None:
    """The input of each linear layer; ReLU's output is the input of the second."""
    setting = "model = DDP(network)\noptimizer = torch.optim.SGD(model.parameters())\n"
    _, memory = traced(ranks, setting + STEP)
    assert memory.parts["activations"] == 4 * BATCH * (IN + HIDDEN)


def test_the_objects_of_a_function_are_found(ranks: Ranks) -> None:
    """In a training function nothing is a variable of the cell."""
    source = """
    def train():
        model = DDP(torch.nn.Linear(100, 50))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            model(torch.randn(8, 100)).sum().backward()
            optimizer.step()
    train()
    del network
    """
    _, memory = traced(ranks, source)
    assert memory.parts["parameters"] == 4 * (100 * 50 + 50)
    assert memory.optimizer == "Adam"


def test_memory_over_time(ranks: Ranks) -> None:
    source = """
    time.sleep(0.3)
    block = torch.ones(25_000_000)
    time.sleep(0.3)
    del block
    time.sleep(0.3)
    """
    result, memory = traced(ranks, source)
    assert memory.peak_bytes is not None
    grown = memory.peak_bytes - memory.rss_kb[0] * 1024
    assert grown == pytest.approx(100e6, rel=0.2)
    assert max(memory.rss_kb) > memory.rss_kb[-1] + 80_000
    assert len(memory.at_ms) >= 8
    assert "machine" in memory.limits
    assert "peak" in str(ddt.memory(result))
    # the line at which it was so high, and not that of the next rise
    assert memory.highest_at_ms is not None
    assert memory.highest_where is not None
    assert memory.highest_where.line in (block := range(6, 10)), block
    assert "at the highest" in str(ddt.memory(result))


def test_the_parts_are_counted_after_forward_passes_and_steps(ranks: Ranks) -> None:
    setting = "model = DDP(network)\noptimizer = torch.optim.Adam(model.parameters())\n"
    _, memory = traced(ranks, setting + 3 * STEP)
    forward, step, *later = memory.counts
    assert forward.parts["activations"] > 0
    assert "gradients" not in forward.parts
    assert "activations" not in step.parts
    assert step.parts["optimizer state"] == pytest.approx(8 * PARAMETERS, rel=1e-3)
    assert [one.at_ms for one in memory.counts] == sorted(one.at_ms for one in memory.counts)
    assert later[-1].parts["gradients"] == 4 * PARAMETERS


def test_on_request_without_a_trace(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.restart()
    result = session.run(MODEL + "held = torch.ones(1000)")
    for asked in (result, session):
        frame = ddt.memory(asked).to_frame()
        assert set(frame.parameters) == {4 * PARAMETERS}
        assert set(frame.tensors) == {4000}


def test_memory_of_a_session_is_what_the_ranks_hold_now(ranks: Ranks) -> None:
    setting = "model = DDP(network)\noptimizer = torch.optim.SGD(model.parameters())\n"
    result, recorded = traced(ranks, setting + 2 * STEP)
    session = ranks.session(2)
    import torch  # takes seconds, and only this test needs it

    session.push(pushed=torch.ones(1000))
    now, then = ddt.memory(session), ddt.memory(result)
    assert set(now.to_frame().tensors - then.to_frame().tensors) == {4000}
    assert now.to_json()["rows"][0]["activations"] == recorded.parts["activations"]
    assert len(now.samples_frame()) == len(then.samples_frame()) > 0
    assert set(now.to_frame()["gradients"]) == {4 * PARAMETERS}


def test_the_cap_of_a_rank_is_its_limit() -> None:
    with ddt.Session(2, memory="300M") as session:
        result = session.run("kept = torch.ones(60_000_000)", trace=True)
        assert result.ok
        (memory, _) = result.snapshot.memory
        assert memory.data_bytes is not None
        assert memory.data_bytes < memory.limits["rank"]
        result = session.run("more = torch.ones(60_000_000)", trace=True)
        assert {error.type for error in result.errors.values()} == {"RuntimeError"}
        assert session.alive
        assert "nearly reached the cap" in str(ddt.memory(result))


def test_an_estimate_from_a_run(ranks: Ranks) -> None:
    setting = "model = DDP(network)\noptimizer = torch.optim.Adam(model.parameters())\n"
    result, _ = traced(ranks, setting + 2 * STEP)
    plans = {
        plan.sharding: plan
        for plan in ddt.estimate(result, 4).plans
        if plan.batch == 1 and not plan.change
    }
    model = plans["DDP"].needs
    size = 4 * PARAMETERS
    assert model.total - model.base == pytest.approx(5 * size + model.activations, rel=0.02)
    saved = plans["DDP"].needs.total - plans["ZeRO-1"].needs.total
    assert saved == pytest.approx(0.75 * 2 * size, rel=0.02)
