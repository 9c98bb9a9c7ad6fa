"""What engines of DeepSpeed and workers of TensorFlow add to a finding, without either of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, RankError, RankReport, Snapshot
from ddt_notebook.model.frameworks.deepspeed import (
    ENGINE,
    ENGINE_READY,
    LATE_STEP,
    LOAD_CHECKPOINT,
    MEMBERS,
    SAVE_CHECKPOINT,
    ZERO_INIT,
)
from ddt_notebook.model.frameworks.ray import GROUP, REPORT
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition, pack_indices
from ddt_notebook.model.stragglers import laggard
from ddt_notebook.model.tensorflow import (
    DistributedData,
    ExecutedGraph,
    KerasFit,
    OptimizerUpdates,
    PipelineError,
    RankTensorFlow,
)
from ddt_notebook.model.training import RankTraining

from .builders import all_reduce, at, call, fact, only, raised, rank, snapshot

_INSIDE = "deepspeed/comm/torch.py"


def _engine(**settings: int) -> Call:
    text = json.dumps({name: str(value) for name, value in settings.items()})
    return call(ENGINE, 1, kind="setup", detail=text)


def _missing(*first: Call, called_from: str | None = _INSIDE) -> Snapshot:
    waits = all_reduce(4, called_from=called_from)
    return snapshot(rank(0, first[0], waits, blocked=True), rank(1, first[-1]), outcome="hung")


@pytest.mark.parametrize(
    ("stages", "called_from", "named"),
    [((1, 2), _INSIDE, True), ((1, 1), _INSIDE, False), ((1, 2), None, False)],
    ids=["differ", "equal", "not DeepSpeed's call"],
)
def test_engines_that_differ_are_a_reason(
    stages: tuple[int, int], called_from: str | None, named: bool
) -> None:
    scene = _missing(*(_engine(stage=stage) for stage in stages), called_from=called_from)
    finding = only(diagnose(scene))
    assert (finding.cause == "deepspeed-config-differs") is named
    if named:
        assert fact(finding, "engines-differ").values == {"setting": "stage", "given": ("1", "2")}


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ("train_micro_batch_size_per_gpu", "deepspeed-config-differs"),
        ("gradient_clipping", "deepspeed-batches-differ"),
    ],
)
def test_other_micro_batches_are_why_ranks_have_other_numbers_of_batches(
    setting: str, cause: str
) -> None:
    waits = all_reduce(4, called_from=_INSIDE)
    engines = [_engine(**{setting: size}) for size in (4, 2)]
    scene = snapshot(
        rank(0, engines[0], waits, waits, blocked=True),
        rank(1, engines[1], waits),
        source="engine = make()\nfor batch in loader:\n    x = batch\n    engine.step()",
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert finding.cause == cause
    kinds = [one.kind for one in finding.facts]
    assert ("engines-differ" in kinds) is (cause == "deepspeed-config-differs")


@pytest.mark.parametrize(
    ("tags", "lines", "told"),
    [
        (("0.31", "0.17"), (5, 5), True),
        (("step2", "step2"), (5, 5), False),
        ((None, None), (5, 5), False),
        (("best", "last"), (5, 7), False),
    ],
    ids=["own losses", "equal", "the number of the step", "other lines"],
)
def test_a_checkpoint_under_different_tags(
    tags: tuple[str | None, ...], lines: tuple[int, ...], told: bool
) -> None:
    saves = [
        call(SAVE_CHECKPOINT, line, kind="setup", detail=tag)
        for tag, line in zip(tags, lines, strict=True)
    ]
    findings = diagnose(snapshot(rank(0, saves[0]), rank(1, saves[1]))).findings
    assert [f.cause for f in findings] == ["deepspeed-checkpoint-tags-differ"] * told
    if told:
        assert [f.values["tag"] for f in findings[0].facts] == list(tags)


def test_a_loop_that_accumulates_what_the_engine_accumulates() -> None:
    late = call(LATE_STEP, 6, kind="setup", detail="4")
    finding = only(diagnose(snapshot(rank(0, late), rank(1, late))))
    assert (finding.symptom, finding.cause) == ("D.2.4", "deepspeed-accumulated-twice")
    assert finding.values == {"passes": 4, "all": 16}


def test_ranks_that_wait_in_groups_of_engines_that_differ() -> None:
    one, two = (all_reduce(4, group=group, called_from=_INSIDE) for group in ("1", "2"))
    scene = snapshot(
        rank(0, _engine(stage=2), one, blocked=True),
        rank(1, _engine(stage=3), two, blocked=True),
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.kind, finding.cause) == ("wait-cycle", "deepspeed-config-differs")


@pytest.mark.parametrize("members", [(0, 1), (0,)], ids=["data parallel", "a pipeline"])
def test_ranks_whose_engine_averages_gradients_must_not_read_the_same(
    members: tuple[int, ...],
) -> None:
    text = json.dumps({MEMBERS: members})
    engine = call(ENGINE_READY, 1, kind="setup", detail=text)
    epoch = Epoch(number=1, run=1, batches=4, samples=16, complete=True, trained=4, where=at(2))
    read = pack_indices(b"\xff\xff")
    loader = LoaderPartition(
        name="data", dataset="Data", dataset_size=16, indexed=True, handed_out=read, epochs=(epoch,)
    )
    scene = replace(
        snapshot(rank(0, engine), rank(1, engine), outcome="ok"),
        partition=tuple(RankPartition(rank=n, run=1, loaders=(loader,)) for n in range(2)),
        training=tuple(RankTraining(rank=n, backwards=4) for n in range(2)),
    )
    causes = [finding.cause for finding in diagnose(scene).findings]
    assert causes == (["no-distributed-sampler"] if len(members) > 1 else [])


@pytest.mark.parametrize("line", [2, 3], ids=["earlier", "at the line that waits"])
def test_a_checkpoint_on_some_ranks_is_named_where_a_rank_waits_in_it(line: int) -> None:
    source = "save = engine.save_checkpoint\nif rank == 0:\n    save(folder)"
    inside = all_reduce(3, called_from=_INSIDE)
    begun = call(SAVE_CHECKPOINT, line, kind="setup")
    scene = snapshot(rank(0, begun, inside, blocked=True), rank(1), source=source, outcome="hung")
    (finding,) = diagnose(scene).findings
    assert (finding.cause == "deepspeed-checkpoint-on-some-ranks") is (line == 3)


@pytest.mark.parametrize(
    ("paths", "named"),
    [(("/ckpt/2", None), True), ((None, None), False), (("/ckpt/2", "/ckpt/2"), False)],
    ids=["on one rank", "on none", "on both"],
)
def test_a_checkpoint_that_some_ranks_did_not_find(
    paths: tuple[str | None, ...], named: bool
) -> None:
    source = "engine.load_checkpoint(folder)\nfor x in data:\n    pass\n    engine.backward(x)"
    loads = [call(LOAD_CHECKPOINT, 1, kind="setup", detail=path) for path in paths]
    step = all_reduce(4, called_from=_INSIDE)
    scene = snapshot(
        rank(0, loads[0], step),
        rank(1, loads[1], step, step, blocked=True),
        source=source,
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.cause == "deepspeed-checkpoint-not-found") is named, finding.cause
    if named:
        assert fact(finding, "loaded").ranks == (0,)
        assert fact(finding, "loaded-nothing").ranks == (1,)


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (("/a/step4/mp_rank_00.pt", "/a/step2/mp_rank_00.pt"), True),
        (("/a/step4/mp_rank_00.pt", "/b/step4/mp_rank_01.pt"), False),
        (("/a/step4/mp_rank_00.pt", None), False),
    ],
    ids=["other tags", "folders of nodes", "none on one rank"],
)
def test_checkpoints_with_other_tags_that_are_loaded(
    paths: tuple[str | None, ...], told: bool
) -> None:
    loads = [call(LOAD_CHECKPOINT, 1, kind="setup", detail=path) for path in paths]
    found = diagnose(snapshot(*(rank(n, one) for n, one in enumerate(loads)))).findings
    assert [finding.kind for finding in found] == ["checkpoint-loads-differ"] * told


@pytest.mark.parametrize(
    ("message", "path", "symptom"),
    [
        ("'NoneType' object is not subscriptable", None, "D.1.6"),
        ("'NoneType' object is not subscriptable", "/ckpt/2", "D.1.11"),
        ("unsupported operand", None, "D.1.11"),
    ],
)
def test_a_state_that_was_not_loaded_explains_an_error(
    message: str, path: str | None, symptom: str
) -> None:
    load = call(LOAD_CHECKPOINT, 1, kind="setup", detail=path)
    error = RankError(type="TypeError", message=message, where=at(2))
    scene = snapshot(*(raised(n, load, error=error) for n in range(2)), outcome="failed")
    assert only(diagnose(scene)).symptom == symptom


@pytest.mark.parametrize("engines", [1, 0], ids=["made without", "stands before"])
def test_a_model_that_only_some_ranks_build_in_parts(engines: int) -> None:
    begun = call(ZERO_INIT, 1, kind="setup")
    broadcast = call("broadcast", 2, root=0, called_from=_INSIDE)
    forms = call("new_group", 3, called_from=_INSIDE)
    scene = snapshot(
        rank(0, *[_engine(stage=3)] * engines, forms, blocked=True),
        rank(1, begun, broadcast, blocked=True),
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.cause == "deepspeed-zero-init-on-some-ranks") is bool(engines)
    if engines:
        assert (finding.ranks, finding.waiting) == ([0], [1])


def test_a_rank_that_went_past_a_collective_in_a_group_of_the_same_ranks() -> None:
    source = "for x in data:\n    engine.backward(x)\n    if loss < best:\n        engine.save(x)"
    step = all_reduce(2, group="1", called_from=_INSIDE)
    saves = call("barrier", 4, group="0", called_from=_INSIDE)
    alike = snapshot(
        rank(0, step, saves, blocked=True),
        rank(1, step, step, blocked=True),
        source=source,
        outcome="hung",
    )
    finding = only(diagnose(alike))
    assert finding.cause == "collective-under-local-condition"
    assert (finding.ranks, finding.waiting) == ([1], [0])


@pytest.mark.parametrize("by_library", [True, False])
def test_a_stage_that_left_its_loop_by_its_clock(by_library: bool) -> None:
    source = (
        "for step in range(9):\n    engine.train_batch(data)\n"
        "    if time.time() - began > 3:\n        break"
    )
    inside = _INSIDE if by_library else None
    sent, got = (call(op, 2, peer=0 if op == "recv" else 1, called_from=inside)
                 for op in ("send", "recv"))  # fmt: skip
    scene = snapshot(rank(0, sent), rank(1, got, got, blocked=True), source=source, outcome="hung")
    finding = only(diagnose(scene))
    wanted = "loop-ends-by-clock" if by_library else "message-without-partner"
    assert finding.cause == wanted


@pytest.mark.parametrize("even", [True, False])
def test_tensors_that_are_divided_evenly_have_to_be_alike(even: bool) -> None:
    one, two = (
        call("all_to_all_single", 2, shapes=((n, 4),), output_shapes=((n, 4),) if even else ())
        for n in (4, 6)
    )
    scene = snapshot(rank(0, one, blocked=True), rank(1, two, blocked=True), outcome="hung")
    causes = [finding.cause for finding in diagnose(scene).findings]
    assert ("shape-differs" in causes) is even


def _fits(scene: Snapshot, *fits: KerasFit) -> Snapshot:
    seen = (RankTensorFlow(rank=at_, fits=(fit,)) for at_, fit in enumerate(fits))
    return replace(scene, framework="tensorflow", tensorflow=tuple(seen))


def _met(ops: tuple[str, str] = ("train_function()", "all_reduce")) -> Snapshot:
    calls = [call(op, 2) for op in ops]
    return snapshot(*(rank(n, one, blocked=True) for n, one in enumerate(calls)), outcome="hung")


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ([{"steps": 5}, {"steps": 3}], "tensorflow-steps-differ"),
        ([{"epochs": 2}, {"epochs": 1}], "tensorflow-steps-differ"),
        ([{"callbacks": ("Evaluates",)}, {}], "tensorflow-chief-alone"),
        ([{"steps": 5}, {"steps": 5}], "different-collectives"),
        ([{"steps": 5}, {"steps": None}], "different-collectives"),
        ([{"steps": 5, "where": at(9)}, {"steps": 3, "where": at(9)}], "different-collectives"),
        ([{}, {"stopped": at(6)}], "tensorflow-steps-differ"),
        ([{"stopped": at(6)}, {"stopped": at(6)}], "different-collectives"),
    ],
)
def test_fits_that_differ_are_a_reason(given: list[dict[str, Any]], cause: str) -> None:
    fits = [KerasFit(**{"where": at(2), **one}) for one in given]
    finding = only(diagnose(_fits(_met(), *fits)))
    assert finding.cause == cause
    if cause == "tensorflow-steps-differ":
        assert (finding.ranks, finding.waiting) == ([1], [0])


def _graphs(first: list[int], second: list[int]) -> Snapshot:
    """Rank 0's second execution of a graph meets the second collective of rank 1's first one."""
    met = call("step()", shapes=((4,),) * len(first), dtypes=("float32",) * len(first))
    other = replace(met, shapes=((4,),) * len(second), dtypes=("float32",) * len(second))
    scene = snapshot(rank(0, met, blocked=True), rank(1, other), outcome="hung")
    seen = tuple(
        RankTensorFlow(
            rank=number, graphs=(ExecutedGraph(name="step()", where=tuple(map(at, lines))),)
        )
        for number, lines in enumerate((first, second))
    )
    return replace(scene, framework="tensorflow", tensorflow=seen)


def test_a_collective_of_one_workers_graph_is_named_at_its_line() -> None:
    finding = only(diagnose(_graphs([3, 7], [3])))
    assert (finding.kind, finding.cause) == ("graphs-differ", "different-collectives")
    assert (finding.ranks, finding.waiting) == ([1], [0])
    place = fact(finding, "only-in-graph-of").place
    assert place is not None
    assert place.line == 7


_LOST = PipelineError(type="ValueError", message="bad sample", where=at(5))


@pytest.mark.parametrize(
    ("error", "data", "named"),
    [(_LOST, True, True), (_LOST, False, False), (replace(_LOST, reached_program=True), True, 0)],
    ids=["lost", "no strategy reads the data", "the program got it"],
)
def test_an_error_that_ends_the_data_of_a_worker_is_told(
    error: PipelineError, data: bool, named: bool
) -> None:
    scene = snapshot(rank(0, all_reduce()), rank(1, all_reduce()), outcome="ok")
    given = (DistributedData(policy="OFF"),) if data else ()
    seen = (
        RankTensorFlow(rank=0, data=given),
        RankTensorFlow(rank=1, data=given, errors=(error,)),
    )
    findings = diagnose(replace(scene, framework="tensorflow", tensorflow=seen)).findings
    assert [(one.cause, one.ranks) for one in findings] == (
        [("tensorflow-pipeline-error-lost", [1])] if named else []
    )


def _read(
    contents: tuple[range, range], sizes: tuple[int, int] = (4, 4), **loader: Any
) -> Snapshot:
    reads, seen = [], []
    for number, (content, size) in enumerate(zip(contents, sizes, strict=True)):
        epoch = Epoch(
            number=1, run=1, batches=8, samples=8 * size, content=tuple(content), trained=8
        )
        one = LoaderPartition(
            name="data", dataset="tf.data", indexed=False, batch_size=size, epochs=(epoch,)
        )
        one = replace(one, **loader)
        reads.append(RankPartition(rank=number, run=1, loaders=(one,)))
        updates = (OptimizerUpdates(replicas=2),)
        data = (DistributedData(policy="function", content=str(number)),)
        fits = (KerasFit(where=at(2), steps=8),)
        seen.append(RankTensorFlow(rank=number, data=data, updates=updates, fits=fits))
    scene = snapshot(rank(0, all_reduce()), rank(1, all_reduce()), outcome="ok")
    return replace(scene, framework="tensorflow", partition=tuple(reads), tensorflow=tuple(seen))


@pytest.mark.parametrize(
    ("scene", "cause"),
    [
        (_read((range(40), range(24, 64))), "tensorflow-shares-overlap"),
        (_read((range(32), range(32, 64))), None),
        (_read((range(32), range(30, 64))), None),  # two may be equal by chance
        (_read((range(32), range(24, 56)), sampler="AutoShardPolicy.AUTO"), None),
        (_read((range(32), range(32, 64)), (8, 4)), "tensorflow-batches-uneven"),
    ],
    ids=["overlap", "apart", "two equal", "divided by TensorFlow", "uneven batches"],
)
def test_shares_of_workers_are_compared(scene: Snapshot, cause: str | None) -> None:
    assert [finding.cause for finding in diagnose(scene).findings] == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("update", "source", "found", "hinted"),
    [
        ({"optimizer": "SGD"}, "pass", True, False),
        ({"optimizer": "Adam"}, "pass", False, True),
        ({"optimizer": "SGD"}, "rate = 0.1 / strategy.num_replicas_in_sync", False, True),
        ({"optimizer": "SGD"}, "batch = 64 // strategy.num_replicas_in_sync", True, False),
        ({"optimizer": "SGD", "scaled": True}, "pass", False, False),
        ({"optimizer": "SGD", "replicas": 1}, "pass", False, False),
        ({"optimizer": "SGD", "of_mean": False}, "pass", False, False),
    ],
    ids=["sgd", "adam", "rate divided", "batch divided", "scaled", "one replica", "no mean"],
)
def test_mean_losses_whose_gradients_are_summed_are_told(
    update: dict[str, Any], source: str, found: bool, hinted: bool
) -> None:
    one = OptimizerUpdates(**{"replicas": 2, "of_mean": True, "mean_at": at(1), **update})
    scene = snapshot(rank(0, all_reduce()), rank(1, all_reduce()), source=source, outcome="ok")
    seen = tuple(RankTensorFlow(rank=number, updates=(one,)) for number in range(2))
    report = diagnose(replace(scene, framework="tensorflow", tensorflow=seen))
    cause = "tensorflow-loss-not-divided"
    assert [finding.cause for finding in report.findings] == [cause] * found
    assert [hint.cause for hint in report.hints] == [cause] * hinted


@pytest.mark.parametrize("before", [True, False])
def test_an_order_of_each_worker_before_the_shares_are_cut_is_no_coincidence(before: bool) -> None:
    scene = _read((range(40), range(24, 64)))
    data = (DistributedData(shuffled=True, shuffled_before_share=before),)
    report = diagnose(
        replace(scene, tensorflow=tuple(replace(one, data=data) for one in scene.tensorflow))
    )
    assert [one.cause for one in report.findings] == ["tensorflow-shares-overlap"] * before
    assert len(report.hints) == (not before)


def test_batches_of_other_sizes_count_alike_if_each_worker_takes_its_mean() -> None:
    scene = _read((range(32), range(32, 64)), (8, 4))
    updates = (OptimizerUpdates(replicas=2, of_mean=True, scaled=True),)
    seen = tuple(replace(one, fits=(), updates=updates) for one in scene.tensorflow)
    (finding,) = diagnose(replace(scene, tensorflow=seen)).findings
    assert (finding.cause, finding.confidence) == ("tensorflow-batches-uneven", "likely")


@pytest.mark.parametrize("number", ["strategy.cluster_resolver.task_id", 'config["task"]["index"]'])
def test_a_workers_number_in_its_cluster_is_its_rank(number: str) -> None:
    source = f"number = {number}\nif number == 0:\n    model.save(folder)"
    scene = snapshot(rank(0, all_reduce(3), blocked=True), rank(1), source=source, outcome="hung")
    finding = only(diagnose(replace(scene, framework="tensorflow")))
    assert finding.cause == "tensorflow-chief-alone"
    assert 2 in [fact.place.line for fact in finding.facts if fact.place is not None]


_REPORTED_BY_ONE = """
for epoch in range(3):
    loss(model, batch).backward()
    if rank == 0:
        ray.train.report({"epoch": epoch})
