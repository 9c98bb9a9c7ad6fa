"""Rules on how ranks trained, from snapshots made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.replicas import replicas
from ddt_notebook.model import RankError, Report, Snapshot
from ddt_notebook.model.checkpoints import CheckpointUse, RankCheckpoints
from ddt_notebook.model.training import (
    GivenNotFinite,
    ModelTraining,
    NotFinite,
    OptimizerTraining,
    RankTraining,
    Schedule,
    TrainingState,
    Unregistered,
    UnwrittenMemory,
)

from .builders import all_reduce, at, facts, only, raised, rank, snapshot

WATCHED = ("model.0.weight", "model.0.bias")


def states(
    *values: tuple[int, int], gradients: int = 5, **fields: Any
) -> tuple[TrainingState, ...]:
    """One state before each step with these fingerprints, and one at the end."""
    last = len(values) - 1
    return tuple(
        TrainingState(
            step=step,
            values=value,
            gradients=() if step == last else (gradients, gradients),
            with_gradient=0 if step == last else 2,
            rates=(0.1,),
            **fields,
        )
        for step, value in enumerate(values)
    )


def optimizer(*values: tuple[int, int], wrapper: str = "DDP", **fields: Any) -> OptimizerTraining:
    """SGD on two parameters; by default every step is synchronised."""
    gradients = fields.pop("gradients", 5)
    steps = len(values) - 1
    return OptimizerTraining(
        **{
            "name": "optimizer",
            "kind": "SGD",
            "steps": steps,
            "where": at(9),
            "made": at(2),
            "settings": {"lr[0]": "0.1"},
            "parameters": 2,
            "trainable": 2,
            "model": "model",
            "wrapper": wrapper,
            "members": (0, 1) if wrapper == "DDP" else (),
            "shapes": {"4×4": 1, "4": 1},
            "watched": WATCHED,
            "states": states(*values, gradients=gradients),
            "synchronised": steps,
            **fields,
        }
    )


def model(**fields: Any) -> ModelTraining:
    return ModelTraining(
        **{
            "name": "model",
            "where": at(6),
            "members": (0, 1),
            "forwards": 3,
            "parameters": ("0.weight", "0.bias"),
            **fields,
        }
    )


def trained(*ranks: RankTraining, **fields: Any) -> Snapshot:
    reports = [rank(one.rank) for one in ranks]
    return snapshot(*fields.pop("reports", reports), training=ranks, **fields)


def found(*optimizers: OptimizerTraining, **fields: Any) -> Report:
    models = (model(**fields.pop("model", {})),)
    ranks = [
        RankTraining(rank=number, backwards=3, optimizers=(one,), models=models)
        for number, one in enumerate(optimizers)
    ]
    return diagnose(trained(*ranks, **fields))


def test_equal_replicas_are_silent() -> None:
    one = optimizer((1, 2), (3, 4), (5, 6))
    report = found(one, one)
    assert report.ok
    assert not report.hints


def test_a_snapshot_with_training_survives_json() -> None:
    one = RankTraining(
        rank=0,
        backwards=2,
        optimizers=(optimizer((1, 2), (3, 4)),),
        models=(model(unregistered=(Unregistered(name="scale", shape="3", trained=True),)),),
        not_finite=NotFinite(backward=2, value="nan", where=at(3), inputs=False, lasting=True),
    )
    seen = trained(one)
    assert Snapshot.from_json(seen.to_json()) == seen


def test_the_first_step_and_parameter_are_named() -> None:
    report = found(
        optimizer((1, 2), (3, 4), (5, 6), (7, 8), gradients=5),
        optimizer((1, 2), (3, 4), (5, 9), (7, 10), gradients=5),
    )
    finding = only(report)
    assert finding.cause == "model-reset-on-one-rank"
    since = facts(finding)["apart-since"].values
    assert (since["equal_at"], since["step"], since["name"]) == (1, 2, "model.0.bias")


def test_of_two_ranks_the_one_that_wrote_into_parameters_is_named() -> None:
    one = optimizer((1, 2), (3, 4), (5, 6))
    other = optimizer((1, 2), (3, 9), (5, 10), changed_before=(1,))
    finding = only(found(one, other))
    assert (finding.cause, finding.ranks) == ("model-reset-on-one-rank", [1])
    assert finding.confidence == "certain"


@pytest.mark.parametrize(
    ("write", "ranks", "confidence"),
    [(6, [1], "likely"), (9, [1], "certain"), (3, [0, 1], "likely"), (12, [0, 1], "likely")],
)
def test_a_write_between_the_steps_that_are_looked_at_is_found(
    write: int, ranks: list[int], confidence: str
) -> None:
    """The ranks were seen equal before step 4 and apart before step 9."""
    one = optimizer((1, 2), (3, 4), (5, 6))
    other = optimizer((1, 2), (3, 4), (9, 10), changed_before=(write,), changed_at=(at(7),))
    sparse = [
        replace(
            each,
            steps=12,
            synchronised=12,
            states=tuple(
                replace(state, step=step)
                for state, step in zip(each.states, (0, 4, 9), strict=False)
            ),
        )
        for each in (one, other)
    ]
    finding = only(found(*sparse))
    assert (finding.cause, finding.ranks) == ("model-reset-on-one-rank", ranks)
    assert finding.confidence == confidence
    assert (finding.places[1].line == 7) == (ranks == [1])


def test_a_file_that_was_read_too_early_explains_what_a_rank_wrote_into_parameters() -> None:
    def uses(action: str, number: int, began_s: float) -> RankCheckpoints:
        one = CheckpointUse(
            action=action, path="/last.pt", where=at(8), began_s=began_s, ended_s=began_s + 0.1
        )
        return RankCheckpoints(rank=number, uses=(one,))

    one = optimizer((1, 2), (3, 4), (5, 6))
    other = optimizer((1, 2), (3, 9), (5, 10), changed_before=(1,))
    read = (uses("save", 0, 2.0), uses("load", 1, 1.0))
    assert only(found(one, other, checkpoints=read)).cause == "checkpoint-read-too-early"


def test_a_change_on_all_ranks_is_silent() -> None:
    one = optimizer((1, 2), (3, 4), changed_before=(0, 1))
    assert found(one, one).ok


def test_the_one_rank_of_three_with_another_rate_is_named() -> None:
    one = replace(optimizer((1, 2), (3, 4)), members=(0, 1, 2))
    odd = replace(optimizer((1, 2), (9, 9)), members=(0, 1, 2), settings={"lr[0]": "0.3"})
    finding = only(found(one, odd, one))
    assert (finding.cause, finding.ranks) == ("ranks-diverged-learning-rate", [1])
    assert finding.kind == "settings-differ"
    rates = {fact.ranks: fact.values["value"] for fact in finding.facts if fact.kind == "setting"}
    assert rates == {(0, 2): "0.1", (1,): "0.3"}


def test_rates_that_part_ranks_until_all_load_one_checkpoint_are_named() -> None:
    one = optimizer((1, 2), (3, 4), (5, 6), (9, 9))
    odd = optimizer((1, 2), (7, 8), (7, 9), (9, 9), settings={"lr[0]": "0.3"})
    finding = only(found(one, odd))
    assert (finding.kind, finding.values["step"]) == ("settings-differ", 1)
    assert found(one, replace(odd, settings=one.settings)).ok  # such as local SGD


def test_with_a_communication_hook_no_rank_is_accused() -> None:
    report = found(
        optimizer((1, 2), (3, 4), synchronised=0, gradients=5),
        optimizer((1, 2), (8, 9), synchronised=0, gradients=7),
        model={"communication_hook": True},
    )
    assert report.ok


@pytest.mark.parametrize(
    ("unsynchronised", "cause"), [(3, "no-sync-left-on"), (0, "module-called-past-ddp")]
)
def test_steps_that_were_not_synchronised_are_reported(unsynchronised: int, cause: str) -> None:
    report = found(
        optimizer((1, 2), (3, 4), synchronised=0, gradients=5),
        optimizer((1, 2), (8, 9), synchronised=0, gradients=7),
        model={"unsynchronised": unsynchronised, "unsynchronised_where": at(6)},
    )
    finding = only(report)
    assert (finding.cause, finding.ranks) == (cause, [0, 1])


def equal_but_never_averaged(operations: int | None, **fields: Any) -> Report:
    """Both ranks trained on equal data; DDP saw no forward pass."""
    one = optimizer(
        (1, 2), (3, 4), (5, 6), (7, 8), synchronised=0, group_operations=operations, gradients=5
    )
    ranks = [
        RankTraining(rank=r, backwards=3, where=at(8), optimizers=(one,), **fields)
        for r in range(2)
    ]
    return diagnose(trained(*ranks))


def test_equal_replicas_whose_gradients_ddp_never_averaged() -> None:
    finding = only(equal_but_never_averaged(0))
    assert (finding.cause, finding.ranks) == ("module-called-past-ddp", [0, 1])
    assert finding.places[0].line == 8


def test_ddp_may_average_although_no_pass_through_it_was_seen() -> None:
    # a compiled function, or a subclass that calls the reducer itself
    assert equal_but_never_averaged(2).ok
    assert equal_but_never_averaged(None).ok
    assert equal_but_never_averaged(0, models=(model(),)).ok


def test_the_line_that_entered_no_sync_is_named() -> None:
    report = found(
        optimizer((1, 2), (3, 4), synchronised=0, gradients=5),
        optimizer((1, 2), (8, 9), synchronised=0, gradients=7),
        model={"unsynchronised": 3, "unsynchronised_where": at(6), "no_sync_where": at(4)},
    )
    entered = facts(only(report))["no-sync-entered"]
    assert entered.place is not None
    assert entered.place.line == 4


@pytest.mark.parametrize(("made", "line"), [((0.1, 0.1), 3), ((0.1, 0.3), 2)], ids=["set", "made"])
def test_the_line_that_sets_the_rate_is_named_if_it_was_equal_at_first(
    made: tuple[float, float], line: int
) -> None:
    both = []
    for rate, first, last in zip((0.1, 0.3), made, ((5, 6), (8, 9)), strict=True):
        one = optimizer((1, 2), last, made_rates=(first,), settings={"lr[0]": f"{rate}"})
        both.append(replace(one, states=tuple(replace(s, rates=(rate,)) for s in one.states)))
    source = "import torch\nopt = SGD()\nfor g in opt.param_groups: g['lr'] = 0.1 + 0.2 * rank"
    finding = only(found(*both, source=source))
    assert finding.cause == "ranks-diverged-learning-rate"
    assert finding.places[0].line == line


@pytest.mark.parametrize("moves_to", ["cuda:0", "cuda:1"])
def test_device_ids_that_move_the_inputs_away_from_the_parameters_are_named(moves_to: str) -> None:
    error = RankError(
        type="RuntimeError",
        message="Expected all tensors to be on the same device, but got mat1 is on cuda:0",
        where=at(9),
        frames=(at(9),),
    )
    fields = {"devices": ("cuda:1",), "moves_to": (moves_to,), "made": at(4)}
    training = RankTraining(rank=1, models=(model(**fields),))
    made = snapshot(rank(0), raised(1, error=error), training=(training,), outcome="failed")
    finding = only(diagnose(made))
    assert finding.cause == "tensors-on-two-devices"
    moved = facts(finding).get("inputs-moved")
    assert (moved is not None) == (moves_to == "cuda:0")
    if moved is not None:
        assert moved.place is not None
        assert moved.place.line == 4


def scheduled(*, first: float = 0.1) -> list[OptimizerTraining]:
    schedule = Schedule(kind="ReduceLROnPlateau", steps=2, where=at(7))
    both = []
    for rate, start, last in ((0.1, 0.1, 5), (0.01, first, 8)):
        one = optimizer((1, 2), (3, 4), (5, last), schedules=(schedule,))
        states = zip(one.states, (start, rate, rate), strict=True)
        both.append(replace(one, states=tuple(replace(s, rates=(r,)) for s, r in states)))
    return both


def test_schedules_that_make_the_rates_differ_are_named() -> None:
    finding = only(found(*scheduled()))
    assert (finding.cause, finding.places[0].line) == ("ranks-diverged-learning-rate", 7)
    apart_at_first = only(found(*scheduled(first=0.2)))
    assert apart_at_first.places[0].line == 2


def test_parameters_that_the_cell_averages_are_taken_for_local_sgd() -> None:
    calls = [all_reduce(shapes=((4, 4),)), all_reduce(shapes=((4,),))]
    report = found(
        optimizer((1, 2), (3, 4), synchronised=0, gradients=5),
        optimizer((1, 2), (8, 9), synchronised=0, gradients=7),
        reports=[rank(0, *calls), rank(1, *calls)],
    )
    assert report.ok


def test_copies_that_diverge_without_communication() -> None:
    finding = only(
        found(
            optimizer((1, 2), (3, 4), wrapper="", gradients=5),
            optimizer((1, 2), (8, 9), wrapper="", gradients=7),
        )
    )
    assert (finding.cause, finding.confidence) == ("model-not-wrapped", "likely")


@pytest.mark.parametrize(
    "calls",
    [
        [all_reduce(shapes=((64, 32),))],
        [all_reduce(source="flight recorder")],
    ],
    ids=["activations", "of-a-library"],
)
def test_collectives_of_unknown_purpose_may_keep_copies_equal(calls: list[Any]) -> None:
    report = found(
        optimizer((1, 2), (3, 4), wrapper="", gradients=5),
        optimizer((1, 2), (8, 9), wrapper="", gradients=7),
        reports=[rank(0, *calls), rank(1, *calls)],
    )
    assert report.ok


def test_a_parameter_whose_gradient_is_not_reduced() -> None:
    calls = [all_reduce(shapes=((4, 4),))]
    reports = [rank(0, *calls), rank(1, *calls)]

    def report(*start: int) -> Report:
        return found(
            *(
                replace(
                    optimizer((1, one), (3, end), wrapper=""),
                    states=tuple(
                        replace(state, gradients=state.gradients and (5, end))
                        for state in states((1, one), (3, end))
                    ),
                )
                for one, end in zip(start, (4, 8), strict=True)
            ),
            reports=reports,
        )

    assert only(report(2, 2)).cause == "gradients-not-reduced"
    own = report(2, 6)
    assert not own.findings, "each rank has a part of its own from the start"
    assert [hint.cause for hint in own.hints] == ["gradients-not-reduced"]


BOTH_REDUCED = [all_reduce(shapes=((4, 4),)), all_reduce(shapes=((4,),))]


def averaged(*calls: Any, gradients: tuple[int, int] = (5, 5), **fields: Any) -> Report:
    """Two copies without DDP that are apart before and after one step."""
    return found(
        optimizer((1, 2), (3, 4), wrapper="", gradients=gradients[0], **fields),
        optimizer((7, 2), (9, 4), wrapper="", gradients=gradients[1], **fields),
        reports=[rank(0, *calls), rank(1, *calls)],
    )


def test_averaged_gradients_of_copies_that_were_never_equal() -> None:
    finding = only(averaged(*BOTH_REDUCED))
    assert (finding.symptom, finding.cause) == ("D.2.5", "replicas-start-apart")
    assert (finding.ranks, finding.confidence) == ([0, 1], "likely")
    assert facts(finding)["apart-throughout"].values["name"] == "model.0.weight"


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ((6, 4), True),  # a parameter of the other model
        ((6, 5), False),  # a bucket
    ],
)
def test_a_second_model_hides_no_copies_that_were_never_equal(
    shape: tuple[int, ...], named: bool
) -> None:
    other = optimizer(
        (1, 1), (2, 2), wrapper="", model="other", watched=("a", "b"), shapes={"6×4": 1, "4": 1}
    )
    calls = [*BOTH_REDUCED, all_reduce(shapes=((6, 4),)), all_reduce(shapes=(shape,))]
    ranks = [
        RankTraining(
            rank=number,
            backwards=3,
            optimizers=(optimizer((start, 2), (start + 2, 4), wrapper=""), other),
        )
        for number, start in enumerate((1, 7))
    ]
    report = diagnose(trained(*ranks, reports=[rank(0, *calls), rank(1, *calls)]))
    assert [one.cause for one in report.findings] == ["replicas-start-apart"] * named


def by_hand(*values: tuple[int, int], seed: int) -> RankTraining:
    """Parameters that a program's own ``train_step`` updates, as with Keras on torch."""
    (first, *_, last) = values
    updated = OptimizerTraining(
        name="",
        steps=4,
        where=at(7),
        parameters=2,
        model="self",
        shapes={"4×4": 1, "4": 1},
        watched=WATCHED,
        states=(TrainingState(step=0, values=first), TrainingState(step=4, values=last)),
    )
    return RankTraining(rank=0, backwards=4, by_hand=updated, seed=seed, seeded_at=at(3))


