"""Parameters that ranks train beside an engine of DeepSpeed."""

from __future__ import annotations

import json

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call
from ddt_notebook.model.frameworks.deepspeed import ENGINE_READY, MEMBERS
from ddt_notebook.model.training import OptimizerTraining, RankTraining, TrainingState

from .builders import all_reduce, at, call, rank, snapshot

BUCKET = all_reduce(shapes=((964,),), called_from="deepspeed/comm/torch.py")
OWN = all_reduce(shapes=((3,),))


def training(number: int, *, kept: bool = True, apart: bool = True) -> RankTraining:
    """An optimizer of one parameter, whose gradient no other rank changes if it is kept."""
    own = number if apart else 0
    states = tuple(
        TrainingState(
            step=step,
            values=(10 * step + (own if step else 0),),
            gradients=(100 * step + own,),
            with_gradient=1,
            local=(0.5 + number,) if step else (),
            used=(0.5 + number if kept else 1.0,) if step else (),
        )
        for step in range(4)
    )
    optimizer = OptimizerTraining(
        name="weights",
        kind="SGD",
        steps=3,
        where=at(9),
        parameters=1,
        trainable=1,
        shapes={"3": 1},
        watched=("parameter 0",),
        states=states,
    )
    return RankTraining(rank=number, backwards=3, optimizers=(optimizer,))


def kinds(*calls: Call, engine: bool = True, kept: bool = True, apart: bool = True) -> list[str]:
    ready = call(ENGINE_READY, kind="setup", detail=json.dumps({MEMBERS: [0, 1]}))
    made = ((ready,) if engine else ()) + calls
    trainings = tuple(training(number, kept=kept, apart=apart) for number in (0, 1))
    return [
        one.kind
        for one in diagnose(snapshot(rank(0, *made), rank(1, *made), training=trainings)).findings
    ]


def test_an_optimizer_beside_an_engine_is_named() -> None:
    assert kinds(BUCKET) == ["outside-engine"]


@pytest.mark.parametrize(
    ("calls", "options"),
    [
        ((BUCKET,), {"apart": False}),
        ((BUCKET,), {"kept": False}),  # something changed the gradients before the step
        ((BUCKET, OWN), {}),
        ((BUCKET, all_reduce(shapes=((500,),))), {}),  # the program's own bucket
        ((BUCKET,), {"engine": False}),
    ],
)
def test_what_may_be_averaged_is_not_accused(
    calls: tuple[Call, ...], options: dict[str, bool]
) -> None:
    assert "outside-engine" not in kinds(*calls, **options)
