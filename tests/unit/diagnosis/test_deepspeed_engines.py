"""What DeepSpeed's engines noted of themselves on ranks that train together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Finding
from ddt_notebook.model.frameworks.deepspeed import (
    ENGINE,
    ENGINE_GIVEN,
    ENGINE_HOLDS,
    ENGINE_READY,
    ENGINE_TAKES,
    ENGINE_TRAINS,
    ENGINE_USES,
    LOAD_CHECKPOINT,
    LOSS_DIVIDED,
    STAGE_READS,
)

from .builders import all_reduce, call, fact, facts, peer_error, raised, rank, snapshot

RATE, STAGE = "lr[0]", "zero_optimization.stage"


def noted(op: str, line: int = 3, **values: Any) -> Call:
    return call(op, line, kind="setup", detail=json.dumps(values))


def uses(group: int = 7, step: int = 1, **settings: str) -> Call:
    settings = {name.replace("__", "."): value for name, value in settings.items()}
    return noted(ENGINE_USES, engine=1, group=group, step=step, settings=settings)


def found(*calls: tuple[Call, ...], source: str = "") -> list[Finding]:
    ranks = (rank(number, *mine) for number, mine in enumerate(calls))
    return list(diagnose(snapshot(*ranks, source=source)).findings)


@pytest.mark.parametrize(
    ("setting", "symptom", "cause"),
    [
        (RATE, "D.2.5", "ranks-diverged-learning-rate"),
        (STAGE, "D.2.2", "deepspeed-config-differs"),
    ],
)
def test_engines_that_step_with_other_settings(setting: str, symptom: str, cause: str) -> None:
    engine = call(ENGINE, 1, kind="setup", sequence=1)
    one, two = (uses(**{"eps[0]": "1e-8", setting: value}) for value in ("1", "2"))
    (finding,) = found((engine, one), (engine, two))
    assert (finding.symptom, finding.cause, finding.ranks) == (symptom, cause, [0, 1])
    assert {place.line for place in finding.places.values()} == {1}


@pytest.mark.parametrize(
    "other",
    [
        uses(**{RATE: "1"}),
        uses(group=8, **{RATE: "2"}),  # a pipeline's other stage
        uses(step=2, **{RATE: "2"}),  # of a schedule
        uses(**{"momentum[0]": "2"}),  # another optimizer
    ],
    ids=["equal", "other group", "other step", "other names"],
)
def test_engines_whose_settings_may_differ(other: Call) -> None:
    assert not found((uses(**{RATE: "1"}),), (other,))


def test_buffers_that_stay_different() -> None:
    held = [
        noted(ENGINE_HOLDS, engine=1, group=7, buffers={"net.freqs": value, "net.mask": 5})
        for value in (1, 2)
    ]
    source = 'class Net:\n    def __init__(self):\n        self.register_buffer("freqs", x)\n'
    (finding,) = found(*((one,) for one in held), source=source)
    assert (finding.symptom, finding.values["names"]) == ("D.2.4", ("net.freqs",))
    assert {place.line for place in finding.places.values()} == {3}
    assert fact(finding, "buffers-not-broadcast").ranks == (0, 1)


@pytest.mark.parametrize(
    ("group", "buffers"), [(7, {"freqs": 1}), (8, {"freqs": 2}), (7, {"other": 2})]
)
def test_buffers_that_are_equal_or_no_copies(group: int, buffers: dict[str, int]) -> None:
    first = noted(ENGINE_HOLDS, engine=1, group=7, buffers={"freqs": 1})
    assert not found((first,), (noted(ENGINE_HOLDS, engine=1, group=group, buffers=buffers),))


@pytest.mark.parametrize(
    ("other", "group", "told"),
    [((1, 2, 3, 4), 7, True), ((1, 2, 3, 5), 7, False), ((1, 2, 3, 4), 8, False)],
    ids=["same", "other", "of another model's part"],
)
def test_engines_that_take_the_same_samples(other: tuple[int, ...], group: int, told: bool) -> None:
    mine = noted(ENGINE_TAKES, engine=1, group=7, inputs=(1, 2, 3, 4))
    findings = found((mine,), (noted(ENGINE_TAKES, engine=1, group=group, inputs=other),))
    assert [(one.symptom, one.cause) for one in findings] == (
        [("D.2.2", "no-distributed-sampler")] * told
    )


@pytest.mark.parametrize(
    ("order", "members", "told"),
    [(5, (0, 1), True), (4, (0, 1), False), (5, (1,), False), (None, (0, 1), False)],
    ids=["other", "same", "of another model's part", "not divided as one"],
)
def test_optimizers_with_another_order(
    order: int | None, members: tuple[int, ...], told: bool
) -> None:
    ready = [
        noted(ENGINE_READY, members=(0, 1), order=4),
        noted(ENGINE_READY, members=members, order=order)
        if order is not None
        else noted(ENGINE_READY, members=members),
    ]
    causes = [one.cause for one in found(*((one,) for one in ready))]
    assert causes == ["deepspeed-parameters-in-another-order"] * told


def trains(step: int, *, group: int = 7, **parameters: int) -> Call:
    return noted(ENGINE_TRAINS, engine=1, group=group, step=step, parameters=parameters)


@pytest.mark.parametrize(
    ("other", "group", "told"),
    [((1, 2, 9), 7, [4]), ((1, 8, 9), 7, [2]), ((1, 2, 3), 7, []), ((1, 8, 9), 8, [])],
    ids=["before the third look", "earlier", "equal", "of another model's part"],
)
def test_engines_with_other_parameters(other: tuple[int, ...], group: int, told: list[int]) -> None:
    steps = (1, 2, 4)
    mine = [trains(n, w=held, b=0) for n, held in zip(steps, (1, 2, 3), strict=True)]
    theirs = [trains(n, group=group, w=held, b=0) for n, held in zip(steps, other, strict=True)]
    findings = found(tuple(mine), tuple(theirs))
    assert [(one.symptom, one.cause) for one in findings] == (
        [("D.2.5", "model-reset-on-one-rank")] * len(told)
    )
    for step, finding in zip(told, findings, strict=True):
        assert finding.values == {"names": ("w",), "parameters": 1}
        assert fact(finding, "engine-parameters-before").values == {"step": step}


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\nif rank == 0:\n    net.w.data.clamp_(0, 1)\n", 3),
        ("net.module.w.data = old\n", 1),
        ("net.w.requires_grad_(False)\nstep()\nengine.step()\n", 3),
        ("net.w.fill_(1)\nnet.w.zero_()\nengine.step()\n", 3),
    ],
    ids=["in place", "assigned", "not written", "written twice"],
)
def test_the_line_that_writes_to_a_parameter_is_named(source: str, line: int) -> None:
    calls = [(trains(1, w=held),) for held in (1, 2)]
    (finding,) = found(*calls, source=source)
    assert [place.line for place in finding.places.values()] == [line, line]


def test_a_checkpoint_that_only_some_ranks_load_is_named() -> None:
    loads = call(LOAD_CHECKPOINT, 2, kind="setup", detail="saved/global_step3/mp_rank_00.pt")
    one, other = trains(1, w=1), trains(1, w=2)
    (finding,) = found((loads, one), (other,))
    assert {rank: place.line for rank, place in finding.places.items()} == {0: 2, 1: 3}
    assert fact(finding, "loaded-by").ranks == (0,)
    (finding,) = found((loads, one), (loads, other))
    assert {place.line for place in finding.places.values()} == {3}


def test_the_data_of_which_the_samples_are_parts_is_named() -> None:
    mine = noted(ENGINE_TAKES, engine=1, group=7, inputs=(1, 2, 3, 4), taken_from="train.bin")
    (finding,) = found((mine,), (mine,))
    assert fact(finding, "taken-from").values == {"name": "train.bin"}


def reads(inputs: Any, labels: Any, *, drawn: bool = False) -> Call:
    return noted(STAGE_READS, engine=1, ranks=[0, 1], read=[inputs, labels], drawn=drawn)


def data(content: int, shapes: str = "4×8", *, varied: bool = True) -> tuple[str, int, bool]:
    return shapes, content, varied


def test_stages_that_read_other_batches() -> None:
    stages = [
        tuple(reads(data(n + first), data(n + first, "4")) for n in range(4)) for first in (0, 50)
    ]
    (finding,) = found(*stages)
    assert (finding.symptom, finding.cause) == ("D.2.2", "deepspeed-stages-read-apart")


def test_stages_that_draw_their_batches_get_a_hint() -> None:
    stages = [
        tuple(reads(data(n + first), data(n + first, "4"), drawn=True) for n in range(4))
        for first in (0, 50)
    ]
    report = diagnose(snapshot(*(rank(number, *mine) for number, mine in enumerate(stages))))
    assert not report.findings
    assert [one.cause for one in report.hints] == ["deepspeed-stages-read-apart"]


@pytest.mark.parametrize(
    "last",
    [
        [reads(data(n), data(n, "4")) for n in range(4)],
        [reads(None, data(50 + n, "4")) for n in range(4)],
        [reads(data(9, varied=False), data(50 + n, "4")) for n in range(4)],
        [reads(data(9), data(50 + n, "4")) for n in range(4)],  # always the same inputs
        [reads(data(50 + n, "1×8"), data(50 + n, "4")) for n in range(4)],
        [reads(data(50 + n), data(50 + n, "4")) for n in range(2)],
        [reads(data(50 + n), data(n, "4")) for n in range(4)],  # draws noise as inputs
    ],
    ids=["equal", "nothing", "zeros", "constant", "other shapes", "few", "labels equal"],
)
def test_stages_that_need_only_a_part_of_a_batch(last: list[Call]) -> None:
    first = [reads(data(n), data(n, "4")) for n in range(4)]
    assert not found(tuple(first), tuple(last))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("engine.backward(loss / args.gradient_accumulation_steps)", True),
        ("loss /= accum_iter; engine.backward(loss)", True),
        ("errG = errG / args.accum; engine.backward(errG)", True),
        ("shown = loss / args.accum; engine.backward(loss)", False),
        ("engine.backward(loss=loss / config['gradient_accumulation_steps'])", True),
        ("loss = loss / engine.gradient_accumulation_steps(); engine.backward(loss)", True),
        ("loss = (chosen + rejected) / 2", False),
        ("print(loss / args.gradient_accumulation_steps)", False),
    ],
)
def test_a_loss_is_divided_by_what_the_engine_divides_it_by(line: str, told: bool) -> None:
    divided = call(LOSS_DIVIDED, 1, kind="setup", detail="2")
    findings = found((divided,), (divided,), source=line)
    assert [one.cause for one in findings] == ["deepspeed-loss-divided-twice"] * told
    assert not found((), (), source=line)


@pytest.mark.parametrize(
    ("theirs", "line", "told"), [("sst", 3, True), ("mnli", 3, False), ("sst", 4, False)]
)
def test_other_arguments_of_a_pass_are_shown_where_gradients_do_not_fit(
    theirs: str, line: int, told: bool
) -> None:
    given = [
        call(
            ENGINE_GIVEN,
            at,
            kind="setup",
            detail=json.dumps({"engine": 1, "group": 7, "given": [one]}),
        )
        for one, at in (("mnli", 3), (theirs, line))
    ]
    sent = [
        all_reduce(5, shapes=((size,),), status="failed", called_from="deepspeed/comm/torch.py")
        for size in (1794, 1827)
    ]
    ranks = [raised(at, given[at], sent[at], error=peer_error(1)) for at in (0, 1)]
    (finding,) = diagnose(snapshot(*ranks, outcome="failed")).findings
    assert finding.cause == "shape-differs"
    shown = facts(finding).get("engines-given")
    assert (shown is not None) is told
    if shown is not None:
        assert shown.values == {"given": ("mnli", "sst")}
