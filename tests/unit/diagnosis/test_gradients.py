"""Gradients that are summed, clipped or accumulated: which observations a finding needs."""

from __future__ import annotations

from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Cell, Position, RankReport, Report, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.model.training import (
    LossGraph,
    ModelTraining,
    OptimizerTraining,
    RankTraining,
    TrainingState,
)

from .builders import CELL, all_reduce, at
from .builders import rank as rank_report

MEAN = LossGraph(reduction="mean", factor=1.0)
OWN = {0: (1.0, 4.0), 1: (3.0, -2.0)}
#: Equal on both ranks.
SHARED = {0: (2.0, 1.0), 1: (2.0, 1.0)}
Projections = dict[int, tuple[float, ...]]


def scaled(by: float) -> Projections:
    total = tuple(by * (a + b) for a, b in zip(OWN[0], OWN[1], strict=True))
    return {0: total, 1: total}


def causes(
    used: Projections,
    local: Projections = OWN,
    clipped: Projections | None = None,
    loss: LossGraph | None = MEAN,
    passes: int = 1,
    models: tuple[ModelTraining, ...] = (),
    unclipped: Projections | None = None,
    **optimizer: Any,
) -> list[str | None]:
    report = reported(used, local, clipped, loss, passes, models, unclipped, **optimizer)
    return [finding.cause for finding in (*report.findings, *report.hints)]


def reported(
    used: Projections,
    local: Projections = OWN,
    clipped: Projections | None = None,
    loss: LossGraph | None = MEAN,
    passes: int = 1,
    models: tuple[ModelTraining, ...] = (),
    unclipped: Projections | None = None,
    source: str = "train()",
    calls: tuple[Call, ...] = (),
    partition: tuple[RankPartition, ...] = (),
    **optimizer: Any,
) -> Report:
    optimizer = {"kind": "SGD", **optimizer}
    trainings = []
    for rank in (0, 1):
        states = tuple(
            TrainingState(
                step=step,
                values=(step,),
                gradients=(step + 10,),
                local=local[rank],
                used=used[rank],
                unclipped=unclipped[rank] if unclipped else (),
                clipped=clipped[rank] if clipped else (),
            )
            for step in (1, 2)
        )
        one = OptimizerTraining(
            name="optimizer",
            steps=3,
            model="model",
            watched=("weight",),
            shapes={"1×4": 1},
            passes={passes: 3},
            states=(*states, TrainingState(step=3, values=(3,))),
            **optimizer,
        )
        trainings.append(
            RankTraining(
                rank=rank, backwards=3 * passes, optimizers=(one,), loss=loss, models=models
            )
        )
    snapshot = Snapshot(
        cell=Cell(number=CELL, source=source),
        ranks=tuple(rank_report(rank, *calls) for rank in (0, 1)),
        world_size=2,
        training=tuple(trainings),
        partition=partition,
    )
    return diagnose(snapshot)


#: A program that sums gradients at line 3, and makes its optimizer at line 5.
SUMS = """
def {function}(model):
    for p in model.parameters(): dist.all_reduce(p.grad)
loader = DataLoader(data, batch_size={batch})
optimizer = torch.optim.SGD(model.parameters(), lr={rate})
for x in loader:
    loss(x).backward()
    {function}(model)
    optimizer.step()
"""
LOADS = tuple(
    RankPartition(
        rank=number,
        run=1,
        loaders=(
            LoaderPartition(
                name="loader",
                dataset="Data",
                made_at=at(4),
                epochs=(Epoch(number=0, run=1, trained=3, batches=3, samples=12),),
            ),
        ),
    )
    for number in (0, 1)
)
REDUCES = all_reduce(3, shapes=((1, 4),), reduce_op="SUM")


@pytest.mark.parametrize(
    ("filled", "fields", "certain"),
    [
        ({"function": "average_gradients"}, {}, True),
        ({"function": "averageGradients"}, {}, True),
        ({"batch": "64 // dist.get_world_size()"}, {"loads": True}, True),
        ({"batch": "64 // dist.get_world_size()"}, {}, False),
        ({}, {"loads": True}, False),
        ({}, {}, False),
        ({"function": "measure_meaning"}, {}, False),
        ({"function": "average_gradients", "rate": "0.1 / world_size"}, {}, False),
        ({"function": "average_gradients"}, {"kind": "AdamW"}, False),
        ({"function": "average_gradients"}, {"made": None}, False),
    ],
)
def test_a_sum_is_a_fault_if_a_mean_was_meant(
    filled: dict[str, str], fields: dict[str, Any], certain: bool
) -> None:
    source = SUMS.format(**{"function": "reduce_gradients", "batch": "64", "rate": "0.1", **filled})
    fields = {"made": at(5), **fields}
    if fields.pop("loads", False):
        fields["partition"] = LOADS
    report = reported(scaled(1.0), source=source, calls=(REDUCES,), **fields)
    assert [one.cause for one in report.findings] == ["gradients-not-divided"] * certain
    assert [one.cause for one in report.hints] == ["gradients-not-divided"] * (not certain)
    assert not reported(scaled(0.5), source=source, calls=(REDUCES,), **fields).findings


