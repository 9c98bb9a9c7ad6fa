"""Schedules, gradient scalers and restored states: which observations a finding needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Cell, RankReport, Snapshot
from ddt_notebook.model.checkpoints import CheckpointUse, RankCheckpoints
from ddt_notebook.model.training import (
    NotFinite,
    OptimizerTraining,
    RankTraining,
    Schedule,
    TrainingState,
)

RANKS = (0, 1)


def training(rank: int, *, steps: int = 10, value: int = 70, **optimizer: Any) -> RankTraining:
    states = tuple(
        TrainingState(step=s, values=(s,), gradients=(s,), rates=(0.1,)) for s in range(steps)
    )
    one = OptimizerTraining(
        name="optimizer",
        kind="Adam",
        steps=steps,
        watched=("weight",),
        shapes={"1×4": 1},
        states=(*states, TrainingState(step=steps, values=(value,))),
        **optimizer,
    )
    return RankTraining(rank=rank, backwards=10, optimizers=(one,))


def causes(*trainings: RankTraining, **fields: Any) -> list[tuple[str | None, list[int]]]:
    snapshot = Snapshot(
        cell=Cell(number=1, source="train()"),
        ranks=tuple(RankReport(rank=rank) for rank in RANKS),
        world_size=2,
        training=trainings,
        **fields,
    )
    report = diagnose(snapshot)
    return [(finding.cause, finding.ranks) for finding in (*report.findings, *report.hints)]


def scheduled(steps: int, end: int | None) -> tuple[Schedule, ...]:
    return (Schedule(kind="CosineAnnealingLR", steps=steps, end=end),)


def test_a_schedule_that_is_stepped_for_every_process_ends_early() -> None:
    over = tuple(training(rank, schedules=scheduled(20, 10)) for rank in RANKS)
    assert causes(*over) == [("scheduler-stepped-per-process", [0, 1])]
    for steps, end in ((20, 20), (20, None), (10, 10), (10, 5)):
        fits = tuple(training(rank, schedules=scheduled(steps, end)) for rank in RANKS)
        assert causes(*fits) == []


def test_a_scaler_that_skips_on_one_rank() -> None:
    ddp: dict[str, Any] = {"wrapper": "DDP", "members": RANKS}
    apart = (training(0, **ddp), training(1, steps=9, value=71, scaler_skipped=1, **ddp))
    assert causes(*apart) == [("scaler-skips-on-some-ranks", [1])]
    together = tuple(training(rank, steps=9, scaler_skipped=1, **ddp) for rank in RANKS)
    assert causes(*together) == []
    made_equal = (training(0, **ddp), training(1, steps=9, scaler_skipped=1, **ddp))
    assert causes(*made_equal) == []
    overflow = NotFinite(backward=1, value="inf", inputs=True)
    infected = NotFinite(backward=2, value="nan", inputs=True, lasting=True)
    spread = replace(apart[0], not_finite=infected), replace(apart[1], not_finite=overflow)
    assert causes(*spread) == [("scaler-skips-on-some-ranks", [1])]
    bad_batch = spread[0], replace(apart[1], not_finite=replace(overflow, inputs=False))
    assert causes(*bad_batch)[0] == ("nan-from-one-rank", [1])


def loaded(rank: int, *, saved_s: float = 0.0, **restored: int) -> RankCheckpoints:
    path = "/data/last.pt"
    load = CheckpointUse(
        action="load", path=path, began_s=1.0, ended_s=2.0, holds=("optimizer", "scheduler")
    )
    save = CheckpointUse(action="save", path=path, began_s=saved_s, ended_s=saved_s + 0.1)
    uses = (load, save) if saved_s and rank == 0 else (load,)
    return RankCheckpoints(rank=rank, uses=uses, restored={"model": 1, **restored})


def test_states_that_are_not_loaded_from_the_file_are_reported() -> None:
    seen = tuple(training(rank) for rank in RANKS)
    all_states = {"optimizer": 1, "scheduler": 1}
    one = (loaded(0, **all_states), loaded(1, scheduler=1))
    assert causes(*seen, checkpoints=one) == [("resumed-without-state", [1])]
    half = tuple(loaded(rank, scheduler=1) for rank in RANKS)
    assert causes(*seen, checkpoints=half) == [("resumed-without-state", [0, 1])]
    goes_on = tuple(loaded(rank, saved_s=5.0, scheduler=1) for rank in RANKS)
    assert causes(*seen, checkpoints=goes_on) == [("resumed-without-state", [0, 1])]


def test_fine_tuning_of_loaded_weights_is_not_a_resumed_run() -> None:
    seen = tuple(training(rank) for rank in RANKS)
    weights = tuple(loaded(rank) for rank in RANKS)
    assert causes(*seen, checkpoints=weights) == []
    saved_before = tuple(loaded(rank, saved_s=0.5) for rank in RANKS)
    assert causes(*seen, checkpoints=saved_before) == []
    everything = tuple(loaded(rank, optimizer=1, scheduler=1) for rank in RANKS)
    assert causes(*seen, checkpoints=everything) == []
