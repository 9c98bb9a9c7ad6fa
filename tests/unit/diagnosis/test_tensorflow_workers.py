"""What workers of TensorFlow observed of variables, shares and numbers, without TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.rules.tensorflow import _kept_by
from ddt_notebook.model import Fact, Finding, Position, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.model.rank import Activity
from ddt_notebook.model.tensorflow import (
    AdaptedLayer,
    DistributedData,
    ExecutedGraph,
    GraphResults,
    KerasFit,
    KerasPolicy,
    LineNumbers,
    MirroredState,
    MirroredVariables,
    NotFiniteResult,
    OptimizerUpdates,
    PipelineRead,
    PipelineStep,
    RankTensorFlow,
    RestoredCheckpoint,
    ShownResult,
    SummedMean,
    VariableWrite,
    WrittenSummary,
)
from ddt_notebook.model.waits import cannot_complete, waits

from .builders import all_reduce, at, call, fact, only, rank, snapshot

_DIFFER, _UNEVEN = "tensorflow-workers-differ", "tensorflow-shares-uneven"
_NAMES = ("SGD/m/bias", "dense/kernel", "learning_rate")


def _workers(*fields: dict[str, Any], source: str = "pass") -> Snapshot:
    scene = snapshot(rank(0, all_reduce()), rank(1, all_reduce()), source=source, outcome="ok")
    common = {"updates": (OptimizerUpdates(replicas=2),)}
    seen = (RankTensorFlow(**{"rank": n, **common, **one}) for n, one in enumerate(fields))
    return replace(scene, framework="tensorflow", tensorflow=tuple(seen))


def _mirrored(
    *states: tuple[int, tuple[int, ...], float], names: tuple[str, ...] = _NAMES
) -> dict[str, Any]:
    made = (
        MirroredState(executed=executed, values=values, numbers=(None, None, rate))
        for executed, values, rate in states
    )
    one = MirroredVariables(graph="step()", where=at(4), names=names, states=tuple(made))
    return {"mirrored": (one,)}


_EQUAL = _mirrored((0, (1, 2, 3), 0.1), (8, (4, 5, 3), 0.1))
_SLOWER = _mirrored((0, (1, 2, 3), 0.1), (8, (6, 7, 8), 0.05))
_OTHER_START = _mirrored((0, (1, 9, 3), 0.1), (8, (4, 10, 3), 0.1))


def test_variables_that_a_worker_assigned_alone_are_told_at_that_line() -> None:
    write = {"writes": (VariableWrite(variable="learning_rate", where=at(6), first=5, last=7),)}
    finding = only(diagnose(_workers(_EQUAL, _SLOWER | write)))
    assert (finding.cause, finding.ranks, finding.confidence) == (_DIFFER, [1], "certain")
    assert {place.line for place in finding.places.values()} == {6}
    assert finding.values["numbers"] == (0.1, 0.05)


def test_a_line_that_sets_what_no_graph_assigns_comes_before_one_that_set_weights() -> None:
    """All workers may have set the same weights, which differ by the updates since."""
    writes = (
        VariableWrite(variable="dense/kernel", where=at(3), first=5, last=5),
        VariableWrite(variable="learning_rate", where=at(6), first=5, last=5),
    )
    workers = []
    for of in (_EQUAL, _SLOWER):
        graph = of["mirrored"][0]
        assigned = tuple(None if name == "learning_rate" else at(9) for name in graph.names)
        states = tuple(  # the kernel has one number, too
            replace(one, numbers=(None, float(one.values[1]), one.numbers[2]))
            for one in graph.states
        )
        graph = replace(graph, assigned=assigned, states=states)
        workers.append({"mirrored": (graph,), "writes": writes})
    finding = only(diagnose(_workers(*workers)))
    assert {place.line for place in finding.places.values()} == {6}
    assert finding.values["variable"] == "learning_rate"


def test_a_checkpoint_that_one_worker_found_is_told_at_the_line_that_restored_it() -> None:
    restored = [
        {"restored": (RestoredCheckpoint(where=at(3), found=found),)} for found in (True, False)
    ]
    finding = only(diagnose(_workers(_EQUAL | restored[0], _OTHER_START | restored[1])))
    assert (finding.cause, finding.ranks) == (_DIFFER, [1])
    assert fact(finding, "checkpoint-found").ranks == (0,)
    assert {place.line for place in finding.places.values()} == {3}


_WRITE = VariableWrite(variable="dense/kernel", where=at(2), moment=1)


@pytest.mark.parametrize(
    ("contents", "written", "line"),
    [
        ((5, 6), 1, 3),  # what was assigned before is gone
        ((5, 6), 3, 2),
        ((5, 5), 1, 2),
        ((5, 0), 1, 2),
    ],
    ids=["other ages", "assigned later", "the same", "not known"],
)
def test_checkpoints_of_other_ages_are_told_at_the_line_that_restored_them(
    contents: tuple[int, int], written: int, line: int
) -> None:
    workers = [
        state
        | {
            "restored": (RestoredCheckpoint(where=at(3), content=content, moment=2),),
            "writes": (replace(_WRITE, moment=written),),
        }
        for state, content in zip((_EQUAL, _OTHER_START), contents, strict=True)
    ]
    finding = only(diagnose(_workers(*workers)))
    assert (finding.cause, finding.confidence) == (_DIFFER, "certain")
    assert {place.line for place in finding.places.values()} == {line}
    assert any(one.kind == "checkpoints-differ" for one in finding.facts) == (line == 3)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (_EQUAL, False),
        (_OTHER_START, True),
        (_mirrored((0, (1, 9, 3), 0.1), names=("a", "b", "c")), False),
        (_mirrored((3, (1, 9, 3), 0.1)), False),
        (_OTHER_START | {"updates": (OptimizerUpdates(replicas=1),)}, False),
    ],
    ids=["equal", "apart", "other variables", "other moments", "no strategy of all"],
)
def test_variables_are_compared_at_the_same_moments(other: dict[str, Any], told: bool) -> None:
    findings = diagnose(_workers(_EQUAL, other)).findings
    assert [one.cause for one in findings] == [_DIFFER] * told
    assert all(one.confidence == "likely" for one in findings)


def test_an_optimizer_that_sums_nothing_is_why_variables_part() -> None:
    updates = (OptimizerUpdates(replicas=2, optimizer="SGD", aggregates=False, where=at(8)),)
    alone = {"updates": updates}
    finding = only(diagnose(_workers(_EQUAL | alone, _SLOWER | alone)))
    assert fact(finding, "gradients-not-summed").values == {"optimizer": "SGD"}
    assert {place.line for place in finding.places.values()} == {8}
    assert not diagnose(_workers(_EQUAL | alone, _EQUAL | alone)).findings


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"content": 1}, {"content": 2}, True),
        ({"content": 1}, {"content": 1}, False),
        ({"content": 0}, {"content": 2}, False),
        ({"content": 1}, {"content": 2, "where": at(9)}, False),
        ({"content": 1}, {"content": 2, "layer": "TextVectorization"}, False),
    ],
    ids=["apart", "equal", "not known", "other lines", "other layers"],
)
def test_statistics_of_each_workers_own_data(
    first: dict[str, Any], second: dict[str, Any], told: bool
) -> None:
    layers = [
        {"adapted": (AdaptedLayer(**{"layer": "Normalization", "where": at(3), **one}),)}
        for one in (first, second)
    ]
    findings = diagnose(_workers(*layers)).findings
    assert [(one.cause, one.kind) for one in findings] == [(_DIFFER, "adapted-apart")] * told


@pytest.mark.parametrize("weights", [("a", "b"), ("a", ""), ("a", "a"), ("", "")])
def test_class_weights_of_each_workers_own_labels(weights: tuple[str, str]) -> None:
    fits = [{"fits": (KerasFit(where=at(5), class_weight=one),)} for one in weights]
    findings = diagnose(_workers(*fits)).findings
    assert [one.kind for one in findings] == ["weighed-apart"] * (weights[0] != weights[1])


def _read(batches: int, *, ended: bool = True, **fields: Any) -> dict[str, Any]:
    read = PipelineRead(
        where=at(5), batches=(batches,), samples=(8 * batches,), ended=(ended,), **fields
    )
    return {"reads": (read,)}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (_read(12), _read(4), True),
        (_read(12), _read(12), False),
        (_read(12), _read(10), False),  # TensorFlow reads two batches ahead
        (_read(100), _read(96), False),
        (_read(12), _read(4, ended=False), False),
        (_read(12, trains=False), _read(4, trains=False), False),
    ],
    ids=["uneven", "even", "read ahead", "a remainder", "not ended", "an evaluation"],
)
def test_shares_that_end_early(first: dict[str, Any], second: dict[str, Any], told: bool) -> None:
    findings = diagnose(_workers(first, second)).findings
    assert [(one.cause, one.ranks) for one in findings] == [(_UNEVEN, [1])] * told


@pytest.mark.parametrize(
    ("lasting", "bad", "cause", "ranks"),
    [
        (True, (0, 5), "nan-from-one-rank", [1]),
        (True, (0, 0), "loss-not-finite", [0, 1]),
        (False, (0, 0), None, []),
    ],
    ids=["data of one worker", "no data", "passing"],
)
def test_steps_that_return_nan(
    lasting: bool, bad: tuple[int, int], cause: str | None, ranks: list[int]
) -> None:
    result = NotFiniteResult(graph="step()", where=at(4), executed=5, lasting=lasting)
    seen = [_read(8, not_finite=one) | {"not_finite": (result,)} for one in bad]
    findings = diagnose(_workers(*seen)).findings
    assert [(one.cause, one.ranks) for one in findings] == ([(cause, ranks)] if cause else [])


def test_variables_that_hold_nan_are_told_with_the_worker_whose_data_do() -> None:
    held = _mirrored((0, (1, 2, 3), 0.1), (8, (4, -1, 3), 0.1))
    finding = only(diagnose(_workers(held, _read(8, not_finite=3) | held)))
    assert (finding.kind, finding.ranks) == ("variables-not-finite", [1])
    assert fact(finding, "batch-not-finite").values == {"batch": 3}


@pytest.mark.parametrize(
    ("source", "found"),
    [("pass", True), ("loss = total / strategy.num_replicas_in_sync", False)],
)
def test_sums_of_means_over_replicas(source: str, found: bool) -> None:
    seen = {"summed": (SummedMean(where=at(1), mean_at=at(1), replicas=2),)}
    report = diagnose(_workers(seen, seen, source=source))
    assert [one.cause for one in report.findings] == ["sum-shown-as-mean"] * found


@pytest.mark.parametrize(("by", "told"), [(8.0, True), (16.0, False)])
def test_losses_divided_by_each_workers_own_batch(by: float, told: bool) -> None:
    updates = (
        OptimizerUpdates(replicas=2, optimizer="SGD", of_mean=True, divided_by=by, mean_at=at(1)),
    )
    epoch = Epoch(number=1, run=1, batches=4, samples=32, trained=4)
    loader = LoaderPartition(
        name="data", dataset="tf.data", indexed=False, batch_size=8, epochs=(epoch,)
    )
    parts = tuple(RankPartition(rank=n, run=1, loaders=(loader,)) for n in range(2))
    scene = replace(_workers({"updates": updates}, {"updates": updates}), partition=parts)
    findings = diagnose(scene).findings
    assert [one.cause for one in findings] == ["tensorflow-loss-not-divided"] * told


@pytest.mark.parametrize(("where", "told"), [((at(1), at(1)), True), ((at(1), None), False)])
def test_terms_of_variables_alone_that_each_replica_adds(
    where: tuple[Position | None, Position | None], told: bool
) -> None:
    seen = [{"updates": (OptimizerUpdates(replicas=2, own_term_at=one),)} for one in where]
    findings = diagnose(_workers(*seen)).findings
    assert [one.cause for one in findings] == ["tensorflow-loss-not-divided"] * told


def test_a_fit_that_resumed_on_one_worker_is_why_the_steps_differ() -> None:
    calls = [call(op, 2) for op in ("train_function()", "broadcast")]
    scene = snapshot(*(rank(n, one, blocked=True) for n, one in enumerate(calls)), outcome="hung")
    seen = tuple(
        RankTensorFlow(
            rank=n,
            fits=(KerasFit(where=at(2)),),
            restored=(RestoredCheckpoint(where=at(2), found=found),),
        )
        for n, found in enumerate((True, False))
    )
    finding = only(diagnose(replace(scene, framework="tensorflow", tensorflow=seen)))
    assert (finding.cause, finding.ranks, finding.waiting) == ("tensorflow-steps-differ", [0], [1])


@pytest.mark.parametrize("file", ["tensorflow/python/profiler/profiler_v2.py", "own.py"])
def test_a_crash_of_tensorflows_profiler_is_no_fault_of_the_program(file: str) -> None:
    text = f'Current thread 0x1 (most recent call first):\n  File "/x/{file}", line 149 in stop\n'
    died = rank(1, all_reduce(), state="died", exit_signal=11, crash_text=text)
    scene = snapshot(rank(0, all_reduce()), died, outcome="failed")
    finding = only(diagnose(replace(scene, framework="tensorflow")))
    told = [one for one in finding.facts if one.kind == "profiler-crashed"]
    assert bool(told) == file.startswith("tensorflow")
    assert bool(finding.fixes) != bool(told)


def _in_a_graph(
    *, share: float, later: bool = True, run: bool = False, left_for_s: float = 12.0
) -> Snapshot:
    """Rank 0 is in a graph that rank 1 has ended; rank 1 waits in the next call, or has none."""
    graph = call("loop()", 4, shapes=(), dtypes=())
    ahead = (graph, all_reduce(7)) if later else (graph,)
    scene = snapshot(
        rank(0, graph, blocked=True, activity=Activity(cpu_share=share, threads_run=run)),
        rank(
            1,
            *ahead,
            blocked=later,
            state="blocked" if later else "running",
            blocked_s=left_for_s,
        ),
        outcome="hung",
    )
    given = (ExecutedGraph(name="loop()", given=(number,)) for number in (4, 3))
    seen = (RankTensorFlow(rank=n, graphs=(one,)) for n, one in enumerate(given))
    return replace(scene, framework="tensorflow", tensorflow=tuple(seen))


def test_a_worker_that_has_ended_a_graph_keeps_another_inside_of_it() -> None:
    hung = _in_a_graph(share=0.01)
    assert cannot_complete(waits(hung.ranks), hung.ranks) == {0, 1}
    finding = only(diagnose(hung))
    assert (finding.kind, finding.cause) == ("left-graph", "tensorflow-steps-differ")
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert {rank: place.line for rank, place in finding.places.items()} == {0: 4, 1: 4}
    given = [one.values["given"] for one in finding.facts if one.kind == "graph-given"]
    assert given == [(4,), (3,)]


@pytest.mark.parametrize(
    "scene",
    [
        {"share": 0.9},
        {"share": 0.01, "later": False},
        {"share": 0.0, "run": True},
        {"share": 0.0, "left_for_s": 2.0},
    ],
    ids=["computes", "the other runs", "gets no processor", "for a moment"],
)
def test_a_worker_at_work_inside_of_a_graph_may_still_end_it(scene: dict[str, Any]) -> None:
    seen = _in_a_graph(**scene).ranks
    assert not cannot_complete(waits(seen), seen)


def _showing(text: str, *values: float, estimate: bool = False, **other: Any) -> Snapshot:
    """The chief writes what the step returned; the workers' values of it are given."""
    result = ShownResult(where=at(9), graph="step", text=text, estimate=estimate)
    workers = [{"results": (GraphResults(graph="step", first=((one,),)),)} for one in values]
    workers[0] |= {"shown": (result,), "wrote": (at(9),)}
    workers[1] |= other
    return _workers(*workers)


