"""Mismatched calls: what the recorded runs of ``injected_twenty.toml`` do not cover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import RankError

from .builders import all_reduce, at, call, fact, only, peer_error, raised, rank, sides, snapshot


def test_ranks_that_fail_after_a_mismatch_are_its_victims():
    finding = only(
        diagnose(
            snapshot(
                rank(0, all_reduce(), all_reduce(), blocked=True),
                raised(1, all_reduce(shapes=((6,),), status="failed"), error=peer_error(0)),
                raised(2, all_reduce(status="failed"), error=peer_error(0)),
                outcome="failed",
            )
        )
    )
    assert sides(finding, "shapes") == [((0, 2), ((4,),)), ((1,), ((6,),))]
    assert (finding.symptom, finding.cause) == ("D.1.1", "shape-differs")
    assert (finding.ranks, finding.waiting) == ([1], [0, 2])


def test_float32_against_float64_aborts():
    finding = only(
        diagnose(
            snapshot(
                raised(0, all_reduce(status="failed"), error=peer_error(0)),
                rank(1, all_reduce(dtypes=("float64",), status="pending"), state="died",
                     exit_signal=6),
                raised(2, all_reduce(status="failed"), error=peer_error(0)),
                outcome="failed",
            )
        )
    )  # fmt: skip
    assert (finding.symptom, finding.cause) == ("D.1.1", "dtype-differs")
    assert (finding.ranks, finding.waiting) == ([1], [0, 2])
    assert fact(finding, "died-of-it").values["signal"] == 6


def test_another_number_of_tensors_is_no_other_type():
    fewer = call("grouped_allreduce", 3, shapes=((4,), (2,)), dtypes=("float32",) * 2)
    more = replace(fewer, shapes=((4,), (2,), (2,)), dtypes=("float32",) * 3)
    mixed = replace(more, dtypes=("float32", "float64", "float32"))
    for other, cause in ((more, "shape-differs"), (mixed, "dtype-differs")):
        scene = snapshot(rank(0, fewer, blocked=True), rank(1, other, blocked=True))
        assert only(diagnose(scene)).cause == cause


def test_a_swap_in_two_branches_is_found_by_the_text_of_the_lines():
    lines = ["dist.all_reduce(a)", "dist.all_reduce(b)"]
    a, b = ((lambda n, t=t: replace(at(n), code=t)) for t in lines)
    scene = snapshot(
        rank(0, all_reduce(where=a(2)), all_reduce(where=b(3))),
        rank(1, all_reduce(where=b(5)), all_reduce(where=a(6))),
    )
    assert [hint.cause for hint in diagnose(scene).hints] == ["swapped-collectives"]


def test_a_crash_that_no_mismatch_explains_is_reported_as_a_crash():
    scene = snapshot(
        rank(0, all_reduce(), all_reduce(), blocked=True),
        rank(1, all_reduce(reduce_op="MAX"), state="died", exit_signal=9, position=at(7)),
        outcome="failed",
    )
    report = diagnose(scene)
    assert [finding.symptom for finding in report.findings] == ["D.1.11", "D.2.4"]
    # the order of verdicts does not depend on the order of ranks
    turned = replace(scene, ranks=scene.ranks[::-1])
    assert diagnose(turned).findings == report.findings


def test_the_finding_names_the_library_that_issued_a_call():
    own = {"source": "flight recorder", "caller": "DistributedDataParallel", "reduce_op": None}
    both = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(**own, shapes=((6,),))))
    one = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(shapes=((6,),))))
    meet = snapshot(
        rank(0, all_reduce(**own), blocked=True),
        rank(1, call("broadcast", 4), blocked=True),
        outcome="hung",
    )
    ddp = "DistributedDataParallel"
    cases = [
        (both, "arguments-differ", ddp),
        (one, "arguments-differ", None),
        (meet, "different-collectives", None),
    ]
    for scene, kind, other in cases:
        finding = only(diagnose(scene))
        assert finding.kind == kind
        assert sides(finding, "issued_by") == [((0,), ddp), ((1,), other)]


ONE_SIDE = """\
for p in parameters:
    if {condition}:
        dist.all_reduce(p.grad)
