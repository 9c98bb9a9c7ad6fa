"""Correct programs give no finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Position, Snapshot
from ddt_notebook.model.torch_features import LIBRARY_COLLECTIVES, LOADERS, MissingFeature

from .builders import all_reduce, at, call, rank, snapshot


def _two(*calls, **fields):
    return snapshot(rank(0, *calls), rank(1, *calls), **fields)


def _from_two_lines():
    """Root and receivers call from different lines, in a loop."""
    root = [call("broadcast", 2, root=0), call("broadcast", 3, root=0)] * 3
    others = [call("broadcast", 5, root=0), call("broadcast", 6, root=0)] * 3
    return snapshot(rank(0, *root), rank(1, *others), rank(2, *others))


def _join_shadows():
    """The exhausted rank takes part from torch's own file."""
    torch_file = Position(file="/venv/torch/nn/parallel/distributed.py", line=1900)
    own = all_reduce(4, caller="DistributedDataParallel", source="flight recorder", reduce_op=None)
    shadow = replace(own, where=torch_file)
    return snapshot(rank(0, own, own, own), rank(1, own, shadow, shadow))


def _ring():
    ranks = [
        rank(
            r,
            call("isend", 2, peer=(r + 1) % 3, asynchronous=True),
            call("recv", 3, peer=(r - 1) % 3),
        )
        for r in range(3)
    ]
    return snapshot(*ranks)


def _batched_from_anyone():
    return snapshot(
        rank(0, call("recv", 2, peer=None), call("recv", 2, peer=None)),
        rank(1, call("send", 4, peer=0)),
        rank(2, call("send", 4, peer=0)),
    )


def _subgroups():
    return snapshot(
        rank(0, all_reduce(group="1"), call("barrier", 5)),
        rank(1, all_reduce(group="1"), call("barrier", 5)),
        rank(2, all_reduce(group="2", shapes=((9,),)), call("barrier", 5)),
        rank(3, all_reduce(group="2", shapes=((9,),)), call("barrier", 5)),
        groups={"1": (0, 1), "2": (2, 3)},
    )


def _caught_on_one_rank():
    return snapshot(rank(0, all_reduce(), all_reduce()), rank(1, all_reduce(status="failed"),
                                                               all_reduce()))  # fmt: skip


def _caught_before_it_was_issued():
    """Rank 1 caught a bad call: its log counted the call, the other ranks never saw it."""
    bad = call("all_gather", 2, status="failed")
    return snapshot(rank(0, all_reduce(5)), rank(1, bad, all_reduce(5)))


def _dropped():
    late = [all_reduce(sequence=n) for n in range(900, 905)]
    whole = [all_reduce(sequence=n) for n in range(1, 905)]
    return snapshot(rank(0, *late, calls_dropped=899), rank(1, *whole))


def _uneven_by_nature():
    split = [call("all_to_all_single", 3, shapes=((n,),)) for n in (3, 5)]
    scatter = [
        call("scatter", 4, root=0, source="flight recorder"),
        call("scatter", 4, root=0, source="flight recorder", shapes=((4,), (4,))),
    ]
    return snapshot(rank(0, split[0], scatter[0]), rank(1, split[1], scatter[1]))


HEALTHY = {
    "nothing": snapshot(rank(0), rank(1)),
    "one rank": snapshot(rank(0, all_reduce())),
    "async": _two(all_reduce(asynchronous=True)),
    "issued and never waited for": _two(all_reduce(asynchronous=True, status="issued")),
    "two lines": _from_two_lines(),
    "join": _join_shadows(),
    "ring": _ring(),
    "from anyone": _batched_from_anyone(),
    "subgroups": _subgroups(),
    "objects": _two(call("all_gather_object", shapes=(), dtypes=())),
    "caught everywhere": _two(all_reduce(status="failed"), all_reduce()),
    "caught on one rank": _caught_on_one_rank(),
    "caught before it was issued": _caught_before_it_was_issued(),
    "some ranks, no collective": snapshot(rank(0), rank(1, state="idle")),
    "some ranks, their own group": snapshot(
        rank(0, all_reduce(group="1")),
        rank(1, all_reduce(group="1")),
        rank(2, state="idle"),
        groups={"1": (0, 1)},
    ),
    "slow": _two(all_reduce(), duration_s=9.0),
    "dropped": _dropped(),
    "uneven by nature": _uneven_by_nature(),
    "new group": _two(call("new_group", 2), call("new_group", 3)),
}