def test_a_result_of_the_chief_that_it_shows_for_all_is_named() -> None:
    finding = only(diagnose(_showing("loss 0.52", 0.52, 0.61)))
    assert (finding.cause, finding.ranks) == ("tensorflow-result-not-reduced", [0])
    assert {place.line for place in finding.places.values()} == {9}
    assert fact(finding, "results-differ").values == {"values": (0.52, 0.61)}


@pytest.mark.parametrize(
    "scene",
    [
        _showing("loss 0.52", 0.52, 0.52),
        _showing("worker 0: loss 0.52", 0.52, 0.61),
        _showing("loss 0.52", 0.52, 0.61, wrote=(at(9),)),
        _showing("loss 0.52", 0.52, 0.61, shown=(ShownResult(where=at(12), graph="step"),)),
        _showing("loss 0.52", 0.52, 0.61, results=()),
    ],
    ids=["reduced", "said to be its own", "all show it", "all show it elsewhere", "not known"],
)
def test_results_that_each_worker_shows_or_that_are_equal_are_right(scene: Snapshot) -> None:
    report = diagnose(scene)
    assert not report.findings
    assert not report.hints


def test_a_mean_of_the_chiefs_own_batch_may_be_an_estimate() -> None:
    report = diagnose(_showing("loss 0.52", 0.52, 0.61, estimate=True))
    assert not report.findings
    assert [one.cause for one in report.hints] == ["tensorflow-result-not-reduced"]


