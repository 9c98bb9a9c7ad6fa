"""Batches that the stages of one copy of a model read: which differences are reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Finding, RankError
from ddt_notebook.model.agreements import RankAgreements
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition

from .builders import at, call, raised, rank, snapshot

LOADER = LoaderPartition(
    name="loader", dataset="Rows", dataset_size=8, sampler="RandomSampler", made_at=at(3)
)
PIPELINE = ({"pipeline": (0, 2)}, {"pipeline": (1, 2)})
SAME, OTHER = (3, 1, 2), (4, 0)


def found(
    *read: tuple[int, ...],
    axes: tuple[dict[str, tuple[int, int]], ...] = PIPELINE,
    run: int = 1,
    calls: tuple[Any, ...] = (),
    **fields: Any,
) -> list[Finding]:
    loaders = [
        replace(
            LOADER, epochs=(Epoch(number=1, run=1, batches=2, samples=4, first=first),), **fields
        )
        for first in read
    ]
    scene = snapshot(
        *(rank(number, *calls) for number in range(len(read))),
        partition=tuple(
            RankPartition(rank=number, run=run, loaders=(one,))
            for number, one in enumerate(loaders)
        ),
        agreements=tuple(
            RankAgreements(rank=number, framework="megatron-core", axes=one)
            for number, one in enumerate(axes)
        ),
    )
    return [one for one in diagnose(scene).findings if one.kind == "stage-loaders-differ"]


def test_stages_that_read_other_samples_are_named_with_the_first_of_them() -> None:
    (finding,) = found(SAME, OTHER)
    assert (finding.cause, finding.ranks) == ("megatron-stages-read-apart", [0, 1])
    assert {place.line for place in finding.places.values()} == {3}
    told = {fact.ranks: fact.values["first"] for fact in finding.facts}
    assert told == {(0,): SAME, (1,): OTHER}


def test_they_come_before_tensors_that_do_not_fit_for_that_reason() -> None:
    """One stage's positions have the length of its own batch."""

    def order(*read: tuple[int, ...]) -> list[str]:
        message = "The size of tensor a (32) must match the size of tensor b (40)"
        error = RankError(type="RuntimeError", message=message, frames=(at(4),))
        loaders = [
            replace(LOADER, epochs=(Epoch(number=1, run=1, batches=2, samples=4, first=first),))
            for first in read
        ]
        scene = snapshot(
            rank(0),
            raised(1, error=error),
            outcome="failed",
            partition=tuple(
                RankPartition(rank=number, run=1, loaders=(one,))
                for number, one in enumerate(loaders)
            ),
            agreements=tuple(
                RankAgreements(rank=number, framework="megatron-core", axes=one)
                for number, one in enumerate(PIPELINE)
            ),
        )
        return [one.kind for one in diagnose(scene).findings]

    assert order(SAME, OTHER) == ["stage-loaders-differ", "raised"]
    assert order(SAME, SAME) == ["raised"]


def test_equal_samples_replicas_and_what_one_stage_sends_are_silent() -> None:
    assert not found(SAME, SAME)
    assert not found(SAME, SAME[:2]), "one stage has read less so far"
    assert not found(SAME, ()), "nothing was read"
    assert not found(SAME, OTHER, run=2), "an earlier run has left its loaders"
    assert not found(SAME, OTHER, axes=({"data": (0, 2)}, {"data": (1, 2)}))
    assert not found(SAME, OTHER, calls=(call("broadcast", 5, members=(0, 1)),))
    assert not found(SAME, OTHER, indexed=False), "samples without an index"


def test_ranks_of_a_tensor_parallel_group_are_left_to_what_they_compute_with() -> None:
    assert not found(SAME, OTHER, axes=({"tensor": (0, 2)}, {"tensor": (1, 2)}))
    grid = tuple(
        {"pipeline": (stage, 2), "tensor": (part, 2)} for stage in (0, 1) for part in (0, 1)
    )
    (finding,) = found(SAME, OTHER, SAME, SAME, axes=grid)
    assert finding.ranks == [1, 3]
