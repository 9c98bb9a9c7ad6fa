"""A second model that each rank trains alone, beside one in DDP."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Cell, Finding, RankReport, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.model.training import (
    OptimizerTraining,
    RankTraining,
    TrainingState,
    UsedModule,
)

RANKS = (0, 1)
STEPS = 4


def _training(rank: int, *, first: int, shared: int | None) -> RankTraining:
    """A head whose optimizer has another name for it; from step ``shared`` on, ranks agree."""

    def value(step: int) -> int:
        agrees = step == 0 or (shared is not None and step >= shared)
        return 100 + 10 * step + (0 if agrees else rank)

    states = tuple(
        TrainingState(
            step=step,
            values=(value(step),),
            gradients=(value(step + 1) + 500,) if step < STEPS else (),
            rates=(0.1,),
        )
        for step in range(STEPS + 1)
    )
    head = OptimizerTraining(
        name="self.optimizer",
        kind="Adam",
        model="self.head",
        steps=STEPS,
        watched=("self.head.weight",),
        shapes={"4×8": 1},
        parameters=1,
        trainable=1,
        states=states,
    )
    used = UsedModule(
        name="the Linear",
        trained=True,
        watched=("weight",),
        shapes={"4×8": 1},
        first=(first,),
        last=(value(STEPS),),
    )
    return RankTraining(rank=rank, backwards=STEPS, optimizers=(head,), used=(used,))


def _findings(*, first: int = 100, shared: int | None = None) -> list[Finding]:
    calls = tuple(
        Call(
            op="all_gather",
            kind="collective",
            group="0",
            members=RANKS,
            sequence=number,
            index=number,
            shapes=((16, 8),),
            source="call log",
        )
        for number in range(1, STEPS + 1)
    )
    snapshot = Snapshot(
        cell=Cell(number=1, source="train()"),
        ranks=tuple(RankReport(rank=rank, state="finished", calls=calls) for rank in RANKS),
        world_size=2,
        has_group=True,
        training=tuple(_training(rank, first=first, shared=shared) for rank in RANKS),
        partition=tuple(
            RankPartition(
                rank=rank,
                loaders=(
                    LoaderPartition(
                        name="loader",
                        dataset="Rows",
                        dataset_size=8,
                        indexed=True,
                        replicas=2,
                        replica=rank,
                        epochs=(
                            Epoch(
                                number=1,
                                batches=STEPS,
                                samples=STEPS,
                                complete=True,
                                trained=STEPS,
                                first=tuple(range(rank, 8, 2)),
                            ),
                        ),
                    ),
                ),
            )
            for rank in RANKS
        ),
    )
    found = diagnose(snapshot).findings
    return [one for one in found if one.cause == "model-not-wrapped"]


def test_gradients_that_were_never_equal_were_not_averaged_whatever_was_gathered() -> None:
    (found,) = _findings()
    assert found.values["model"] == "self.head"
    assert found.ranks == [0, 1]


@pytest.mark.parametrize("shared", [2, STEPS])
def test_ranks_that_were_level_again_may_have_averaged(shared: int) -> None:
    assert _findings(shared=shared) == []


def test_a_module_with_other_values_is_not_that_of_the_optimizer() -> None:
    assert _findings(first=7) == []
