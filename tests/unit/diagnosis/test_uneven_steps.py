"""Steps of an optimizer that some ranks leave out: what must be seen for it to be said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Cell, RankReport, Snapshot
from ddt_notebook.model.training import (
    ModelTraining,
    NotFinite,
    OptimizerTraining,
    RankTraining,
    TrainingState,
)

MEMBERS = (0, 1, 2)


def training(rank: int, steps: int, value: int, *, forwards: int = 6, **model: Any) -> RankTraining:
    states = tuple(TrainingState(step=s, values=(s,)) for s in range(steps))
    optimizer = OptimizerTraining(
        name="optimizer",
        kind="SGD",
        steps=steps,
        model="model",
        wrapper="DDP",
        members=MEMBERS,
        watched=("weight",),
        shapes={"1×4": 1},
        synchronised=steps,
        states=(*states, TrainingState(step=steps, values=(value,))),
    )
    return RankTraining(
        rank=rank,
        backwards=forwards,
        optimizers=(optimizer,) if steps else (),
        models=(ModelTraining(name="model", members=MEMBERS, forwards=forwards, **model),),
    )


def causes(*trainings: RankTraining, **fields: Any) -> list[str | None]:
    snapshot = Snapshot(
        cell=Cell(number=3, source="train()"),
        ranks=tuple(RankReport(rank=rank) for rank in MEMBERS),
        world_size=3,
        training=trainings,
        **fields,
    )
    return [finding.cause for finding in diagnose(snapshot).findings]


APART = (training(0, 6, 70), training(1, 5, 71), training(2, 6, 70))


def test_unequal_steps_and_unequal_parameters_are_a_finding() -> None:
    snapshot = Snapshot(
        cell=Cell(number=3, source="train()"),
        ranks=tuple(RankReport(rank=rank) for rank in MEMBERS),
        world_size=3,
        training=APART,
    )
    (finding,) = diagnose(snapshot).findings
    assert (finding.cause, finding.ranks) == ("steps-skipped-on-some-ranks", [1])
    steps = {fact.ranks: fact.values.get("steps") for fact in finding.facts}
    assert (steps[1,], steps[0, 2]) == (5, 6)


def test_what_else_may_be_meant() -> None:
    equal_again = (training(0, 6, 70), training(1, 5, 70), training(2, 6, 70))
    other_passes = (training(0, 6, 70), training(1, 5, 71, forwards=5), training(2, 6, 70))
    hooked = tuple(training(r, 6 - r % 2, 70 + r, communication_hook=True) for r in MEMBERS)
    a_rank_unknown = APART[:2]
    not_a_number = (replace(APART[0], not_finite=NotFinite(backward=2, value="nan")), *APART[1:])
    for seen in (equal_again, other_passes, hooked, a_rank_unknown, not_a_number):
        assert "steps-skipped-on-some-ranks" not in causes(*seen)
    assert "steps-skipped-on-some-ranks" not in causes(*APART, outcome="failed")