def _computing(*numbers: float, line: int = 4, form: int = 1) -> dict[str, Any]:
    lines = (LineNumbers(where=at(2), numbers=(0.5,)), LineNumbers(where=at(line), numbers=numbers))
    return {"graphs": (ExecutedGraph(name="step()", numbers=lines, form=form),)}


def test_a_number_of_a_graph_that_differs_is_told_at_its_line() -> None:
    finding = only(diagnose(_workers(_computing(0.1, 2.5), _computing(0.1, 3.5))))
    assert (finding.cause, finding.kind) == (_DIFFER, "graph-numbers-apart")
    assert finding.values["numbers"] == (2.5, 3.5)
    assert {place.line for place in finding.places.values()} == {4}


@pytest.mark.parametrize(
    "other",
    [
        _computing(0.1, 2.5),
        _computing(0.1),
        _computing(0.1, 3.5, line=5),
        _computing(0.1, 3.5, form=2),
        {},
    ],
    ids=["equal", "other operations", "other lines", "other shapes", "another graph"],
)
def test_numbers_of_graphs_with_other_operations_are_not_compared(other: dict[str, Any]) -> None:
    assert not diagnose(_workers(_computing(0.1, 2.5), other)).findings


def _preparing(*contents: int, line: int = 6, share: str = "") -> dict[str, Any]:
    names = filter(None, ("TensorSlice", share, "Batch"))
    steps = [PipelineStep(name=name) for name in names]
    steps[1:1] = [PipelineStep(name="Map", content=content) for content in contents]
    return {"data": (DistributedData(where=at(line), policy="AUTO", steps=tuple(steps)),)}


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (_preparing(8), "function-of-step"),
        (_preparing(), "steps-of-pipelines"),
        (_preparing(8, share="Skip"), "function-of-step"),
        (_preparing(7), ""),
        (_preparing(7, share="Skip"), ""),
        (_preparing(8, line=9), ""),
        ({"data": (DistributedData(where=at(6), policy="AUTO"),)}, ""),
    ],
    ids=[
        *("another function", "other steps", "another function of a share", "equal"),
        *("a share", "another line", "not known"),
    ],
)
def test_data_that_workers_prepare_in_other_ways(other: dict[str, Any], kind: str) -> None:
    findings = diagnose(_workers(_preparing(7), other)).findings
    assert [one.kind for one in findings] == ["pipelines-apart"] * bool(kind)
    for finding in findings:
        assert kind in [one.kind for one in finding.facts]
        assert finding.ranks == [0, 1]


