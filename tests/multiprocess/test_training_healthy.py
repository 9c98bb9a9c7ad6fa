"""Healthy training that looks like a fault gives no finding."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt

from ..fixtures.training import COMMON, PROGRAMS, WITHOUT_HINTS
from .conftest import Ranks


@pytest.mark.parametrize("name", PROGRAMS)
def test_healthy_training_gives_no_finding(ranks: Ranks, name: str) -> None:
    run = ranks.session(2).run(COMMON + PROGRAMS[name])
    assert run.ok, run.errors
    assert run.snapshot.training, "nothing was recorded"
    report = ddt.diagnose(run)
    assert not report.findings, str(report)
    if name in WITHOUT_HINTS:
        assert not report.hints, str(report)


def test_replicas_of_stages_that_are_trained_in_subgroups(ranks: Ranks) -> None:
    """Ranks 0 and 1 train one stage, ranks 2 and 3 another: nothing is equal across stages."""
    session = ranks.session(4)
    run = session.run(
        COMMON
        + """
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
torch.manual_seed(rank // 2)
stage = DDP(mlp(), process_group=pairs[rank // 2])
optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
torch.manual_seed(rank)
for step in range(4):
    optimizer.zero_grad()
    loss_of(stage, *batch()).backward()
    optimizer.step()
"""
    )
    assert run.ok, run.errors
    report = ddt.diagnose(run)
    assert not report.findings, str(report)


def test_a_model_is_trained_over_several_cells_and_by_one_rank_alone(ranks: Ranks) -> None:
    session = ranks.session(2)
    build = "model = DDP(mlp())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n"
    step = "optimizer.zero_grad()\nloss_of(model, *batch()).backward()\noptimizer.step()\n"
    alone = step.replace("optimizer", "single").replace("(model,", "(net,")
    cells = [(COMMON + build + "torch.manual_seed(rank)", None), (step, None), (step, None)]
    cells.append(("net = mlp()\nsingle = torch.optim.SGD(net.parameters(), lr=1.0)\n" + alone, [0]))
    for source, chosen in cells:
        run = session.run(source, chosen)
        assert run.ok, run.errors
        report = ddt.diagnose(run)
        assert not report.findings, str(report)