"""


def test_a_worker_of_ray_that_alone_reports_keeps_the_others_from_their_step() -> None:
    step = all_reduce(3, source="flight recorder", caller="DistributedDataParallel", reduce_op=None)
    reports = call(REPORT, 5, group=GROUP, shapes=(), dtypes=())
    scene = snapshot(
        rank(0, step, reports, blocked=True),
        rank(1, step, step, blocked=True),
        source=_REPORTED_BY_ONE,
        outcome="hung",
        groups={GROUP: (0, 1)},
    )
    finding = only(diagnose(scene))
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0])
    assert finding.cause == "collective-under-rank-condition"
    assert "rank 1 never entered ray.train.report" in str(finding)


_REPORTED_AFTER_A_LOOP = """
for epoch in range(3):
    for batch in shard.iter_torch_batches(batch_size=16 - 8 * rank):
        loss(model, batch).backward()
    ray.train.report({"epoch": epoch})
"""
_REPORTED_IN_A_LOOP = """
for batch in shard.iter_torch_batches(batch_size=16 - 8 * rank):
    loss(model, batch).backward()
    ray.train.report({"loss": batch})
"""


@pytest.mark.parametrize(
    ("source", "line", "cause"),
    [
        (_REPORTED_AFTER_A_LOOP, 4, "uneven-iterations"),
        (_REPORTED_IN_A_LOOP, 3, "groups-in-opposite-order"),
    ],
)
def test_a_worker_of_ray_that_has_fewer_batches_reports_first(
    source: str, line: int, cause: str
) -> None:
    step = all_reduce(
        line, source="flight recorder", caller="DistributedDataParallel", reduce_op=None
    )
    reports = call(REPORT, line + 1, group=GROUP, shapes=(), dtypes=())
    scene = snapshot(
        rank(0, step, reports, blocked=True),
        rank(1, step, step, blocked=True),
        source=source,
        outcome="hung",
        groups={GROUP: (0, 1)},
    )
    finding = only(diagnose(scene))
    assert (finding.symptom, finding.cause) == ("D.2.1", cause)
    assert finding.ranks == ([0] if cause == "uneven-iterations" else [0, 1])


@pytest.mark.parametrize("late", [REPORT, "broadcast"])
def test_ranks_that_wait_for_a_report_are_no_sign_of_a_slow_rank(late: str) -> None:
    """Rank 0 writes a checkpoint before it reports."""
    calls = {
        number: [
            call(late, group=GROUP, entered_s=step + 0.8 * (number == 0), left_s=step + 0.9)
            for step in range(12)
        ]
        for number in range(2)
    }
    scene = snapshot(*(rank(number, *made) for number, made in calls.items()))
    assert (laggard(scene) is None) is (late == REPORT)


@pytest.mark.parametrize("leaves", ["time.time() - began > 3", "loss < best"])
def test_a_stage_that_left_its_loop_and_forms_the_groups_of_the_next_part(leaves: str) -> None:
    source = (
        "for part in parts:\n    make_groups()\n    for step in range(9):\n"
        f"        train_batch(data)\n        if {leaves}:\n            break"
    )
    forms = call("new_group", 2, called_from=_INSIDE)
    sent, got = (call(op, 4, peer=peer, called_from=_INSIDE)
                 for op, peer in (("isend", 1), ("irecv", 0)))  # fmt: skip
    scene = snapshot(
        rank(0, forms, sent, sent, blocked=True),
        rank(1, forms, got, forms, blocked=True),
        source=source,
        outcome="hung",
    )
    finding = only(diagnose(scene))
    by_clock = leaves.startswith("time")
    local = "collective-under-local-condition"
    assert finding.cause == ("loop-ends-by-clock" if by_clock else local)
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert "never received what rank 0 sends" in finding.title


COLLECTS = """\
for step in range(9):
    losses = run(batch)
    if rank == 1:
        collected = run(batch)