def test_a_graph_that_is_another_one_on_a_worker_is_told_once() -> None:
    hung = _in_a_graph(share=0.01)
    calls = (replace(hung.ranks[1].calls[0], op="other()"), *hung.ranks[1].calls[1:])
    kinds = [
        one.kind
        for one in diagnose(
            replace(hung, ranks=(hung.ranks[0], replace(hung.ranks[1], calls=calls)))
        ).findings
    ]
    assert len(kinds) == 1
    assert "left-graph" not in kinds


def _held(inside_s: float | None, *, both: bool = False, waits_for: str = "time") -> Snapshot:
    """Both ranks are in a graph; rank 1 has been in a function of its data for a while."""
    graph = call("train_function()", 4, shapes=(), dtypes=())
    seen: Any = {"waits_for": waits_for, "file": "/data/7" if waits_for != "time" else ""}
    inside = Activity(
        cpu_share=0.0,
        inside=at(2, function="load") if inside_s is not None else None,
        inside_s=inside_s,
        **seen,
    )
    ranks = [
        rank(n, graph, blocked=True, blocked_s=30.0, activity=inside if n or both else None)
        for n in (0, 1)
    ]
    return replace(snapshot(*ranks, outcome="hung"), framework="tensorflow")


@pytest.mark.parametrize(
    ("waits_for", "cause"),
    [("time", "rank-too-slow"), ("missing file", "file-never-appears")],
)
def test_a_function_of_the_data_that_holds_a_worker_is_told_at_its_line(
    waits_for: str, cause: str
) -> None:
    finding = only(diagnose(_held(29.0, waits_for=waits_for)))
    assert (finding.kind, finding.cause) == ("held-in-pipeline", cause)
    assert (finding.ranks, finding.waiting) == ([1], [0])
    inside = fact(finding, "runs-inside")
    assert inside.place is not None
    assert inside.place.line == 2