def test_a_sum_is_a_hint() -> None:
    assert causes(scaled(1.0)) == ["gradients-not-divided"]
    quarter = LossGraph(reduction="mean", factor=0.25)
    assert causes(scaled(1.0), loss=quarter, passes=4) == ["gradients-not-divided"]
    reward = LossGraph(reduction="mean", factor=-1.0)
    assert causes(scaled(1.0), loss=reward) == ["gradients-not-divided"]


@pytest.mark.parametrize(
    ("used", "local", "loss"),
    [
        (scaled(0.5), OWN, MEAN),
        (scaled(0.7), OWN, MEAN),  # clipped afterwards
        (scaled(1.0), OWN, LossGraph(reduction="mean", factor=0.5)),
        (scaled(1.0), OWN, LossGraph(reduction="mean", factor=None)),
        (scaled(1.0), OWN, LossGraph(reduction="sum", factor=1.0)),
        (scaled(1.0), OWN, None),
        # every rank computed the same, as in a tensor-parallel group
        ({0: (4.0, 2.0), 1: (4.0, 2.0)}, SHARED, MEAN),
    ],
)
def test_look_alikes_of_a_sum_are_silent(
    used: Projections, local: Projections, loss: LossGraph | None
) -> None:
    assert causes(used, local=local, loss=loss) == []


def test_clipping_before_and_after_the_mean() -> None:
    halves = {rank: tuple(0.5 * one for one in own) for rank, own in OWN.items()}
    assert causes(scaled(0.25), clipped=halves) == ["clipped-before-average"]
    assert causes(scaled(0.25), clipped=scaled(0.25)) == []
    assert causes(scaled(0.5), clipped=OWN) == []  # the norm was below the limit


def test_a_sum_that_is_clipped_afterwards() -> None:
    short, mean = scaled(0.1), scaled(0.5)
    assert causes(short, clipped=short, unclipped=scaled(1.0)) == ["gradients-not-divided"]
    assert causes(short, clipped=short, unclipped=mean) == []
    # divided after they were clipped
    assert causes(scaled(0.05), clipped=short, unclipped=scaled(1.0)) == []


def test_a_gradient_that_is_clipped_and_then_divided_was_not_forgotten() -> None:
    models = (ModelTraining(name="model", members=(0, 1), forwards=3, unsynchronised=9),)
    seen: dict[str, Any] = {"local": SHARED, "passes": 4, "models": models}
    seen |= {"wrapper": "DDP", "members": (0, 1), "synchronised": 3, "unclipped": SHARED}
    half, quarter = ({r: tuple(by * x for x in SHARED[r]) for r in SHARED} for by in (0.5, 0.25))
    assert causes(half, clipped=half, **seen) == ["accumulated-loss-not-divided"]
    assert causes(quarter, clipped=half, **seen) == []


def test_accumulation_without_a_division() -> None:
    models = (ModelTraining(name="model", members=(0, 1), forwards=3, unsynchronised=9),)
    ddp: dict[str, Any] = {"wrapper": "DDP", "members": (0, 1), "synchronised": 3}
    seen = {"local": SHARED, "passes": 4, "models": models, **ddp}
    assert causes(SHARED, **seen) == ["accumulated-loss-not-divided"]
    divided = LossGraph(reduction="mean", factor=0.25)
    assert causes(SHARED, loss=divided, **seen) == []
    assert causes({0: (0.5, 0.25), 1: (0.5, 0.25)}, **seen) == []
    # two losses of one step, as of a GAN's discriminator, both in synchronised passes
    two = (ModelTraining(name="model", members=(0, 1), forwards=6),)
    assert causes(SHARED, **seen | {"passes": 2, "models": two}) == []


