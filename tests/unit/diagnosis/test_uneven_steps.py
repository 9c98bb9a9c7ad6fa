"""Steps of an optimizer that some ranks leave out: which observations a finding needs."""

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

from .builders import call, rank, snapshot

MEMBERS = (0, 1, 2)


def training(
    rank: int,
    steps: int,
    value: int,
    *,
    forwards: int = 6,
    passes: dict[int, int] | None = None,
    **model: Any,
) -> RankTraining:
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
        passes=passes or {},
        states=(*states, TrainingState(step=steps, values=(value,))),
    )
    return RankTraining(
        rank=rank,
        backwards=forwards + model.get("unsynchronised", 0),
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


def test_unequal_steps_that_may_be_intended_are_silent() -> None:
    equal_again = (training(0, 6, 70), training(1, 5, 70), training(2, 6, 70))
    other_passes = (training(0, 6, 70), training(1, 5, 71, forwards=5), training(2, 6, 70))
    hooked = tuple(training(r, 6 - r % 2, 70 + r, communication_hook=True) for r in MEMBERS)
    a_rank_unknown = APART[:2]
    not_a_number = (replace(APART[0], not_finite=NotFinite(backward=2, value="nan")), *APART[1:])
    for seen in (equal_again, other_passes, hooked, a_rank_unknown, not_a_number):
        assert "steps-skipped-on-some-ranks" not in causes(*seen)
    assert "steps-skipped-on-some-ranks" not in causes(*APART, outcome="failed")


def test_a_rank_that_never_steps_is_judged_by_its_model() -> None:
    seen = (
        training(0, 6, 70, values=(70,)),
        training(1, 0, 0, values=(69,)),
        training(2, 6, 70, values=(70,)),
    )
    assert causes(*seen) == ["steps-skipped-on-some-ranks"]
    equal = (training(0, 6, 70, values=(70,)), training(1, 0, 0, values=(70,)), seen[2])
    assert causes(*equal) == []


def test_a_rank_that_never_steps_is_told_though_the_gradients_are_zero() -> None:
    """Nothing parts the ranks as long as no step changes a value."""

    def still(seen: RankTraining) -> RankTraining:
        (one,) = seen.optimizers
        states = tuple(replace(state, values=(7,)) for state in one.states)
        return replace(seen, optimizers=(replace(one, states=states),))

    first, third = (still(training(number, 6, 7, values=(7,))) for number in (0, 2))
    seen = (first, training(1, 0, 0, values=(7,)), third)
    assert causes(*seen) == ["steps-skipped-on-some-ranks"]


def accumulated(rank: int, micro: int, *, extra: int = 0, **model: Any) -> RankTraining:
    return training(rank, 6, 70, passes={micro: 6}, unsynchronised=6 * (micro - 1) + extra, **model)


def test_unequal_accumulation_is_a_finding() -> None:
    seen = (accumulated(0, 4), accumulated(1, 4), accumulated(2, 6))
    assert causes(*seen) == ["uneven-backward-passes"]


def test_unequal_passes_that_may_be_intended_are_silent() -> None:
    equal = tuple(accumulated(rank, 4) for rank in MEMBERS)
    # rank 1 also trains a model of its own, so that the passes of the DDP model are equal
    own = (equal[0], replace(equal[1], backwards=48), equal[2])
    hooked = tuple(accumulated(r, 4 + r, communication_hook=True) for r in MEMBERS)
    by_length = tuple(
        training(r, 6, 70, passes={2 + r: 3, 3: 3}, unsynchronised=6 + 3 * r) for r in MEMBERS
    )
    for seen in (equal, own, hooked, by_length):
        assert causes(*seen) == []


def by_hand(rank: int, steps: int, value: int, *, passes: int = 6) -> RankTraining:
    """SGD on a model without DDP."""
    seen = training(rank, steps, value, forwards=passes)
    optimizer = replace(seen.optimizers[0], wrapper="", members=(), synchronised=0)
    states = tuple(
        replace(state, gradients=(state.step,) if state.step < steps else ())
        for state in optimizer.states
    )
    return replace(seen, optimizers=(replace(optimizer, states=states),), models=())


def reported(*trainings: RankTraining, reduced: int = 6) -> list[str | None]:
    calls = tuple(
        call("all_reduce", 4, shapes=((1, 4),), sequence=n, reduce_op="SUM") for n in range(reduced)
    )
    ranks = [rank(number, *calls) for number in MEMBERS]
    return [f.cause for f in diagnose(snapshot(*ranks, training=trainings)).findings]


BY_HAND = (by_hand(0, 6, 70), by_hand(1, 5, 71), by_hand(2, 6, 70))


def test_steps_that_are_skipped_after_gradients_were_reduced_by_hand() -> None:
    assert reported(*BY_HAND) == ["steps-skipped-on-some-ranks"]
    overflowed = replace(BY_HAND[1], not_finite=NotFinite(backward=4, value="inf"))
    assert reported(BY_HAND[0], overflowed, BY_HAND[2]) == ["steps-skipped-on-some-ranks"]


def test_unequal_steps_without_ddp_that_may_be_intended_are_silent() -> None:
    name = "steps-skipped-on-some-ranks"
    assert name not in reported(*BY_HAND, reduced=0)  # each rank trains a model of its own
    assert name not in reported(*BY_HAND, reduced=3)
    assert name not in reported(BY_HAND[0], by_hand(1, 5, 70), BY_HAND[2])  # they end equal
    assert name not in reported(BY_HAND[0], by_hand(1, 5, 71, passes=5), BY_HAND[2])
    lost = replace(BY_HAND[1], not_finite=NotFinite(backward=4, value="inf", lasting=True))
    assert name not in reported(BY_HAND[0], lost, BY_HAND[2])