@pytest.mark.parametrize(
    "scene", [_held(None), _held(0.2), _held(29.0, both=True)], ids=["none", "briefly", "both"]
)
def test_functions_that_hold_no_worker_are_not_told(scene: Snapshot) -> None:
    assert "held-in-pipeline" not in {one.kind for one in diagnose(scene).findings}


def _summary(*points: tuple[int, float], name: str = "loss", folder: str = "/logs") -> Any:
    steps, numbers = [point[0] for point in points], [point[1] for point in points]
    one = WrittenSummary(
        folder=folder, name=name, where=at(9), steps=tuple(steps), numbers=tuple(numbers)
    )
    return {"summaries": (one,)}


def test_other_numbers_of_workers_in_one_curve_are_told_where_they_are_written() -> None:
    mixed = _workers(_summary((1, 0.5), (2, 0.4)), _summary((1, 0.5), (2, 0.3)))
    finding = only(diagnose(Snapshot.from_json(mixed.to_json())))
    assert (finding.kind, finding.ranks) == ("curves-mixed", [0, 1])
    assert {place.line for place in finding.places.values()} == {9}
    assert fact(finding, "points-differ").values == {"step": 2, "numbers": (0.4, 0.3)}
    assert "/logs" in str(finding)


@pytest.mark.parametrize(
    "other",
    [
        _summary((1, 0.5)),
        _summary((1, 0.3), name="loss of worker 1"),
        _summary((1, 0.3), folder="/logs/1"),
        _summary((2, 0.3)),
        _summary(),
        {},
    ],
    ids=["equal", "another name", "another folder", "other steps", "in a graph", "the chief only"],
)
def test_summaries_that_do_not_mix_are_not_told(other: dict[str, Any]) -> None:
    assert not diagnose(_workers(_summary((1, 0.5)), other)).findings


