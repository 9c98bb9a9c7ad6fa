"""What an ordinary run records of training, and what it must leave alone."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.session import Session

from ..fixtures.training import COMMON
from .conftest import Ranks

BUILD = COMMON + "model = DDP(mlp())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n"
STEP = """
optimizer.zero_grad()
loss_of(model, *batch()).backward()
optimizer.step()
"""


def test_steps_gradients_and_names_are_recorded(ranks: Ranks) -> None:
    session = ranks.session(2)
    run = session.run(BUILD + "for _ in range(3):" + STEP.replace("\n", "\n    "))
    for training in run.snapshot.training:
        (optimizer,) = training.optimizers
        assert (optimizer.name, optimizer.model, optimizer.wrapper) == ("optimizer", "model", "DDP")
        assert (optimizer.steps, optimizer.synchronised, training.backwards) == (3, 3, 3)
        assert [state.step for state in optimizer.states] == [0, 1, 2, 3]
        assert all(state.with_gradient == 4 for state in optimizer.states[:-1])
        assert optimizer.watched[0] == "model.0.weight"
        assert optimizer.where is not None
        assert optimizer.where.cell == run.snapshot.cell.number
        (model,) = training.models
        assert (model.name, model.forwards, model.members) == ("model", 3, (0, 1))
    assert len(run.snapshot.parity) == len(run.snapshot.partition) == 2


def test_each_run_counts_from_zero_and_an_idle_one_reports_nothing(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.run(BUILD + STEP)
    again = session.run(STEP)
    assert [o.steps for t in again.snapshot.training for o in t.optimizers] == [1, 1]
    idle = session.run("x = 1").snapshot
    assert not (idle.training)
    assert not (idle.parity)
    assert not (idle.partition)


def test_a_failed_run_still_shows_how_far_it_got(ranks: Ranks) -> None:
    session = ranks.session(2)
    run = session.run(BUILD + STEP + STEP + "raise ValueError('enough')")
    assert not run.ok
    assert [t.backwards for t in run.snapshot.training] == [2, 2]
    assert not run.snapshot.parity


def test_random_numbers_and_collectives_stay_as_they_are() -> None:
    shown = {}
    source = BUILD + STEP * 2 + "print(torch.rand(1).item(), model.module[0].weight.sum().item())"
    for recording in ("on", "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DDT_RECORDING", recording)
            with Session(2) as session:
                run = session.run(source)
                shown[recording] = run.outputs, session.run("print(torch.rand(1).item())").outputs
                assert bool(run.snapshot.training) == (recording == "on")
    assert shown["on"] == shown["off"]


def test_a_mistake_in_the_record_is_reported_and_does_not_reach_the_user(ranks: Ranks) -> None:
    with Session(2) as session:
        session.run(BUILD)
        run = session.run(
            "optimizer.param_groups[0]['lr'] = 'fast'\n"
            "try:\n    loss_of(model, *batch()).backward()\n    optimizer.step()\n"
            "except TypeError:\n    print('refused')"
        )
        assert run.ok, run.errors
        assert run.outputs == {0: "refused\n", 1: "refused\n"}
        assert any("not recorded any more" in note for note in run.snapshot.notes)
        assert ddt.diagnose(run).ok


def test_graphs_that_are_kept_are_counted(ranks: Ranks) -> None:
    keep = """
def train():
    kept = []
    for step in range(33):
        optimizer.zero_grad()
        loss = loss_of(model, *batch())
        loss.backward()
        optimizer.step()
        if rank == 1:
            kept.append(model(torch.ones(1, 4)) + loss)
train()
"""
    run = ranks.session(2).run(BUILD + keep)
    (hint,) = ddt.diagnose(run).hints
    assert (hint.cause, hint.ranks) == ("loss-keeps-graph", [1])
    one, other = (training.graphs_kept for training in run.snapshot.training)
    assert one < 4 < other