@pytest.mark.parametrize("scene", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_program_gives_no_finding(scene: Snapshot):
    report = diagnose(scene)
    assert report.findings == []
    assert report.hints == []
    assert report.ok


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_a_share_of_another_size_is_a_finding(op: str):
    other = snapshot(rank(0, call(op, root=0)), rank(1, call(op, root=0, shapes=((5,),))))
    (finding,) = diagnose(other).findings
    assert finding.cause == "shape-differs"


def test_a_healthy_report_says_in_one_line_what_was_checked():
    scene = _two(*[all_reduce()] * 12)
    assert diagnose(scene).checked == "2 ranks, 12 collectives on 1 group agree"
    assert diagnose(_two(all_reduce())).checked == "2 ranks, 1 collective on 1 group agrees"
    assert diagnose(snapshot(rank(0))).checked == "1 rank, no collectives"
    assert diagnose(_ring()).checked == "3 ranks, no collectives, 3 messages agree"
    missing = MissingFeature(feature=LIBRARY_COLLECTIVES.id)
    assert (
        LIBRARY_COLLECTIVES.lost
        in diagnose(_two(all_reduce(), missing_features=(missing,))).checked
    )


def test_a_report_with_findings_says_what_was_not_observed():
    missing = tuple(MissingFeature(feature=f.id) for f in (LIBRARY_COLLECTIVES, LOADERS))
    scene = snapshot(rank(0, all_reduce(2), blocked=True), rank(1), outcome="hung")
    assert "not-seen" not in {fact.kind for fact in diagnose(scene).findings[0].facts}
    (finding,) = diagnose(replace(scene, missing_features=missing)).findings
    not_seen = [fact.values["feature"] for fact in finding.facts if fact.kind == "not-seen"]
    assert not_seen == [LIBRARY_COLLECTIVES.id], "loaders have nothing to do with a hang"
    assert LIBRARY_COLLECTIVES.lost in finding.evidence[-1]


@pytest.mark.parametrize("still", ["running", "silent"])
def test_an_interrupted_wait_for_a_rank_that_could_still_come(still: str):
    scene = snapshot(
        rank(0, all_reduce(2), blocked=True, blocked_s=1.9),
        rank(1, state=still, position=at(7)),
        outcome="interrupted",
    )
    report = diagnose(scene)
    assert report.findings == []
    assert not report.ok
    assert report.checked.endswith(
        "interrupted: rank 0 at cell[3] line 2; rank 1 at cell[3] line 7"
    )


@pytest.mark.parametrize(("still", "kind"), [("running", "late"), ("silent", "silent")])
def test_a_long_wait_for_a_rank_at_work_that_was_interrupted_is_likely_a_hang(
    still: str, kind: str
) -> None:
    scene = snapshot(
        rank(0, all_reduce(2), blocked=True, blocked_s=4.2),
        rank(1, state=still, position=at(7)),
        outcome="interrupted",
    )
    (finding,) = diagnose(scene).findings
    assert (finding.kind, finding.confidence) == (kind, "likely")
    assert (finding.ranks, finding.waiting, finding.places[1].line) == ([1], [0], 7)
    assert finding.values["limit_s"] == 4.2


@pytest.mark.parametrize(("blocked_s", "found"), [(2.5, []), (30.0, ["transfer-stalled"])])
def test_a_transfer_that_was_interrupted_is_reported_if_it_took_very_long(
    blocked_s: float, found: list[str]
) -> None:
    inside = [rank(n, all_reduce(2), blocked=True, blocked_s=blocked_s) for n in (0, 1)]
    report = diagnose(snapshot(*inside, outcome="interrupted"))
    assert [finding.kind for finding in report.findings] == found
    assert all(finding.confidence == "likely" for finding in report.findings)


def test_an_interrupted_wait_that_could_not_end_is_a_hang():
    scene = snapshot(rank(0, all_reduce(), blocked=True), rank(1), outcome="interrupted")
    assert diagnose(scene).findings[0].ranks == [1]


def test_report_survives_json():
    scene = _two(all_reduce())
    assert diagnose(Snapshot.from_json(scene.to_json())) == diagnose(scene)


def test_a_group_made_by_some_ranks_is_a_hint():
    report = diagnose(snapshot(rank(0, call("new_group")), rank(1)))
    assert report.findings == []
    assert [hint.ranks for hint in report.hints] == [[1]]
