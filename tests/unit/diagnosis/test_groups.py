"""A rank that left out a ``new_group``, and several culprits of one hang."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.wording import is_reason
from ddt_notebook.model import RankReport
from ddt_notebook.model.waits import cannot_complete, waits

from .builders import all_reduce, call, fact, only, rank, snapshot

SOURCE = """\
if rank != 2:
    pair = dist.new_group([0, 1])
everyone = dist.new_group([0, 1, 2])
dist.all_reduce(torch.ones(1), group=everyone)
"""


def new_group(line: int, **fields: object):
    return call("new_group", line, **fields)


def test_a_rank_that_left_out_a_new_group_is_named() -> None:
    report = diagnose(
        snapshot(
            rank(0, new_group(2), new_group(3), blocked=True),
            rank(1, new_group(2), new_group(3), blocked=True),
            rank(2, new_group(3), all_reduce(4, group="1"), blocked=True),
            source=SOURCE,
            outcome="hung",
        )
    )
    finding = only(report)
    assert (finding.symptom, finding.cause) == ("B.2", "new-group-on-some-ranks")
    assert (finding.ranks, finding.waiting) == ([2], [0, 1])
    assert (finding.kind, finding.values["sequence"]) == ("new-group-skipped", 1)
    assert finding.values["callers"] == (0, 1)
    kept = fact(finding, "keeps-from-line")
    assert (kept.ranks, kept.place.code) == ((2,), "if rank != 2:")


@pytest.mark.parametrize("group", ["1", "0"])
def test_a_condition_names_all_ranks_that_it_keeps_out(group: str) -> None:
    """They may wait on the default group, such as in the constructor of DDP."""
    report = diagnose(
        snapshot(
            rank(0, new_group(2), new_group(3), blocked=True),
            rank(1, new_group(3), all_reduce(4, group=group), blocked=True),
            rank(2, new_group(3), all_reduce(4, group=group), blocked=True),
            source=SOURCE.replace("rank != 2", "rank == 0"),
            outcome="hung",
        )
    )
    finding = only(report)
    assert finding.ranks == [1, 2]
    kept = fact(finding, "keeps-from-line")
    assert (kept.ranks, kept.place.code) == ((1, 2), "if rank == 0:")


HELPER = """\
def form(ranks):
    return dist.new_group(ranks)

if rank < 2:
    pair = form([0, 1])
everyone = form([0, 1, 2])
dist.barrier()
"""


def test_a_helper_forms_each_group_at_the_same_line() -> None:
    pair, every = new_group(2, new_members=(0, 1)), new_group(2, new_members=(0, 1, 2))
    report = diagnose(
        snapshot(
            rank(0, pair, every, blocked=True),
            rank(1, pair, every, blocked=True),
            rank(2, every, blocked=True),
            source=HELPER,
            outcome="hung",
        )
    )
    finding = only(report)
    assert (finding.kind, finding.ranks) == ("new-group-skipped", [2])
    members = fact(finding, "group-has-members")
    assert (members.ranks, members.values["members"]) == ((0, 1), (0, 1))


MEMBER_ELSEWHERE = """\
if rank != 1:
    pair = dist.new_group([0, 1])