"""
PIPELINE = "megatron/core/pipeline_parallel/p2p_communication.py"


def _stage(number: int, *made: tuple[str, int]) -> RankReport:
    """A stage whose schedule sends and receives for the user's lines."""
    calls = [call(op, line, peer=1 - number, called_from=PIPELINE) for op, line in made]
    return rank(number, *calls, blocked=True)


def test_a_message_that_met_another_line_shows_where_a_stage_left_one_out() -> None:
    first = _stage(0, ("isend", 2), ("irecv", 2), ("isend", 2), ("irecv", 2))
    last = _stage(1, ("irecv", 2), ("isend", 2), ("irecv", 4), ("irecv", 2))
    finding = only(diagnose(snapshot(first, last, source=COLLECTS, outcome="hung")))
    assert (finding.symptom, finding.cause) == ("D.2.1", "collective-under-rank-condition")
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-sent", [0], [1])
    lines = [one.place.line for one in finding.facts if one.place is not None]
    assert lines[:2] == [3, 4]


def test_stages_with_lines_of_their_own_left_none_out() -> None:
    first = _stage(0, ("isend", 2), ("irecv", 2), ("irecv", 2))
    last = _stage(1, ("irecv", 4), ("isend", 4), ("irecv", 4))
    finding = only(diagnose(snapshot(first, last, source=COLLECTS, outcome="hung")))
    assert finding.cause == "both-sides-wait"
