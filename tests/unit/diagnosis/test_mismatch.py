"""Mismatched calls: what the recorded runs of ``injected_twenty.toml`` do not cover."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.diagnosis import diagnose

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


def test_swap_in_two_branches_is_found_by_the_text_of_the_lines():
    lines = ["dist.all_reduce(a)", "dist.all_reduce(b)"]
    a, b = ((lambda n, t=t: replace(at(n), code=t)) for t in lines)
    scene = snapshot(
        rank(0, all_reduce(where=a(2)), all_reduce(where=b(3))),
        rank(1, all_reduce(where=b(5)), all_reduce(where=a(6))),
    )
    assert [hint.cause for hint in diagnose(scene).hints] == ["swapped-collectives"]


def test_a_crash_that_no_mismatch_explains_stays_a_crash():
    scene = snapshot(
        rank(0, all_reduce(), all_reduce(), blocked=True),
        rank(1, all_reduce(reduce_op="MAX"), state="died", exit_signal=9, position=at(7)),
        outcome="failed",
    )
    report = diagnose(scene)
    assert [finding.symptom for finding in report.findings] == ["D.1.11", "D.2.4"]
    # the order of verdicts does not depend on the order of ranks
    turned = replace(scene, ranks=scene.ranks[::-1])
    assert [f.kind for f in diagnose(turned).findings] == [f.kind for f in report.findings]


def test_a_call_of_a_library_is_named_as_such():
    own = {"source": "flight recorder", "caller": "DistributedDataParallel", "reduce_op": None}
    both = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(**own, shapes=((6,),))))
    ddp = "DistributedDataParallel"
    assert sides(only(diagnose(both)), "issued_by") == [((0,), ddp), ((1,), ddp)]
    one = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(shapes=((6,),))))
    assert sides(only(diagnose(one)), "issued_by") == [((0,), ddp), ((1,), None)]
    meet = snapshot(
        rank(0, all_reduce(**own), blocked=True),
        rank(1, call("broadcast", 4), blocked=True),
        outcome="hung",
    )
    assert sides(only(diagnose(meet)), "issued_by") == [((0,), ddp), ((1,), None)]
