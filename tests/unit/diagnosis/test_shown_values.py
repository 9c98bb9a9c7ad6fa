"""Values of an evaluation that a rank was seen to write: no processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Report, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition, pack_indices
from ddt_notebook.model.shown import EvaluatedInput, RankShown, ShownValue

from .builders import at, only, rank, snapshot

SOURCE = "for batch in loader:\n    test(batch)\nif rank == 0:\n    show(trainer.accuracy)"
VALUE = ShownValue(where=at(4), taken=at(2), value=0.5, text="accuracy 0.500", loop=at(1))


def scene(parts: list[list[int]], *shown: RankShown, trained: int = 0) -> Snapshot:
    """Ranks that evaluated on these samples and wrote these values."""
    partition = []
    for number, part in enumerate(parts):
        epoch = Epoch(number=1, run=1, batches=2, samples=len(part), where=at(1), trained=trained)
        bits = sum(1 << index for index in part).to_bytes(4, "little")
        loader = LoaderPartition(
            name="loader",
            dataset="Set",
            epochs=(epoch,) if part else (),
            handed_out=pack_indices(bits) if part else "",
        )
        partition.append(RankPartition(rank=number, run=1, loaders=(loader,)))
    made = snapshot(*(rank(r) for r in range(len(parts))), source=SOURCE)
    return replace(made, partition=tuple(partition), shown=shown)


def showing(number: int, *values: ShownValue, **fields: Any) -> RankShown:
    return RankShown(
        rank=number, values=values, wrote=tuple(value.where for value in values), **fields
    )


HALVES = [[0, 2, 4, 6], [1, 3, 5, 7]]


@pytest.mark.parametrize("who", [0, 1])
def test_a_result_of_one_ranks_part_that_is_shown_for_all(who: int) -> None:
    finding = only(diagnose(scene(HALVES, showing(who, VALUE))))
    assert (finding.symptom, finding.cause, finding.kind) == (
        "D.2.4",
        "metric-not-reduced",
        "writes-own-share",
    )
    assert (finding.ranks, finding.confidence) == ([who], "likely")
    assert finding.places[who].line == 4
    assert finding.facts[0].place is not None
    assert finding.facts[0].place.line == 2


def silent(report: Report) -> bool:
    return report.ok and not report.hints


def test_look_alikes_are_silent() -> None:
    assert silent(diagnose(scene(HALVES, showing(0, VALUE), showing(1, VALUE))))
    elsewhere = replace(VALUE, where=at(6))  # if rank == 0: … else: …
    assert silent(diagnose(scene(HALVES, showing(0, VALUE), showing(1, elsewhere))))
    own = replace(VALUE, text="rank 0: accuracy 0.500")
    assert silent(diagnose(scene(HALVES, showing(0, own))))
    whole = [list(range(8)), list(range(8))[::-1]]
    assert silent(diagnose(scene(whole, showing(0, VALUE))))
    assert silent(diagnose(scene([list(range(8)), []], showing(0, VALUE))))  # alone
    assert silent(diagnose(scene(HALVES, showing(0, VALUE), trained=1)))
    interrupted = replace(scene(HALVES, showing(0, VALUE)), outcome="interrupted")
    assert not diagnose(interrupted).findings
    assert silent(diagnose(scene(HALVES, showing(0), showing(1))))


def test_a_record_that_ended_early_proves_no_silence() -> None:
    made = scene(HALVES, showing(0), showing(1, VALUE))
    assert only(diagnose(made)).ranks == [1]
    cut = replace(made, shown=(showing(0, complete=False), showing(1, VALUE)))
    assert silent(diagnose(cut))
    assert silent(diagnose(Snapshot.from_json(cut.to_json())))


@pytest.mark.parametrize(
    ("passes", "named"),
    [
        ([[(1, 2), (1, 2)], [(3, 4), (3, 4)]], True),
        ([[(1, 2), (5, 6)], [(3, 4), (7, 8)]], False),  # samples that random numbers change
        ([[(1, 2)], [(3, 4)]], False),  # perhaps so
        ([[(1, 2), (1, 2)], [(2, 1), (2, 1)]], False),  # the whole data on each rank
        ([[(), ()], [(), ()]], False),  # unknown
    ],
)
def test_streams_of_different_samples(passes: list[list[tuple[int, ...]]], named: bool) -> None:
    made = scene([[0], [0]], showing(0, VALUE), showing(1))
    partition = []
    for one, contents in zip(made.partition, passes, strict=True):
        (loader,) = one.loaders
        (epoch,) = loader.epochs
        epochs = tuple(
            replace(epoch, number=number, content=content)
            for number, content in enumerate(contents, 1)
        )
        loaders = (replace(loader, indexed=False, handed_out="", epochs=epochs),)
        partition.append(replace(one, loaders=loaders))
    report = diagnose(replace(made, partition=tuple(partition)))
    assert [one.cause for one in report.findings] == ["metric-not-reduced"] * named


def fed(content: int, offset: int) -> EvaluatedInput:
    return EvaluatedInput(content=content, storage_bytes=800, offset=offset)


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (((fed(1, 0),), (fed(2, 100),)), True),
        (((fed(1, 0),), (fed(1, 0),)), False),  # all of the data on each rank
        (((fed(1, 0),), ()), False),  # rank 0 evaluates alone
        (((EvaluatedInput(content=1),), (EvaluatedInput(content=2),)), False),  # random inputs
    ],
)
def test_ranks_that_evaluated_different_inputs_are_reported(inputs: Any, found: bool) -> None:
    value = replace(VALUE, loop=None)
    mine, other = inputs
    made = scene([[], []], showing(0, value, inputs=mine), showing(1, inputs=other))
    causes = [finding.cause for finding in diagnose(made).findings]
    assert causes == (["metric-not-reduced"] if found else [])
