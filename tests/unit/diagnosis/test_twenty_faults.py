"""Twenty faults of collectives on gloo, each with the right ranks or field named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import RankError

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


def test_one_rank_skips_all_reduce():
    source = "x = torch.ones(10)\nif rank != 1:\n    dist.all_reduce(x)\n"
    report = diagnose(
        snapshot(
            rank(0, all_reduce(3, shapes=((10,),)), blocked=True),
            rank(1),
            rank(2, all_reduce(3, shapes=((10,),)), blocked=True),
            rank(3, all_reduce(3, shapes=((10,),)), blocked=True),
            source=source,
            outcome="hung",
        )
    )
    finding = only(report)
    assert finding.kind == "never-entered"
    assert finding.values == {
        "op": "all_reduce", "sequence": 1, "shapes": ((10,),), "dtypes": ("float32",),
        "waited_s": 2.1,
    }  # fmt: skip
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0, 2, 3])
    assert finding.cause == "collective-under-rank-condition"
    assert finding.confidence == "certain"
    assert finding.where[0] == "cell[3] line 3: dist.all_reduce(x)"
    assert (
        "likely why: cell[3] line 2: `if rank != 1:` keeps rank 1 from line 3" in finding.evidence
    )
    assert finding.fixes[0].pattern == "fix behavior logic"
    assert "outside the condition" in finding.fixes[0].advice
    assert finding.fixes[0].share == pytest.approx(5 / 44, abs=0.01)


def test_the_same_after_gloos_own_timeout():
    report = diagnose(
        snapshot(
            raised(0, all_reduce(status="failed"), error=peer_error(0, GLOO_TIMEOUT)),
            rank(1),
            outcome="failed",
        )
    )
    finding = only(report)
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0])
    assert finding.title.endswith("rank 0 waited for it")


@pytest.mark.parametrize("ending", [{"exit_signal": 9}, {"exit_code": 3}])
def test_rank_exits_or_is_killed(ending: dict[str, int]):
    finding = only(
        diagnose(
            snapshot(
                raised(0, all_reduce(status="failed"), error=peer_error(0)),
                rank(1, state="died", position=at(1), **ending),
                rank(2, all_reduce(), blocked=True),
                outcome="failed",
            )
        )
    )
    assert (finding.ranks, finding.waiting) == ([1], [0, 2])
    assert finding.title.startswith("rank 1 died (")


def test_rank_raises():
    error = RankError(type="ValueError", message="bad sample\nmore", where=at(5), at_s=10.0)
    late = peer_error(0, at_s=9.0)
    finding = only(
        diagnose(
            snapshot(
                raised(0, all_reduce(status="failed"), error=late),
                raised(1, error=error),
                rank(2, all_reduce(), blocked=True),
                outcome="failed",
            )
        )
    )
    assert (finding.kind, finding.values["message"]) == ("raised", "bad sample")
    assert (finding.ranks, finding.waiting, finding.where[1]) == ([1], [0, 2], "cell[3] line 5")


@pytest.mark.parametrize(
    ("one", "other"), [("all_reduce", "broadcast"), ("all_gather", "all_reduce")]
)
def test_different_collectives(one: str, other: str):
    source = f"if rank != 1:\n    dist.{one}(x)\nelse:\n    dist.{other}(x)\n"
    finding = only(
        diagnose(
            snapshot(
                rank(0, call(one, 2), blocked=True),
                rank(1, call(other, 4), blocked=True),
                rank(2, call(one, 2), blocked=True),
                source=source,
                outcome="hung",
            )
        )
    )
    assert (finding.kind, finding.values["blocked"]) == ("different-collectives", (0, 1, 2))
    entered = [(f.ranks, f.values["op"]) for f in finding.facts if f.kind == "entered"]
    assert entered == [((0, 2), one), ((1,), other)]
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.1.1", [1], [0, 2])
    assert finding.cause == "different-collectives"


def test_shape_4_against_6():
    """One rank returns a wrong sum, the others fail later."""
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
    assert finding.title.startswith("shapes differ in all_reduce #1: 4 on ranks 0, 2; 6 on rank 1")
    assert (finding.symptom, finding.cause) == ("D.1.1", "shape-differs")
    assert (finding.ranks, finding.waiting) == ([1], [0, 2])


@pytest.mark.parametrize(
    ("one", "other", "cause", "words"),
    [
        ({"shapes": ((2, 3),)}, {"shapes": ((3, 2),)}, "shape-differs", "2×3 on rank 0; 3×2"),
        ({}, {"dtypes": ("int32",)}, "dtype-differs", "float32 on rank 0; int32 on rank 1"),
        ({}, {"reduce_op": "MAX"}, "reduce-op-differs", "SUM on rank 0; MAX on rank 1"),
    ],
)
def test_silent_mismatches(one: dict, other: dict, cause: str, words: str):
    finding = only(diagnose(snapshot(rank(0, all_reduce(**one)), rank(1, all_reduce(**other)))))
    assert words in finding.title
    assert (finding.symptom, finding.cause, finding.ranks) == ("D.2.4", cause, [0, 1])


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
    assert "rank 1 died of it (signal 6, SIGABRT)" in finding.evidence


def test_broadcast_sources_differ():
    finding = only(
        diagnose(
            snapshot(
                rank(0, call("broadcast", root=0)),
                rank(1, call("broadcast", root=1), blocked=True),
                rank(2, call("broadcast", root=0), blocked=True),
                outcome="hung",
            )
        )
    )
    assert finding.title.startswith("roots differ in broadcast #1: rank 0 on ranks 0, 2; rank 1 on")
    assert (finding.symptom, finding.cause, finding.ranks) == ("D.1.1", "root-differs", [1])
    assert finding.waiting == [2]


def test_broadcast_4_against_6():
    sizes = [call("broadcast", root=0, shapes=((n,),)) for n in (4, 6)]
    finding = only(diagnose(snapshot(rank(0, sizes[0]), rank(1, sizes[1]))))
    assert (finding.symptom, finding.cause) == ("D.2.4", "shape-differs")


def test_swapped_all_reduces_are_a_hint():
    report = diagnose(
        snapshot(rank(0, all_reduce(2), all_reduce(3)), rank(1, all_reduce(3), all_reduce(2)))
    )
    assert report.ok
    assert report.findings == []
    [hint] = report.hints
    assert (hint.confidence, hint.cause, hint.ranks) == ("possible", "swapped-collectives", [0, 1])


def test_swap_in_two_branches_is_told_by_the_text_of_the_lines():
    lines = ["dist.all_reduce(a)", "dist.all_reduce(b)"]
    a, b = ((lambda n, t=t: replace(at(n), code=t)) for t in lines)
    scene = snapshot(
        rank(0, all_reduce(where=a(2)), all_reduce(where=b(3))),
        rank(1, all_reduce(where=b(5)), all_reduce(where=a(6))),
    )
    assert [hint.cause for hint in diagnose(scene).hints] == ["swapped-collectives"]


def test_two_groups_in_opposite_order():
    source = (
        "if rank == 0:\n    dist.all_reduce(x, group=a); dist.all_reduce(x, group=b)\n"
        "else:\n    dist.all_reduce(x, group=b); dist.all_reduce(x, group=a)\n"
    )
    finding = only(
        diagnose(
            snapshot(
                rank(0, all_reduce(2, group="1"), blocked=True),
                rank(1, all_reduce(4, group="2"), blocked=True),
                source=source,
                outcome="hung",
                groups={"0": (0, 1), "1": (0, 1), "2": (0, 1)},
            )
        )
    )
    assert (finding.kind, finding.values) == ("wait-cycle", {"blocked_s": 2.1})
    sides = [fact for fact in finding.facts if fact.kind == "waits-for"]
    told = [(side.ranks, side.values["group"], side.values["awaited"]) for side in sides]
    assert told == [((0,), "1", (1,)), ((1,), "2", (0,))]
    assert (finding.symptom, finding.cause) == ("D.2.1", "groups-in-opposite-order")
    assert (finding.ranks, finding.waiting) == ([0, 1], [])


def test_recv_without_send():
    finding = only(
        diagnose(snapshot(rank(0, call("recv", peer=1), blocked=True), rank(1), outcome="hung"))
    )
    assert (finding.kind, finding.values["partner"]) == ("never-sent", 0)
    assert (finding.symptom, finding.cause) == ("D.2.1", "message-without-partner")
    assert (finding.ranks, finding.waiting) == ([1], [0])


def test_send_6_recv_4_aborts_the_receiver():
    finding = only(
        diagnose(
            snapshot(
                rank(0, call("send", peer=1, shapes=((6,),))),
                rank(1, call("recv", 4, peer=0, status="pending"), state="died", exit_signal=6),
                outcome="failed",
            )
        )
    )
    assert finding.title == (
        "rank 0 sends 6 × float32 (24 bytes), but rank 1 receives 4 × float32 (16 bytes)"
    )
    assert (finding.symptom, finding.cause) == ("D.1.1", "message-size-differs")
    assert finding.ranks == [0, 1]


def test_barrier_missing():
    finding = only(
        diagnose(snapshot(rank(0, call("barrier"), blocked=True), rank(1), outcome="hung"))
    )
    assert (finding.kind, finding.values["op"]) == ("never-entered", "barrier")
    assert (finding.ranks, finding.waiting) == ([1], [0])


def test_five_against_three_iterations():
    source = "for batch in loader:\n    dist.all_reduce(batch)\n"
    finding = only(
        diagnose(
            snapshot(
                rank(0, *[all_reduce()] * 4, blocked=True),
                rank(1, *[all_reduce()] * 3),
                source=source,
                outcome="hung",
            )
        )
    )
    assert (finding.symptom, finding.cause) == ("D.2.1", "uneven-iterations")
    assert finding.title.startswith("rank 1 never entered all_reduce #4 (4 × float32)")
    assert any("all_reduce 4 times, rank 1 3 times" in line for line in finding.evidence)


def test_non_member_calls_a_group():
    foreign = all_reduce(group="", sequence=-1)
    report = diagnose(
        snapshot(
            rank(0, all_reduce(group="1")),
            rank(1, all_reduce(group="1")),
            rank(2, foreign),
            groups={"1": (0, 1)},
        )
    )
    finding = only(report)
    assert (finding.symptom, finding.cause, finding.ranks) == ("D.2.4", "caller-not-in-group", [2])


def test_monitored_barrier_names_both():
    finding = only(
        diagnose(
            snapshot(
                rank(0, call("monitored_barrier"), blocked=True), rank(1), rank(2), outcome="hung"
            )
        )
    )
    assert (finding.ranks, finding.waiting) == ([1, 2], [0])


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
    assert [f.title for f in diagnose(turned).findings] == [f.title for f in report.findings]


def test_a_call_of_a_library_is_named_as_such():
    own = {"source": "flight recorder", "caller": "DistributedDataParallel", "reduce_op": None}
    both = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(**own, shapes=((6,),))))
    assert "differ in all_reduce #1 of DDP: 4 on rank 0" in only(diagnose(both)).title
    one = snapshot(rank(0, all_reduce(**own)), rank(1, all_reduce(shapes=((6,),))))
    assert "differ in all_reduce #1: 4 on rank 0" in only(diagnose(one)).title
    meet = snapshot(
        rank(0, all_reduce(**own), blocked=True),
        rank(1, call("broadcast", 4), blocked=True),
        outcome="hung",
    )
    assert "rank 0 entered all_reduce #1 (4 × float32) of DDP" in only(diagnose(meet)).title