@pytest.mark.parametrize(
    ("used", "local", "rates", "parted", "expected"),
    [
        (scaled(0.5), OWN, (0.1, 0.2), True, ["ranks-diverged-learning-rate"]),
        (scaled(0.5), OWN, (0.1, 0.1), True, []),
        (scaled(0.5), OWN, (0.1, 0.2), False, []),  # a broadcast makes the copies equal again
        # models of their own that try out rates: on other data, and on the same
        (OWN, OWN, (0.1, 0.2), True, []),
        (SHARED, SHARED, (0.1, 0.2), True, []),
        ({0: (2.0, 4.0), 1: (2.0, -2.0)}, OWN, (0.1, 0.2), True, []),  # one was not averaged
    ],
)
def test_rates_that_part_ranks_with_equal_gradients(
    used: Projections,
    local: Projections,
    rates: tuple[float, float],
    parted: bool,
    expected: list[str],
) -> None:
    trainings = []
    for rank, rate in enumerate(rates):
        values = [(1, 2)] + [(step, 2 + rank if parted else 2) for step in (2, 3, 4)]
        same = used[0] == used[1]
        states = tuple(
            TrainingState(
                step=step,
                values=value,
                gradients=(7, 8 if same else 8 + rank) if step < 3 else (),
                local=local[rank] if 0 < step < 3 else (),
                used=used[rank] if 0 < step < 3 else (),
                rates=(rate,),
            )
            for step, value in enumerate(values)
        )
        one = OptimizerTraining(
            name="optimizer",
            steps=3,
            model="model",
            watched=("weight", "bias"),
            shapes={"1×4": 1, "4": 1},
            settings={"lr[0]": str(rate)},
            passes={1: 3},
            states=states,
        )
        trainings.append(RankTraining(rank=rank, backwards=3, optimizers=(one,)))
    snapshot = Snapshot(
        cell=Cell(number=1, source="train()"),
        ranks=tuple(RankReport(rank=rank) for rank in (0, 1)),
        world_size=2,
        training=tuple(trainings),
    )
    found = [finding.cause for finding in diagnose(snapshot).findings]
    assert [cause for cause in found if cause == "ranks-diverged-learning-rate"] == expected


def _clipped_after_exchange(*clip: float | None) -> list[tuple[str, list[int]]]:
    """What is found if each rank scales the mean by its number, or does not clip it."""
    mean = scaled(0.5)[0]
    trainings = []
    for rank, by in enumerate(clip):
        used = mean if by is None else tuple(by * one for one in mean)
        states = tuple(
            TrainingState(
                step=step,
                values=(step if by is None or step < 2 else step + round(100 * by),),
                gradients=(step + 10,),
                local=OWN[rank] if step else (),
                used=used if step else (),
                unclipped=mean if step and by is not None else (),
                clipped=used if step and by is not None else (),
            )
            for step in range(4)
        )
        one = OptimizerTraining(
            name="optimizer",
            kind="SGD",
            steps=3,
            model="model",
            watched=("weight",),
            shapes={"1×4": 1},
            states=states,
        )
        where = Position(file=f"cell[{CELL}]", line=7 + rank)
        trainings.append(
            RankTraining(rank=rank, backwards=3, optimizers=(one,), clips_at=where if by else None)
        )
    snapshot = Snapshot(
        cell=Cell(number=CELL, source="train()"),
        ranks=tuple(rank_report(rank) for rank in range(2)),
        world_size=2,
        training=tuple(trainings),
    )
    findings = diagnose(snapshot).findings
    return [(one.kind, [place.line for place in one.places.values()]) for one in findings]


def test_ranks_that_clip_what_they_exchanged_differently() -> None:
    assert ("clipped-apart", [7]) in _clipped_after_exchange(0.5, None)
    assert ("clipped-apart", [7, 8]) in _clipped_after_exchange(0.5, 0.25)
    for alike in ((0.5, 0.5), (None, None), (None, 1.0)):  # 1.0 changes nothing
        assert "clipped-apart" not in dict(_clipped_after_exchange(*alike))


def _rates_after_exchange(*rates: float) -> list[str | None]:
    """What is found if the ranks step with these rates, once they have exchanged gradients."""
    mean = scaled(0.5)[0]
    trainings = []
    for rank, rate in enumerate(rates):
        states = tuple(
            TrainingState(
                step=step,
                values=(step, step if step < 3 else step + round(100 * rate)),
                gradients=(step + 10, step + 20) if step < 3 else (),
                local=OWN[rank] if 0 < step < 3 else (),
                used=mean if 0 < step < 3 else (),
                rates=(0.1 if step < 2 else rate,),
            )
            for step in range(4)
        )
        one = OptimizerTraining(
            name="optimizer",
            kind="SGD",
            steps=3,
            model="model",
            watched=("weight", "far.bias"),  # the second one is not followed
            shapes={"1×4": 2},
            states=states,
        )
        trainings.append(RankTraining(rank=rank, backwards=3, optimizers=(one,)))
    snapshot = Snapshot(
        cell=Cell(number=CELL, source="train()"),
        ranks=tuple(rank_report(rank) for rank in range(2)),
        world_size=2,
        training=tuple(trainings),
    )
    return [one.cause for one in diagnose(snapshot).findings]


def test_rates_that_part_ranks_whose_gradients_are_followed_in_part() -> None:
    assert "ranks-diverged-learning-rate" in _rates_after_exchange(0.2, 0.3)
    assert "ranks-diverged-learning-rate" not in _rates_after_exchange(0.2, 0.2)