@pytest.mark.parametrize(
    ("other", "reduces", "named"),
    [
        (((7, 2), (9, 4)), True, True),  # the bias was equal, and stays so
        (((1, 2), (3, 4)), True, False),
        (((7, 2), (9, 6)), True, False),  # nor does the bias agree at the end: no equal updates
        (((7, 2), (3, 4)), True, False),  # something made them equal
        (((7, 2), (9, 4)), False, False),  # each rank may train a model of its own
    ],
)
def test_parameters_without_an_optimizer_that_began_apart(
    other: tuple[tuple[int, int], ...], reduces: bool, named: bool
) -> None:
    ranks = [by_hand((1, 2), (3, 4), seed=7), replace(by_hand(*other, seed=8), rank=1)]
    calls = [all_reduce(6, shapes=(shape,)) for shape in ((4, 4), (4,))] * 4 * reduces
    report = diagnose(trained(*ranks, reports=[rank(0, *calls), rank(1, *calls)]))
    found = [one for one in report.findings if one.cause == "replicas-start-apart"]
    assert bool(found) is named
    if named:
        assert found[0].values == {"names": ("model.0.weight",)}
        seeded = facts(found[0])["seeded-with"]
        assert (seeded.place.line, seeded.values) == (3, {"seeds": (7, 8)})  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (("0.weight", "0.bias"), "module-called-past-ddp"),
        (("head.weight", "head.bias"), "module-called-past-ddp"),
        (("0.weight",), None),  # the optimizer also steps what is outside DDP
    ],
)
def test_another_model_in_ddp_of_the_same_name_is_not_taken_for_the_one_called_past(
    parameters: tuple[str, ...], expected: str | None
) -> None:
    """A function's parameter names each model that it trains."""
    ranks = [
        RankTraining(
            rank=number,
            backwards=3,
            optimizers=(
                optimizer((1, 2), (3 + number, 4 + number), gradients=5 + number, synchronised=0),
            ),
            models=(model(parameters=parameters),),
            called_past=at(6),
        )
        for number in range(2)
    ]
    causes = [one.cause for one in diagnose(trained(*ranks)).findings]
    assert causes == ([expected] if expected else [])