dist.barrier()
"""


def test_a_member_that_went_past_a_new_group_is_named() -> None:
    pair = new_group(2, new_members=(0, 1))
    report = diagnose(
        snapshot(
            rank(0, pair, blocked=True),
            rank(1, call("barrier", 3), blocked=True),
            source=MEMBER_ELSEWHERE,
            outcome="hung",
        )
    )
    finding = only(report)
    assert (finding.kind, finding.ranks, finding.waiting) == ("new-group-skipped", [1], [0])
    assert fact(finding, "keeps-from-line").place.code == "if rank != 1:"
    assert fact(finding, "came-without-it").place.code == "dist.barrier()"


def test_a_member_that_would_call_new_group_later_waits_in_a_cycle() -> None:
    first = "if rank:\n    dist.barrier()\npair = dist.new_group([0, 1])\n"
    source = f"{first}if not rank:\n    dist.barrier()"
    report = diagnose(
        snapshot(
            rank(0, new_group(3, new_members=(0, 1)), blocked=True),
            rank(1, call("barrier", 2), blocked=True),
            source=source,
            outcome="hung",
        )
    )
    assert only(report).kind != "new-group-skipped"


def test_ranks_that_pass_different_members_to_new_group_are_named() -> None:
    report = diagnose(
        snapshot(
            rank(0, new_group(1, new_members=(0, 1)), blocked=True),
            rank(1, new_group(1, new_members=(1,)), call("barrier", 2), blocked=True),
            source="pair = dist.new_group(list(range(rank, 2)))\ndist.barrier()",
            outcome="hung",
        )
    )
    assert report.findings[0].kind == "group-members-differ"


def test_a_new_group_does_not_wait_for_ranks_outside() -> None:
    forming = rank(0, new_group(1, new_members=(0, 1)), blocked=True)
    late = rank(1, state="running")
    outside = rank(2, state="finished")
    seen = snapshot(forming, late, outside, outcome="hung")
    wait = waits(seen.ranks)[0]
    assert wait.missing == {1}
    assert not cannot_complete({0: wait}, seen.ranks)


def test_branches_may_make_a_group_at_two_lines() -> None:
    source = "if rank:\n    a = dist.new_group([0, 1])\nelse:\n    a = dist.new_group([0, 1])"
    report = diagnose(
        snapshot(
            rank(0, new_group(4), all_reduce(5, group="1"), blocked=True),
            rank(1, new_group(2)),
            source=source,
            outcome="hung",
        )
    )
    assert [finding.cause for finding in report.findings] != ["new-group-on-some-ranks"]


def test_each_culprit_has_its_reason() -> None:
    source = (
        "for step in range(3):\n"
        "    if rank == 1:\n"
        "        break\n"
        "    if rank > 1:\n"
        "        break\n"
        "    dist.all_reduce(x)\n"
    )
    report = diagnose(
        snapshot(
            rank(0, all_reduce(6), blocked=True), rank(1), rank(2), rank(3),
            source=source, outcome="hung",
        )
    )  # fmt: skip
    finding = only(report)
    assert finding.ranks == [1, 2, 3]
    assert (finding.places[1].code, finding.places[3].code) == ("if rank == 1:", "if rank > 1:")
    reasons = [fact for fact in finding.facts if is_reason(fact)]
    assert [(reason.ranks, reason.place.line) for reason in reasons] == [((1,), 2), ((2, 3), 4)]


def test_a_list_of_a_fixed_length_is_not_an_uneven_loop() -> None:
    source = (
        "batches = [torch.ones(2) for _ in range(5)]\n"
        "for batch in batches:\n"
        "    if not batch.isfinite().all():\n"
        "        continue\n"
        "    dist.all_reduce(batch)\n"
    )
    calls = [all_reduce(5) for _ in range(5)]
    ranks = (rank(0, *calls, blocked=True), rank(1, *calls[:4]))
    finding = only(diagnose(snapshot(*ranks, source=source, outcome="hung")))
    assert finding.cause == "collective-under-local-condition"
    grown = source.replace("for batch", "batches.append(batches[0])\nfor batch")
    finding = only(diagnose(snapshot(*ranks, source=grown, outcome="hung")))
    assert finding.cause != "collective-under-rank-condition"


def test_a_flag_that_depends_on_the_rank_is_the_cause() -> None:
    source = (
        "def evaluate(value, sync):\n"
        "    if sync:\n"
        "        dist.all_reduce(value)\n"
        "evaluate(x, sync=dist.get_rank() == 0)\n"
    )
    ranks = (rank(0, all_reduce(3), blocked=True), rank(1))
    finding = only(diagnose(snapshot(*ranks, source=source, outcome="hung")))
    assert finding.cause == "collective-under-rank-condition"
    finding = only(
        diagnose(
            snapshot(*ranks, source=f"{source}evaluate(x, sync=ready)\n", outcome="hung"),
        )
    )
    assert finding.cause == "collective-under-local-condition"


def test_a_backward_pass_that_did_not_reach_all_parameters() -> None:
    loop = "for step in range(2):\n    model(x, full=step < 1 or rank == 0).sum().backward()\n"
    gradients = all_reduce(
        2, source="flight recorder", caller="DistributedDataParallel", reduce_op=None
    )
    ranks = (rank(0, gradients, gradients, blocked=True), rank(1, gradients))
    finding = only(diagnose(snapshot(*ranks, source=loop, outcome="hung")))
    assert finding.cause == "unused-parameter-in-last-step"
    uneven = loop.replace("range(2)", "loader")
    finding = only(diagnose(snapshot(*ranks, source=uneven, outcome="hung")))
    assert finding.cause == "uneven-iterations"


def test_an_exception_that_is_raised_under_a_condition_and_caught() -> None:
    source = (
        "for step in range(4):\n"
        "    try:\n"
        "        if rank == 1 and step == 2:\n"
        "            raise ValueError('bad batch')\n"
        "        dist.all_reduce(x)\n"
        "    except ValueError as error:\n"
        "        print(error)\n"
    )
    calls = [all_reduce(5) for _ in range(4)]
    ranks = (rank(0, *calls, blocked=True), rank(1, *calls[:3]))
    finding = only(diagnose(snapshot(*ranks, source=source, outcome="hung")))
    assert finding.cause == "exception-swallowed"
    assert finding.places[1].line == 6
    raised_on = source.replace("        print(error)\n", "        raise\n")
    finding = only(diagnose(snapshot(*ranks, source=raised_on, outcome="hung")))
    assert finding.cause == "early-exit-on-rank-condition"


def _two_pairs(members: dict[int, tuple[int, int]], outcome: str, names: dict[int, str]):
    made = new_group(2, members=(0, 1, 2, 3))
    return diagnose(
        snapshot(
            *(
                rank(
                    number,
                    made,
                    all_reduce(4, group=names[number], members=pair),
                    blocked=outcome == "hung",
                )
                for number, pair in members.items()
            ),
            source=SOURCE,
            outcome=outcome,
        )
    )


PAIRS = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}


@pytest.mark.parametrize(("outcome", "symptom"), [("hung", "B.2"), ("ok", "B.1")])
def test_each_rank_makes_the_group_of_its_own_members_only(outcome: str, symptom: str) -> None:
    report = _two_pairs(PAIRS, outcome, dict.fromkeys(PAIRS, "1"))
    finding = report.findings[0]
    assert (finding.symptom, finding.cause) == (symptom, "new-group-on-some-ranks")
    assert (finding.kind, finding.ranks) == ("group-members-differ", [0, 1, 2, 3])
    assert finding.places[0].line == 2
    assert [f.values["members"] for f in finding.facts if f.kind == "group-has-members"] == [
        (0, 1),
        (2, 3),
    ]


def test_groups_may_have_names_of_the_user() -> None:
    names = {0: "1", 1: "1", 2: "2", 3: "2"}
    assert _two_pairs(PAIRS, "ok", names).ok


def test_groups_that_were_formed_again_have_the_names_of_the_earlier_ones() -> None:
    ended = call("destroy_process_group", 5, kind="setup")
    ranks = [
        rank(number, *([] if number < 2 else [ended]), all_reduce(4, group="1", members=pair))
        for number, pair in PAIRS.items()
    ]
    assert diagnose(snapshot(*ranks, source=SOURCE)).ok


def test_ranks_of_many_groups_are_each_looked_at_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not once for each group, as it would take seconds for 4,096 ranks in 512 groups."""
    reports = [
        rank(at, all_reduce(4, group=str(at // 2), members=(at & ~1, at | 1)), blocked=True)
        for at in range(128)
    ]
    looks = 0
    seen = RankReport.blocked_call.fget
    assert seen is not None

    def counted(report: RankReport):
        nonlocal looks
        looks += 1
        return seen(report)

    monkeypatch.setattr(RankReport, "blocked_call", property(counted))
    assert len(waits(reports)) == 128
    assert looks <= 4 * 128
