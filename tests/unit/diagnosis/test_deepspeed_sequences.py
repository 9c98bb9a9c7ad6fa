"""Samples of ranks that attend to parts of the same sequences: which differences are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Finding
from ddt_notebook.model.frameworks.deepspeed import SEQUENCE
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition

from .builders import at, call, rank, snapshot

LOADER = LoaderPartition(
    name="loader",
    dataset="Documents",
    dataset_size=32,
    sampler="DistributedSampler",
    made_at=at(3),
    sampled_at=at(2),
)
SAME, OTHER = (3, 11, 27), (14, 20, 9)


def noted(group: str = "5", ranks: tuple[int, ...] = (0, 1)) -> Call:
    said = json.dumps({"group": group, "ranks": ranks})
    return call(SEQUENCE, 5, kind="setup", detail=said)


def found(
    *read: tuple[int, ...], calls: tuple[Call, ...] = (noted(),), trained: int = 3, **fields: Any
) -> list[Finding]:
    parts = []
    for number, first in enumerate(read):
        one = Epoch(number=1, run=1, batches=2, samples=4, first=first, trained=trained)
        loader = replace(LOADER, epochs=(one,), **fields)
        parts.append(RankPartition(rank=number, run=1, loaders=(loader,)))
    scene = snapshot(*(rank(n, *calls) for n in range(len(read))), partition=tuple(parts))
    return [one for one in diagnose(scene).findings if one.kind == "sequences-read-apart"]


def exchange(op: str, shape: tuple[int, ...], dtype: str, group: str) -> tuple[Call, ...]:
    made = call(op, 6, shapes=(shape,), dtypes=(dtype,), group=group, members=(0, 1))
    return noted(), made


def test_ranks_of_a_sequence_that_read_other_samples_are_named_at_their_sampler() -> None:
    (finding,) = found(SAME, OTHER)
    assert (finding.symptom, finding.cause) == ("D.2.2", "deepspeed-sequences-read-apart")
    assert (finding.ranks, {place.line for place in finding.places.values()}) == ([0, 1], {2})
    told = {fact.ranks: fact.values.get("first") for fact in finding.facts}
    assert told == {(0, 1): None, (0,): SAME, (1,): OTHER}


def test_of_several_groups_each_is_compared() -> None:
    calls = (noted(), noted("6", (2, 3)))
    (finding,) = found(SAME, SAME, SAME, OTHER, calls=calls)
    assert finding.ranks == [2, 3]
    assert not found(SAME, SAME, OTHER, OTHER, calls=calls), "groups read different samples"


def test_batches_that_are_shared_are_silent() -> None:
    for given in (
        exchange("all_gather", (2, 16), "int64", "5"),
        exchange("broadcast", (2, 16), "int64", "0"),
        exchange("broadcast", (2, 3, 8, 8), "float32", "5"),
        exchange("all_gather_object", (2,), "object", "0"),
    ):
        assert not found(SAME, OTHER, calls=given), str(given[1])


def test_weights_of_a_loss_and_parts_of_a_model_are_no_batches() -> None:
    for given in (
        exchange("all_gather", (), "int64", "5"),
        exchange("all_gather_into_tensor", (64,), "float32", "0"),
        exchange("all_to_all_single", (2, 4, 2, 8), "float32", "5"),
    ):
        assert found(SAME, OTHER, calls=given), str(given[1])


def test_what_made_the_engine_brings_no_batches() -> None:
    note, broadcast = exchange("broadcast", (64,), "uint8", "0")
    assert found(SAME, OTHER, calls=(broadcast, note))


def test_equal_samples_and_what_is_not_known_are_silent() -> None:
    assert not found(SAME, SAME)
    assert not found(SAME, OTHER, calls=()), "no sequence-parallel group"
    assert not found(SAME, OTHER, trained=0), "samples to evaluate on"
    assert not found(SAME, OTHER, indexed=False)
    assert not found((0, 4, 8), (1, 5, 9)), "each sample may be a part of a sequence"