def with_plateau(*rates: float, **fields: Any) -> OptimizerTraining:
    """An optimizer whose rank had these rates before its steps, which moved it accordingly."""
    moved = ((1, round(10 * sum(rates[: step + 1]))) for step in range(len(rates)))
    at_steps = zip(states(*moved), rates, strict=True)
    plateau = Schedule(kind="ReduceLROnPlateau", steps=2, where=at(7))
    return replace(
        optimizer(*((1, 1) for _ in rates), wrapper="", **fields),
        states=tuple(replace(state, rates=(rate,)) for state, rate in at_steps),
        schedules=(plateau,),
    )


def test_schedules_that_part_ranks_whose_gradients_calls_have_averaged() -> None:
    """Also if the rates are equal again at the end."""
    late, early = (0.2, 0.2, 0.2, 0.1), (0.2, 0.2, 0.1, 0.1)
    calls = BOTH_REDUCED * 3
    sent = [rank(0, *calls), rank(1, *calls)]
    finding = only(found(with_plateau(*late), with_plateau(*early), reports=sent))
    assert (finding.cause, finding.places[0].line) == ("ranks-diverged-learning-rate", 7)
    (alone,) = found(with_plateau(*late), with_plateau(*early)).findings
    assert alone.cause == "model-not-wrapped", "nothing was averaged"
    assert not found(with_plateau(*late), with_plateau(*late), reports=sent).findings