def _by_hand(*values: tuple[int, int], line: int | None = 7, updated: bool = False) -> Any:
    """A worker whose graph assigns variables itself, with the values of two of them at the end."""
    states = [((1, 2), 0), *((one, 4) for one in values)]
    made = [MirroredState(executed=executed, values=one) for one, executed in states]
    where = at(line) if line is not None else None
    graph = MirroredVariables(
        graph="step()",
        where=at(4),
        names=("mean", "w"),
        assigned=(where, at(9)),
        states=tuple(replace(one, numbers=(None, None)) for one in made),
    )
    updates = (OptimizerUpdates(replicas=2, where=at(9)),) if updated else ()
    return {"mirrored": (graph,), "updates": updates}


@pytest.mark.parametrize("updated", [True, False])
def test_a_variable_that_a_graph_assigns_from_own_data_is_told_at_that_line(updated: bool) -> None:
    mine, theirs = (_by_hand((n, 8), updated=updated) for n in (5, 6))
    finding = only(diagnose(_workers(mine, theirs)))
    assert (finding.cause, finding.values["variable"]) == (_DIFFER, "mean")
    assert {place.line for place in finding.places.values()} == {7}
    assert fact(finding, "assigned-in-graph").place is not None


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("SGD/m/w", "w"), (None, None)),  # the line where the strategy runs the step
        (("current_learning_rate", "w"), (0.1, None)),
    ],
)
def test_what_an_optimizer_updates_is_not_told_as_assigned_by_the_graph(
    names: tuple[str, str], numbers: tuple[float | None, ...]
) -> None:
    def worker(number: int) -> dict[str, Any]:
        made = _by_hand((number, number), updated=True)
        (graph,) = made["mirrored"]
        given = tuple(n and n / number for n in numbers)
        last = replace(graph.states[-1], numbers=given)
        lines = (at(9) if names[0] == "current_learning_rate" else at(7), at(7))
        graph = replace(graph, names=names, assigned=lines, states=(graph.states[0], last))
        updates = (OptimizerUpdates(replicas=2, where=at(9), optimizer="SGD"),)
        return {"mirrored": (graph,), "updates": updates}

    finding = only(diagnose(_workers(worker(5), worker(6))))
    assert finding.values["variable"] == names[0]
    assert {place.line for place in finding.places.values()} == {4}
    assert "assigned-in-graph" not in {one.kind for one in finding.facts}


