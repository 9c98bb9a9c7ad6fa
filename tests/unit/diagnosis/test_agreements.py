"""What a framework needs equal on some ranks, and which differences are reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ddt_notebook.diagnosis.run_rules import diagnose
from ddt_notebook.model import Call, Cell, Position, RankReport, Report, Snapshot
from ddt_notebook.model.agreements import Given, RankAgreements
from ddt_notebook.model.frameworks.lightning import FIT, LOG, LOGGED
from ddt_notebook.model.frameworks.megatron import GROUP_SIZES, MODEL_INPUTS, WHOLE_BATCH
from ddt_notebook.model.frameworks.transformers import TRAIN
from ddt_notebook.model.group_names import with_names_of_framework
from ddt_notebook.model.snapshot import Outcome
from ddt_notebook.model.training import OptimizerTraining, RankTraining

MADE = Position(file="cell[1]", line=2)
LINE = Position(file="cell[1]", line=3)
COUNT = Given(
    what="num_microbatches", value="2", axis="model", among=(0, 1), where=LINE, decides_calls=True
)
PARAMETER = Given(what="parameter norm.weight", value="a", axis="tensor", among=(0, 1), where=LINE)


def report(
    first: list[Given],
    second: list[Given],
    outcome: str = "ok",
    optimizers: Sequence[OptimizerTraining] = (),
) -> Report:
    given = tuple(
        RankAgreements(rank=rank, framework="megatron-core", given=tuple(mine))
        for rank, mine in enumerate((first, second))
    )
    ranks = tuple(RankReport(rank=rank, state="finished") for rank in range(2))
    cell = Cell(number=1, source="model = make()\n\nrun_step()")
    return diagnose(
        Snapshot(
            cell=cell,
            ranks=ranks,
            world_size=2,
            outcome=outcome,  # type: ignore[arg-type]
            agreements=given,
            training=tuple(RankTraining(rank=r, optimizers=(o,)) for r, o in enumerate(optimizers)),
        )
    )


def test_a_value_that_decides_about_calls_is_named_with_both_values() -> None:
    (finding,) = report([COUNT], [replace(COUNT, value="3")], "hung").findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "megatron-micro-batches-differ")
    assert finding.ranks == [0, 1]
    assert {place.line for place in finding.places.values()} == {3}
    told = {fact.values["value"]: fact.ranks for fact in finding.facts if fact.kind == "given"}
    assert told == {"2": (0,), "3": (1,)}


def test_ranks_of_other_groups_other_lines_or_other_steps_may_differ() -> None:
    alone = [replace(COUNT, among=(0, 2)), replace(COUNT, value="3", among=(1, 3))]
    assert not report([alone[0]], [alone[1]]).findings
    elsewhere = replace(COUNT, value="3", where=Position(file="cell[1]", line=9))
    assert not report([COUNT], [elsewhere]).findings
    assert not report([COUNT], [replace(COUNT, value="3", number=2)]).findings


def test_norms_of_gradients_that_differ_are_named_with_their_values_unless_something_explains() -> (
    None
):
    norms = [replace(COUNT, what="norm of gradients", value=v, axis="tensor") for v in ("2", "3")]
    ends = [replace(PARAMETER, number=2, value=value) for value in ("a", "b")]
    (finding,) = report([norms[0], ends[0]], [norms[1], ends[1]]).findings
    assert finding.cause == "megatron-clipped-by-parts"
    told = {fact.values["value"]: fact.ranks for fact in finding.facts if fact.kind == "given"}
    assert told == {"2": (0,), "3": (1,)}
    labels = [replace(COUNT, what="labels", value=v, axis="tensor") for v in ("f1", "f2")]
    (finding,) = report([labels[0], norms[0]], [labels[1], norms[1]]).findings
    assert finding.cause == "megatron-tokens-differ"
    assert "differ in labels" in finding.title
    assert not any(fact.kind == "given" for fact in finding.facts), "fingerprints say nothing"


def test_parameters_that_differ_are_named_unless_something_explains_them() -> None:
    other = replace(PARAMETER, value="b")
    (finding,) = report([PARAMETER], [other]).findings
    assert finding.cause == "megatron-parameters-differ"
    assert "norm.weight" in finding.title
    seeds = [replace(COUNT, what="seed", value=value, axis="tensor") for value in ("1", "2")]
    (finding,) = report([seeds[0], PARAMETER], [seeds[1], other]).findings
    assert finding.cause == "megatron-seeds-differ"
    # a rank that failed may have made one more update
    ends = [replace(one, number=2) for one in (PARAMETER, other)]
    rates = [
        OptimizerTraining(name="adam", steps=2, settings={"lr[0]": lr}, made=MADE) for lr in "12"
    ]
    (finding,) = report([ends[0]], [ends[1]], optimizers=rates).findings
    assert finding.cause == "megatron-parameters-differ"
    assert {place.line for place in finding.places.values()} == {2}
    told = {fact.values["value"]: fact.ranks for fact in finding.facts if fact.kind == "setting"}
    assert told == {"1": (0,), "2": (1,)}
    (finding,) = report([ends[0]], [ends[1]], optimizers=[rates[0]] * 2).findings
    assert {place.line for place in finding.places.values()} == {3}
    assert not [f for f in report([ends[0]], [ends[1]], "hung").findings if f.cause]


def test_groups_carry_the_names_of_the_framework_unless_ranks_differ() -> None:
    calls = tuple(Call(index=n, op="all_reduce", group=name) for n, name in enumerate("012"))
    ranks = tuple(RankReport(rank=rank, state="finished", calls=calls) for rank in range(2))
    named = tuple(
        RankAgreements(
            rank=rank, framework="megatron-core", groups={"1": "tensor-parallel", "2": odd}
        )
        for rank, odd in enumerate(("pipeline-parallel", "embedding"))
    )
    groups = {"0": (0, 1), "1": (0, 1), "2": (0, 1)}
    before = Snapshot(cell=Cell(number=1, source=""), ranks=ranks, groups=groups, agreements=named)
    after = with_names_of_framework(before)
    assert [call.group for call in after.ranks[1].calls] == ["0", "1 (tensor-parallel)", "2"]
    assert list(after.groups) == ["0", "1 (tensor-parallel)", "2"]
    assert with_names_of_framework(after) == after


@pytest.mark.parametrize("what", ["tokens", MODEL_INPUTS])
def test_replicas_that_read_the_same_batches_are_named_unless_one_batch_is_repeated(
    what: str,
) -> None:
    def tokens(*values: str, differs: bool = True) -> list[Given]:
        return [
            replace(COUNT, what=what, value=value, number=n, axis="data", differs=differs)
            for n, value in enumerate(values, 1)
        ]

    (finding,) = report(tokens("a", "b"), tokens("a", "b")).findings
    assert (finding.symptom, finding.cause) == ("C.7", "megatron-data-undivided")
    assert finding.confidence == "likely"
    assert not report(tokens("a", "b"), tokens("a", "c")).findings
    assert not report(tokens("a", "a"), tokens("a", "a")).findings
    assert not report(tokens("a", "b", differs=False), tokens("a", "b", differs=False)).findings
    # the third rank of the group was not seen
    three = [replace(one, among=(0, 1, 2)) for one in tokens("a", "b")]
    assert not report(three, three).findings


def test_ranks_of_a_context_group_take_parts_of_one_batch() -> None:
    whole = replace(COUNT, what=WHOLE_BATCH, value="a", axis="context", decides_calls=False)
    (finding,) = report([whole], [replace(whole, value="b")]).findings
    assert (finding.symptom, finding.cause) == ("D.2.4", "megatron-tokens-differ")
    assert not any(fact.kind == "given" for fact in finding.facts), "fingerprints say nothing"

    def labels(*values: str) -> list[Given]:
        one = replace(whole, what="labels", differs=True)
        return [replace(one, value=value, number=n) for n, value in enumerate(values, 1)]

    (finding,) = report([whole, *labels("c", "d")], [whole, *labels("c", "d")]).findings
    assert (finding.symptom, finding.cause) == ("C.7", "megatron-sequence-undivided")
    assert not report([whole, *labels("c", "d")], [whole, *labels("e", "f")]).findings


def test_equal_parts_of_a_parameter_are_named_with_their_number() -> None:
    """Of each parameter it is enough that a rank holds one value."""

    def parts(*values: str) -> list[Given]:
        part = replace(PARAMETER, differs=True)
        return [
            replace(part, what=f"parameter {name}", value=value)
            for name, value in zip(("up", "down", "out"), values, strict=True)
        ]

    (finding,) = report(parts("a", "b", "c"), parts("x", "b", "c")).findings
    assert (finding.symptom, finding.cause) == ("D.2.4", "megatron-parts-alike")
    assert (finding.ranks, finding.confidence) == ([0, 1], "likely")
    assert "parts of down and 1 other parameter" in finding.title
    assert not report(parts("a", "b", "c"), parts("x", "y", "z")).findings
    # what ranks hold whole has to be equal
    assert not report([PARAMETER], [PARAMETER]).findings


def test_sizes_of_the_groups_are_read_from_the_log_of_calls() -> None:
    """A rank that waits for a group of another mesh may have to be killed."""

    def hung(*sizes: int) -> Report:
        return report_of(GROUP_SIZES, "tensor_model_parallel_size", *sizes)

    (finding,) = hung(2, 1).findings
    assert (finding.symptom, finding.cause) == ("B.2", "megatron-sizes-differ")
    assert finding.ranks == [0, 1]
    assert "tensor_model_parallel_size" in finding.title
    assert "megatron-sizes-differ" not in {one.cause for one in hung(2, 2).findings}


def test_names_that_some_ranks_log_explain_a_hang() -> None:
    (finding,) = report_of(LOG, LOGGED, "none", "large_loss").findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "rank-skips-collective")
    assert {"none", "large_loss"} == {
        fact.values["value"] for fact in finding.facts if fact.kind == "given"
    }


@pytest.mark.parametrize(("op", "what"), [(TRAIN, "max_steps"), (FIT, "limit_train_batches")])
def test_arguments_of_a_trainer_explain_a_failure_only(op: str, what: str) -> None:
    (finding,) = report_of(op, what, 6, 4).findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "trainer-arguments-differ")
    assert {fact.values["value"]: fact.ranks for fact in finding.facts if fact.kind == "given"} == {
        "6": (0,),
        "4": (1,),
    }
    alike = report_of(op, what, 6, 6).findings
    assert "trainer-arguments-differ" not in {one.cause for one in alike}
    # what ranks have for themselves may differ in a run that ends well
    assert not report_of(op, what, 6, 4, outcome="ok").findings


def report_of(op: str, what: str, *values: int | str, outcome: Outcome = "hung") -> Report:
    """The report on ranks that gave a framework a setting."""
    ranks = tuple(
        RankReport(
            rank=rank,
            state="blocked" if outcome == "hung" else "finished",
            calls=(
                Call(
                    index=0,
                    op=op,
                    kind="setup",
                    detail=json.dumps({what: value}),
                    status="done",
                    where=LINE,
                ),
            ),
        )
        for rank, value in enumerate(values)
    )
    cell = Cell(number=1, source="model = make()\n\ninitialize()")
    return diagnose(Snapshot(cell=cell, ranks=ranks, world_size=2, outcome=outcome))