def test_copies_that_differ_on_purpose_are_silent() -> None:
    assert averaged(BOTH_REDUCED[0]).ok, "not every parameter"
    assert averaged(*BOTH_REDUCED, shapes={"4×4": 2, "4": 1}).ok, "one of two of a shape"
    sent = replace(BOTH_REDUCED[1], op="broadcast")
    assert averaged(*BOTH_REDUCED, sent).ok, "a server"


def test_different_rates_without_communication_may_be_a_search() -> None:
    report = found(
        optimizer((1, 2), (3, 4), wrapper="", gradients=5),
        optimizer((1, 2), (8, 9), wrapper="", gradients=7, settings={"lr[0]": "0.3"}),
    )
    assert not report.findings
    assert [hint.cause for hint in report.hints] == ["model-not-wrapped"]


def test_training_without_a_process_group() -> None:
    one = optimizer((1, 2), (3, 4), wrapper="")
    [hint] = found(one, one, has_group=False).hints
    assert (hint.cause, hint.ranks) == ("group-never-formed", [0, 1])
    assert not found(one, one, has_group=True).hints
    earlier = [rank(0, joined=all_reduce()), rank(1, joined=all_reduce())]
    assert not found(one, one, has_group=False, reports=earlier).hints, "formed in another cell"
    assert not found(one, has_group=False).hints, "one rank alone"