"""


def _reduced(number: int, *sizes: int, blocked: bool = False):
    return rank(number, *(all_reduce(3, shapes=((size,),)) for size in sizes), blocked=blocked)


def test_a_call_that_one_rank_skips_at_a_line_that_all_reach():
    source = ONE_SIDE.format(condition="p.ndim > 1 or rank == 0")
    for last in ((), (4,)):
        first = _reduced(0, 6, 2, *last, blocked=True)
        second = _reduced(1, 6, 4, blocked=True)
        finding = only(diagnose(snapshot(first, second, source=source, outcome="hung")))
        assert (finding.kind, finding.cause) == ("out-of-step", "collective-under-rank-condition")
        assert fact(finding, "keeps-from-line").place.code == "if p.ndim > 1 or rank == 0:"


@pytest.mark.parametrize(
    ("condition", "sizes"),
    [
        ("p.ndim > 1 or rank == 0", ((2,), (4,))),  # no call of the line has fitted
        ("p.ndim > 1 or rank == 0", ((6, 2, 5), (6, 4))),  # the others' call does not come next
        ("p.ndim > 1 or rank >= 0", ((6, 2), (6, 4))),  # true on both ranks
        ("p.ndim > 1", ((6, 2), (6, 4))),
    ],
)
def test_shapes_that_differ_although_no_rank_skips_the_call(condition, sizes):
    source = ONE_SIDE.format(condition=condition)
    ranks = [_reduced(number, *own, blocked=True) for number, own in enumerate(sizes)]
    finding = only(diagnose(snapshot(*ranks, source=source, outcome="hung")))
    assert finding.cause == "shape-differs"


def test_other_arguments_that_differ_under_a_condition_with_the_rank():
    source = ONE_SIDE.format(condition="p.ndim > 1 or rank == 0").replace(
        "all_reduce(p.grad)", "broadcast(p, src=rank)"
    )
    ranks = [
        rank(number, call("broadcast", 3, root=0), call("broadcast", 3, root=number), blocked=True)
        for number in (0, 1)
    ]
    finding = only(diagnose(snapshot(*ranks, source=source, outcome="hung")))
    assert finding.cause == "root-differs"


def test_a_scalar_meets_a_tensor_of_one_element():
    """DeepSpeed's pipeline reduces its loss so; two dimensions of other sizes do not fit."""
    for mine, other, found in (((), (1,), False), ((1, 4), (4,), False), ((2, 4), (4, 2), True)):
        calls = [
            replace(all_reduce(1), shapes=(shape,), dtypes=("float32",)) for shape in (mine, other)
        ]
        run = snapshot(rank(0, calls[0]), rank(1, calls[1]))
        assert bool(diagnose(run).findings) is found, (mine, other)


SELDOM = """def step(steps):
    if steps % often == 0:
        dist.all_reduce(factors)
    if steps % seldom == 0:
        dist.all_reduce(inverses)
while True:
    dist.all_reduce(gradients)
    step(steps)
"""


def _at_step(line: int, **call):
    return all_reduce(line, callers=(at(8),), where=at(line, function="step"), **call)


def test_the_first_of_two_conditions_after_the_last_common_call_is_named():
    before = all_reduce(7)
    mean = raised(0, before, _at_step(3, reduce_op="AVG", status="failed"), error=peer_error(1))
    total = raised(1, before, _at_step(5, status="failed"), error=peer_error(0))
    finding = only(diagnose(snapshot(mean, total, source=SELDOM, outcome="failed")))
    assert fact(finding, "decided-by-each-rank").place.line == 2


def test_another_exception_after_a_call_that_failed_in_a_mismatch_follows_from_it() -> None:
    error = RankError(
        type="InternalError",
        message="Collective ops is aborted by: Collective instance 7 expected type 0",
        where=at(5),
    )
    failed = replace(call("broadcast", 3, root=0), status="failed")
    ranks = rank(0, all_reduce(2), blocked=True), raised(1, failed, error=error)
    report = diagnose(snapshot(*ranks, source="x\ny\nz\n", outcome="hung"))
    assert [one.kind for one in report.findings] == ["different-collectives"]


@pytest.mark.parametrize("failed", [True, False])
def test_a_call_after_one_that_failed_in_a_mismatch_raises_for_that_reason(failed: bool) -> None:
    """As where Keras builds a layer again; a call after one that went well may fail by itself."""
    error = RankError(type="InvalidArgumentError", message="Shape mismatch", call=1, where=at(3))
    wide = call("broadcast", 3, root=0, shapes=((8,),))
    first = replace(wide, status="failed" if failed else "done")
    again = replace(wide, status="failed")
    waiter = rank(0, call("broadcast", 3, root=0), blocked=True)
    report = diagnose(
        snapshot(waiter, raised(1, first, again, error=error), source="x\ny\nz\n", outcome="hung")
    )
    assert [one.cause for one in report.findings][-1:] == ["shape-differs"]
    assert len(report.findings) == (1 if failed else 2)


FINDS = """\
for rate in rates:
    loss = criterion(model(x))
    dist.all_reduce(gradient)
    if loss > 2 * best:
        break
for x in loader:
    dist.all_reduce(gradient)
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("source", "cause", "lines"),
    [
        (FINDS, "collective-under-local-condition", [4]),
        (FINDS.replace("break", "count()"), "different-collectives", []),
    ],
)
def test_a_loop_that_a_rank_left_before_calls_that_fitted(
    source: str, cause: str, lines: list[int]
) -> None:
    stays = rank(0, *[all_reduce(3)] * 3, all_reduce(7), blocked=True)
    leaves = rank(1, *[all_reduce(3)] * 2, all_reduce(7), call("barrier", 8), blocked=True)
    finding = only(diagnose(snapshot(stays, leaves, source=source, outcome="hung")))
    assert finding.cause == cause
    told = [f.place.line for f in finding.facts if f.kind != "entered" and f.place is not None]
    assert told == lines