def test_gradients_that_a_loop_without_optimizer_does_not_sum_are_told_where_it_assigns() -> None:
    finding = only(diagnose(_workers(_by_hand((5, 8)), _by_hand((5, 9)))))
    assert (finding.cause, finding.values["variable"]) == (_DIFFER, "w")
    assert {place.line for place in finding.places.values()} == {9}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (_by_hand((5, 8)), _by_hand((5, 8))),
        (_by_hand((1, 2)), _by_hand((1, 2))),
        # nothing but the optimizer of one worker
        (_by_hand((5, 8)), {"updates": ()}),
    ],
    ids=["equal", "not trained", "one worker"],
)
def test_loops_that_assign_alike_are_not_told(mine: Any, theirs: Any) -> None:
    assert not diagnose(_workers(mine, theirs)).findings


def _mismatched(*policies: str) -> Snapshot:
    ranks = [rank(n, all_reduce(dtypes=(kind,)), blocked=True) for n, kind in enumerate(_KINDS)]
    seen = tuple(
        RankTensorFlow(rank=n, policies=(KerasPolicy(name=name, where=at(3)),))
        for n, name in enumerate(policies)
        if name
    )
    scene = snapshot(*ranks, outcome="hung")
    return replace(scene, framework="tensorflow", tensorflow=seen)


_KINDS = ("float32", "int64")


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        (("", "mixed_float16"), [(1,)]),
        (("float32", "mixed_float16"), [(0,), (1,)]),
        (("mixed_float16", "mixed_float16"), []),
        (("", ""), []),
    ],
)
def test_other_policies_of_keras_are_told_with_the_calls_that_do_not_fit(
    policies: tuple[str, ...], told: list[tuple[int, ...]]
) -> None:
    finding = only(diagnose(_mismatched(*policies)))
    assert finding.cause == "dtype-differs"
    found = [one for one in finding.facts if one.kind == "policy-set"]
    assert [one.ranks for one in found] == told
    assert all(one.place is not None and one.place.line == 3 for one in found)