def test_shards_and_uneven_steps_are_not_compared() -> None:
    sharded = [optimizer((n, n), (n, 5), wrapper="FSDP2") for n in (1, 2)]
    uneven = [optimizer((1, 2), (3, 4)), optimizer((1, 2), (3, 5), (6, 7))]
    for pair in (sharded, uneven):
        ranks = [RankTraining(rank=n, optimizers=(one,)) for n, one in enumerate(pair)]
        assert not replicas(trained(*ranks))


def test_nan_that_was_skipped_is_silent() -> None:
    lost = NotFinite(backward=2, value="nan", where=at(8), lasting=False)
    report = diagnose(
        trained(
            RankTraining(rank=0, backwards=5), RankTraining(rank=1, backwards=5, not_finite=lost)
        )
    )
    assert report.ok


def test_nan_begins_on_the_rank_that_had_it_first() -> None:
    late, early = (NotFinite(backward=n, value="nan", where=at(8), lasting=True) for n in (4, 3))
    ranks = [
        RankTraining(rank=n, backwards=6, not_finite=one)
        for n, one in enumerate((late, early, late))
    ]
    finding = only(diagnose(trained(*ranks)))
    assert (finding.cause, finding.ranks, finding.waiting) == ("nan-from-one-rank", [1], [0, 2])
    assert finding.confidence == "likely"


