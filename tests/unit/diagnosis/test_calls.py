"""Calls that do not fit each other, in forms that `tests/fixtures` has no run of."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.diagnosis import diagnose

from .builders import (
    GLOO_TIMEOUT,
    all_reduce,
    at,
    call,
    only,
    peer_error,
    raised,
    rank,
    snapshot,
)


def test_a_missing_rank_is_named_after_gloos_own_timeout() -> None:
    late = raised(0, all_reduce(status="failed"), error=peer_error(0, GLOO_TIMEOUT))
    finding = only(diagnose(snapshot(late, rank(1), outcome="failed")))
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0])
    assert finding.values["freed"]


def test_swap_in_two_branches_is_known_by_the_text_of_the_lines() -> None:
    lines = ["dist.all_reduce(a)", "dist.all_reduce(b)"]
    a, b = ((lambda n, t=t: replace(at(n), code=t)) for t in lines)
    scene = snapshot(
        rank(0, all_reduce(where=a(2)), all_reduce(where=b(3))),
        rank(1, all_reduce(where=b(5)), all_reduce(where=a(6))),
    )
    assert [hint.cause for hint in diagnose(scene).hints] == ["swapped-collectives"]


def test_a_crash_that_no_mismatch_explains_stays_a_crash() -> None:
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


def test_a_call_of_a_library_is_named_as_such() -> None:
    own = {"source": "flight recorder", "caller": "DistributedDataParallel", "reduce_op": None}
    both = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(**own, shapes=((6,),))))
    one = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(shapes=((6,),))))
    meet = snapshot(
        rank(0, all_reduce(**own), blocked=True),
        rank(1, call("broadcast", 4), blocked=True),
        outcome="hung",
    )
    kinds = {"arguments-differ": (both, one), "different-collectives": (meet,)}
    for kind, scenes in kinds.items():
        for scene in scenes:
            finding = only(diagnose(scene))
            assert finding.kind == kind
            entered = {f.ranks: f.values for f in finding.facts if f.kind == "entered"}
            assert entered[0,]["issued_by"] == "DistributedDataParallel"
            assert ("issued_by" in entered[1,]) == (scene is both)