@pytest.mark.parametrize(
    ("common", "read", "before", "told"),
    [
        (5, 200, False, False),
        (60, 200, False, True),
        (5, 100, False, True),
        (2, 100, False, False),
        (5, 200, True, True),
        (0, 200, True, False),
    ],
    ids=[
        *("of a few values", "of one data set", "no repetition", "few"),
        *("shuffled before the share", "shuffled, and yet apart"),
    ],
)
def test_samples_that_come_again_on_one_worker_may_be_equal_by_chance(
    common: int, read: int, before: bool, told: bool
) -> None:
    data = (DistributedData(policy="function", shuffled=before, shuffled_before_share=before),)
    contents = [tuple(range(100)), tuple(range(100 - common, 200 - common))]
    loaders = [
        LoaderPartition(
            name="data",
            dataset="tf.data",
            sampler="",
            indexed=False,
            batch_size=10,
            epochs=(
                Epoch(
                    number=1, in_cell=1, run=1, batches=10, samples=read, trained=10, content=one
                ),
            ),
        )
        for one in contents
    ]
    scene = replace(
        _workers({"data": data}, {"data": data}),
        partition=tuple(
            RankPartition(rank=n, run=1, loaders=(one,)) for n, one in enumerate(loaders)
        ),
    )
    causes = [one.cause for one in diagnose(scene).findings]
    assert ("tensorflow-shares-overlap" in causes) == told


@pytest.mark.parametrize(
    ("second", "fields", "drawn", "named"),
    [
        (range(10, 50), {}, False, True),
        (range(10, 50), {}, True, False),  # a shuffle of tf.data without a seed, as in guides
        (range(32, 72), {}, False, False),  # the end of a pass over the data and the next one
        (range(40, 80), {}, False, False),
        (range(10, 50), {"samples": 50}, False, False),  # samples came again on one worker, too
        (range(10, 50), {"trained": 0}, False, False),
    ],
)
def test_data_that_tensorflow_divides_and_each_worker_has_in_another_order(
    second: range, fields: dict[str, Any], drawn: bool, named: bool
) -> None:
    data = {"data": (DistributedData(where=at(2), policy="AUTO", shuffled=drawn),)}
    contents = (tuple(range(40)), tuple(second))
    partition = tuple(
        RankPartition(
            rank=number,
            run=1,
            loaders=(
                LoaderPartition(
                    name="data of cell[3] line 2",
                    dataset="tf.data",
                    sampler="AutoShardPolicy.AUTO",
                    indexed=False,
                    epochs=(
                        Epoch(
                            number=1,
                            run=1,
                            batches=5,
                            samples=40,
                            trained=5,
                            content=content,
                            where=at(2),
                        ),
                    ),
                ),
            ),
        )
        for number, content in enumerate(contents)
    )
    if fields:
        (loader,) = partition[1].loaders
        changed = replace(loader, epochs=(replace(loader.epochs[0], **fields),))
        partition = (partition[0], replace(partition[1], loaders=(changed,)))
    report = diagnose(replace(_workers(data, data), partition=partition))
    found = [one for one in report.findings if one.cause == "tensorflow-shares-overlap"]
    assert bool(found) is named
    if named:
        assert (found[0].symptom, found[0].ranks, found[0].places[1].line) == ("C.7", [0, 1], 2)
        assert found[0].values["samples"] == 30


@pytest.mark.parametrize(("observed", "kept"), [(2, [1]), (5, [])])
def test_a_worker_that_a_condition_keeps_from_a_collective_was_seen_to_part_there(
    observed: int, kept: list[int]
) -> None:
    """Both workers made a call; that of only one was under the condition."""
    source = (
        "for x in data:\n    if task_id == 0:\n        strategy.gather(x)\n\nif late:\n    pass"
    )
    context = Context(snapshot(rank(0), rank(1), source=source))
    parted = Fact(kind="parted", ranks=(0, 1), place=context.place(at(observed), "passed"))
    finding = Finding(
        symptom="D.1.1",
        stage="",
        kind="different-collectives",
        ranks=(0, 1),
        places={0: context.place(at(3), "raised"), 1: context.place(at(1), "raised")},
        facts=[parted],
    )
    assert [*_kept_by(context, finding, parted)] == kept