def _lost(given: dict[int, GivenNotFinite], *backwards: int) -> Snapshot:
    lost = [NotFinite(backward=n, value="nan", where=at(8), lasting=True) for n in backwards]
    ranks = [
        RankTraining(rank=n, backwards=6, not_finite=one, given=given.get(n))
        for n, one in enumerate(lost)
    ]
    return trained(*ranks)


GAVE = GivenNotFinite(op="allreduce", where=at(5), backwards=2, call=7)


def test_nan_that_a_rank_gave_the_others_begins_there() -> None:
    later = replace(GAVE, call=8, where=at(6))
    for backwards in ((3, 3, 3), (3, 4, 4)):
        finding = only(diagnose(_lost({1: GAVE, 2: later}, *backwards)))
        assert (finding.kind, finding.cause) == ("gave-not-finite", "nan-from-one-rank")
        assert (finding.ranks, finding.waiting) == ([1], [0, 2])
        assert finding.places[1].line == 5


@pytest.mark.parametrize(
    ("given", "backwards"),
    [
        ({1: replace(GAVE, backwards=1)}, (3, 3, 3)),  # as the mean of an empty evaluation
        ({1: replace(GAVE, backwards=3)}, (3, 3, 3)),  # after the loss
        (dict.fromkeys(range(3), GAVE), (3, 3, 3)),
        ({1: GAVE}, (4, 3, 4)),  # its own loss was the first
    ],
)
def test_other_values_do_not_tell_where_nan_began(
    given: dict[int, GivenNotFinite], backwards: tuple[int, ...]
) -> None:
    assert only(diagnose(_lost(given, *backwards))).kind.startswith("loss-not-finite")


def _raised(given: dict[int, GivenNotFinite], line: int) -> Snapshot:
    lost = _lost(given, 3, 3, 3)
    error = RankError(type="_LinAlgError", message="eigh failed", where=at(9))
    errors = [error, error, replace(error, where=at(line))]
    ranks = [
        replace(report, state="raised", error=one)
        for report, one in zip(lost.ranks, errors, strict=True)
    ]
    return replace(lost, outcome="error", ranks=tuple(ranks))


def test_an_exception_of_all_ranks_follows_from_nan_that_one_gave_them() -> None:
    finding = only(diagnose(_raised({1: GAVE}, 9)))
    assert (finding.kind, finding.ranks) == ("gave-not-finite", [1])
    assert facts(finding)["raised-after"].ranks == (0, 1, 2)


def test_other_exceptions_are_reported_themselves() -> None:
    for report in (diagnose(_raised({}, 9)), diagnose(_raised({1: GAVE}, 4))):
        assert report.findings[0].kind == "raised"


def test_renamed_submodules_are_not_taken_for_exchanged_ones() -> None:
    names = [("a.weight", "b.weight"), ("b.weight", "a.weight"), ("c.weight", "d.weight")]
    models = [model(parameters=p, names_digest=n, shapes_digest=1) for n, p in enumerate(names)]
    exchanged = [RankTraining(rank=n, models=(models[n],)) for n in (0, 1)]
    renamed = [RankTraining(rank=n, models=(m,)) for n, m in enumerate((models[0], models[2]))]
    assert only(diagnose(trained(*exchanged))).cause == "submodules-in-another-order"
    assert diagnose(trained(*renamed)).ok
    damaged = [replace(models[0], names_digest=n) for n in (0, 1)]
    same = [RankTraining(rank=n, models=(one,)) for n, one in enumerate(damaged)]
    assert diagnose(trained(*same)).ok


@pytest.mark.parametrize(
    ("lost", "fields", "confidence"),
    [
        (True, {}, "likely"),
        (True, {"finite": False}, "likely"),
        (True, {"zero": True}, ""),
        (False, {}, ""),
    ],
)
def test_parameters_without_initial_values(
    lost: bool, fields: dict[str, bool], confidence: str
) -> None:
    empty = UnwrittenMemory(
        where=at(2), module="Net", names=("body.weight",), unwritten=1, parameters=4, **fields
    )
    nan = NotFinite(backward=1, value="nan", where=at(3), inputs=True, lasting=True)
    ranks = [
        RankTraining(rank=r, backwards=2, unwritten=(empty,), not_finite=nan if lost else None)
        for r in (0, 1)
    ]
    report = diagnose(trained(*ranks))
    causes = [(one.cause, one.confidence, one.ranks) for one in report.findings]
    if confidence:
        assert causes == [("parameters-not-initialised", confidence, [0, 1])]
        assert not report.hints
        return
    assert [one.cause for one in report.findings] == (["loss-not-finite"] if lost else [])
    assert [one.cause for one in report.hints] == ["parameters-not-initialised"]


@pytest.mark.parametrize(
    ("name", "rates", "batch", "doubted"),
    [
        ("base_lr", (0.1, 0.1), "16", True),
        ("cfg.single_gpu_lr", (0.1, 0.05), "16", True),
        ("base_lr", (0.1, 0.05), "16", False),  # the base of a schedule
        ("base_lr", (0.1, 0.2), "16", False),
        ("base_lr", (0.1, 0.1), "16 // world_size", False),
        ("base_lr", (0.1, 0.1), "int(args.batch / dist.get_world_size())", False),
        ("lr", (0.1, 0.1), "16", False),
    ],
)
def test_a_rate_for_one_process(
    name: str, rates: tuple[float, float], batch: str, doubted: bool
) -> None:
    one = optimizer((1, 2), (3, 4), (5, 6), made=at(1))
    moved = zip(one.states, (*rates, rates[-1]), strict=True)
    one = replace(one, states=tuple(replace(state, rates=(rate,)) for state, rate in moved))
    source = f"""optimizer = SGD(model.parameters(), lr={name})
loader = DataLoader(data, batch_size={batch})
"""
    hints = [hint.cause for hint in found(one, one, source=source).hints]
    assert hints == ["learning-rate-not-scaled"] * doubted
