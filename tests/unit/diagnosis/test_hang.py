"""Ranks that never entered a collective, and the reasons that the source shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Cell, Finding, RankError, RankReport
from ddt_notebook.model.rank import Activity
from ddt_notebook.model.training import OptimizerTraining, RankTraining
from ddt_notebook.views import words

from .builders import (
    GLOO_TIMEOUT,
    all_reduce,
    at,
    call,
    fact,
    only,
    peer_error,
    raised,
    rank,
    snapshot,
)


def hang(source: str, waiter: RankReport, absent: RankReport, **fields) -> Finding:
    return only(diagnose(snapshot(waiter, absent, source=source, outcome="hung", **fields)))


def blocked_at(line: int, **fields) -> RankReport:
    return rank(0, all_reduce(line, **fields), blocked=True)


RANK_CONDITIONS = [
    "if rank == 0:\n    dist.all_reduce(x)\n",
    "if not rank:\n    dist.all_reduce(x)\n",
    "if dist.get_rank() == 0:\n    dist.all_reduce(x)\n",
    "if rank % 2 == 0 and step > 3:\n    dist.all_reduce(x)\n",
    "if rank in (0, 2):\n    dist.all_reduce(x)\n",
    "if int(os.environ['RANK']) == 0:\n    dist.all_reduce(x)\n",
]


@pytest.mark.parametrize("source", RANK_CONDITIONS)
def test_a_condition_on_the_rank_is_the_cause(source: str):
    finding = hang(source, blocked_at(2), rank(1))
    assert finding.cause == "collective-under-rank-condition"
    assert (finding.ranks, finding.waiting) == ([1], [0])


def test_a_condition_on_a_name_that_derives_from_the_rank_is_the_cause():
    source = "is_main = rank == 0\nif is_main:\n    dist.all_reduce(x)\n"
    assert hang(source, blocked_at(3), rank(1)).cause == "collective-under-rank-condition"


def test_a_condition_that_lets_the_absent_rank_in_is_not_the_cause():
    source = "if rank < 2:\n    dist.all_reduce(x)\n"
    assert hang(source, blocked_at(2), rank(1)).cause == "rank-skips-collective"


def test_an_else_branch_of_a_condition_on_the_rank_is_the_cause():
    source = "if rank == 1:\n    pass\nelse:\n    dist.all_reduce(x)\n"
    assert hang(source, blocked_at(4), rank(1)).cause == "collective-under-rank-condition"


def test_a_condition_in_a_function_of_an_earlier_cell_is_found():
    earlier = Cell(number=2, source="def step(x):\n    if rank == 0:\n        dist.all_reduce(x)\n")
    waiter = rank(0, call("all_reduce", None, where=at(3, cell=2, function="step")), blocked=True)
    finding = hang("step(x)\n", waiter, rank(1), earlier_cells=(earlier,))
    assert finding.cause == "collective-under-rank-condition"
    assert finding.where[0] == "cell[2] line 3: dist.all_reduce(x)"


@pytest.mark.parametrize("runs_former", [False, True])
def test_a_corrected_cell_replaces_the_functions_of_the_former_one(runs_former: bool):
    """Unless a rank was seen to run the former one, as an object that was made before does."""
    former = "def ends(steps):\n    sync()\n    return time.time() > limit\n"
    source = "def ends(steps):\n    return steps > limit\nwhile True:\n    dist.all_reduce(x)\n"
    source += "    if ends(steps):\n        break\n"
    ran = (call("barrier", None, where=at(2, cell=2, function="ends")),) if runs_former else ()
    waiter = rank(0, *ran, all_reduce(4), blocked=True)
    earlier = (Cell(number=2, source=former),)
    finding = hang(source, waiter, rank(1, *ran), earlier_cells=earlier)
    assert (finding.cause == "loop-ends-by-clock") is runs_former


def test_a_condition_around_the_call_of_a_function_is_found():
    earlier = Cell(number=2, source="def step(x):\n    dist.all_reduce(x)\n")
    waiter = rank(0, call("all_reduce", None, where=at(2, cell=2, function="step")), blocked=True)
    source = "if rank == 0:\n    step(x)\n"
    finding = hang(source, waiter, rank(1), earlier_cells=(earlier,))
    assert finding.cause == "collective-under-rank-condition"


def test_the_stack_shows_which_call_of_a_function_waits():
    source = "def step():\n    dist.all_reduce(x)\n"
    source += "if rank == 0:\n    print()\nelse:\n    step()\nstep()\n"
    stack = (at(7), at(2, function="step"))
    waiter = rank(0, all_reduce(2), blocked=True, stack=stack)
    assert hang(source, waiter, rank(1)).cause == "rank-skips-collective"


def test_magics_and_cell_magic_lines_are_understood():
    source = "%matplotlib inline\nif rank == 0:\n    !ls\n    dist.all_reduce(x)\n"
    scene = snapshot(
        blocked_at(5), rank(1), outcome="hung", cell=Cell(number=3, source=source, first_line=2)
    )
    assert only(diagnose(scene)).cause == "collective-under-rank-condition"


CLOCKS = [
    "t = time.time()\nwhile time.time() - t < 5:\n    dist.all_reduce(x)\n",
    "t = time.monotonic()\nwhile True:\n    dist.all_reduce(x)\n    if monotonic() > t: break\n",
    "t = now()\nfor b in y:\n    all_reduce(x)\n    d = perf_counter() - t\n    if d > 5: break",
]


@pytest.mark.parametrize("source", CLOCKS)
def test_a_loop_that_ends_by_the_clock_is_the_cause(source: str):
    finding = hang(
        source, rank(0, *[all_reduce(3)] * 4, blocked=True), rank(1, *[all_reduce(3)] * 3)
    )
    assert finding.cause == "loop-ends-by-clock"
    assert (finding.kind, finding.values["sequence"]) == ("never-entered", 4)
    assert "stop flag" in finding.fixes[0].advice


def test_an_uneven_loop_that_ends_in_another_collective():
    source = "for b in loader:\n    dist.all_reduce(b)\ndist.barrier()\n"
    finding = hang(
        source,
        rank(0, *[all_reduce(2)] * 3, blocked=True),
        rank(1, *[all_reduce(2)] * 2, call("barrier", 3), blocked=True),
    )
    assert (finding.symptom, finding.cause) == ("D.2.1", "uneven-iterations")


def test_fewer_batches_of_ddp_on_one_rank():
    own = all_reduce(2, source="flight recorder", caller="DistributedDataParallel", reduce_op=None)
    finding = hang("for b in loader:\n    model(b).sum().backward()\n",
                   rank(0, *[own] * 3, blocked=True), rank(1, *[own] * 2))  # fmt: skip
    assert finding.cause == "uneven-iterations"
    assert "DistributedSampler" in finding.fixes[0].advice
    assert fact(finding, "blocked-in").values["issued_by"] == own.caller
    assert finding.kind == "never-entered"
    assert (finding.values["sequence"], finding.values["issued_by"]) == (3, own.caller)


@pytest.mark.parametrize(("op", "buffers"), [("all_reduce", False), ("broadcast", True)])
def test_a_model_of_ddp_that_one_rank_alone_calls(op: str, buffers: bool):
    own = call(op, 2, source="flight recorder", caller="DistributedDataParallel")
    finding = hang("if rank == 0:\n    model(x)\n", rank(0, own, blocked=True), rank(1))
    assert finding.cause == "collective-under-rank-condition"
    assert finding.fixes[0].advice.startswith("to evaluate on one rank, call `model.module(x)`")
    assert ("BatchNorm" in finding.fixes[0].advice) == buffers


def test_the_library_that_made_a_call_is_named_beside_the_users_line():
    own = call("all_gather", 2, called_from="accelerate/utils/operations.py")
    source = "if rank == 0:\n    accelerator.gather(x)\n"
    finding = hang(source, rank(0, own, blocked=True), rank(1))
    assert finding.cause == "collective-under-rank-condition"
    assert finding.values["called_from"] == own.called_from
    assert own.called_from in finding.title
    assert finding.places[0].is_same_line(at(2))


def test_a_hang_in_ddp_without_source():
    own = call("all_reduce", None, source="flight recorder", caller="DistributedDataParallel")
    assert hang("", rank(0, own, own, blocked=True), rank(1, own)).cause == "uneven-iterations"


@pytest.mark.parametrize("leave", ["continue", "break"])
def test_a_rank_that_leaves_a_loop_early(leave: str):
    source = f"for i in y:\n    if rank == 1 and i == 2:\n        {leave}\n    dist.all_reduce(x)\n"
    finding = hang(
        source, rank(0, *[all_reduce(4)] * 3, blocked=True), rank(1, *[all_reduce(4)] * 2)
    )
    assert finding.cause == "early-exit-on-rank-condition"


def test_a_rank_that_returns_early():
    source = "def f():\n    if rank != 0:\n        return\n    dist.all_reduce(x)\nf()\n"
    assert hang(source, blocked_at(4), rank(1)).cause == "early-exit-on-rank-condition"


def test_a_condition_on_data_is_the_cause():
    source = "if loss.item() > 2:\n    dist.all_reduce(loss)\n"
    assert hang(source, blocked_at(2), rank(1)).cause == "collective-under-local-condition"


def test_a_counter_is_the_same_on_every_rank():
    source = "for i in range(len(x)):\n    if i % 2 == 0:\n        dist.all_reduce(x)\n"
    finding = hang(source, rank(0, *[all_reduce(3)] * 2, blocked=True), rank(1, all_reduce(3)))
    assert finding.cause == "uneven-iterations"


def test_a_swallowed_exception_is_the_cause():
    source = "try:\n    check(x)\n    dist.all_reduce(x)\nexcept ValueError:\n    print('bad')\n"
    finding = hang(source, blocked_at(3), rank(1))
    assert finding.cause == "exception-swallowed"


def test_a_swallowed_exception_in_a_loop_of_fixed_length():
    source = (
        "for i in range(4):\n    try:\n        check(i)\n        dist.all_reduce(x)\n"
        "    except ValueError:\n        pass\n"
    )
    finding = hang(
        source, rank(0, *[all_reduce(4)] * 4, blocked=True), rank(1, *[all_reduce(4)] * 3)
    )
    assert finding.cause == "exception-swallowed"


def test_a_rank_that_skips_one_call_and_hangs_in_a_later_one():
    source = "if rank == 0:\n    dist.all_reduce(a)\ndist.all_reduce(b)\n"
    finding = hang(
        source, rank(0, all_reduce(2), all_reduce(3), blocked=True), rank(1, all_reduce(3))
    )
    assert finding.cause == "collective-under-rank-condition"
    kept = fact(finding, "keeps-from-line")
    assert (kept.ranks, kept.place.line, kept.values["call_line"]) == ((1,), 1, 2)


def test_two_branches_with_the_same_collective_are_not_the_cause():
    source = (
        "if rank == 0:\n    dist.broadcast(a, 0)\nif rank != 0:\n    dist.broadcast(b, 0)\n"
        "dist.all_reduce(c)\n"
    )
    finding = hang(source, rank(0, call("broadcast", 2), all_reduce(5), blocked=True),
                   rank(1, call("broadcast", 4)))  # fmt: skip
    assert finding.cause == "rank-skips-collective"


def test_a_cell_that_ran_on_some_ranks():
    finding = hang(
        "dist.barrier()\n", rank(0, call("barrier", 1), blocked=True), rank(1, state="idle")
    )
    assert finding.cause == "cell-ran-on-some-ranks"
    assert (finding.kind, finding.values["op"]) == ("not-asked", "barrier")
    assert (finding.ranks, finding.waiting) == ([1], [0])


def test_calls_of_one_line_on_different_groups():
    finding = only(
        diagnose(
            snapshot(
                rank(0, all_reduce(2), blocked=True),
                rank(1, all_reduce(2, group="1")),
                outcome="hung",
                groups={"0": (0, 1), "1": (1,)},
            )
        )
    )
    assert finding.cause == "different-groups"


def test_a_rank_that_still_runs_at_the_time_limit():
    source = "if rank == 1:\n    time.sleep(60)\ndist.all_reduce(x)\n"
    finding = hang(source, rank(0, all_reduce(3), blocked=True, blocked_s=10.0),
                   rank(1, state="running", position=at(2)))  # fmt: skip
    assert finding.cause == "rank-too-slow"
    assert (finding.kind, finding.values["limit_s"]) == ("late", 10.0)
    assert (finding.places[1].line, finding.places[1].role) == (2, "runs")


@pytest.mark.parametrize(
    ("line", "cause"), [(5, "rank-too-slow"), (7, "uneven-iterations")], ids=["loop", "after it"]
)
def test_a_rank_that_still_waits_for_its_next_batch(line: int, cause: str) -> None:
    """Its loop has not ended, though it made fewer rounds so far."""
    source = """class Prefetcher:
    def __iter__(self):
        while True:
            yield queue.get()
for x in Prefetcher():
    model(x).sum().backward()
queue.get()
"""
    ddp = all_reduce(6, caller="DistributedDataParallel")
    inside = (at(line), at(4, function="__iter__")) if line == 5 else (at(line),)
    finding = hang(
        source,
        rank(0, ddp, ddp, blocked=True, stack=(at(6),)),
        rank(1, ddp, state="running", position=inside[-1], stack=inside),
    )
    assert (finding.cause, finding.ranks) == (cause, [1])


@pytest.mark.parametrize(
    ("state", "cause"), [("stopped", "rank-suspended"), ("silent", "rank-silent")]
)
def test_a_rank_that_is_stopped_or_silent(state: str, cause: str):
    finding = hang("", blocked_at(3), rank(1, state=state, position=at(2)))
    assert (finding.cause, finding.ranks, finding.waiting) == (cause, [1], [0])


def test_a_silent_rank_without_a_known_line():
    finding = hang("", blocked_at(3), rank(1, state="silent"))
    assert (finding.kind, finding.ranks, finding.waiting) == ("silent", [1], [0])
    assert 1 not in finding.places


def test_a_running_rank_is_not_blamed_if_another_left():
    scene = snapshot(
        blocked_at(2), rank(1), rank(2, state="running", position=at(1)), outcome="hung"
    )
    assert only(diagnose(scene)).ranks == [1]


def test_a_chain_of_waits_over_two_groups_is_one_finding():
    scene = snapshot(
        rank(0, all_reduce(2, group="1"), blocked=True),
        rank(1, all_reduce(3, group="2"), blocked=True),
        rank(2),
        outcome="hung",
        groups={"1": (0, 1), "2": (1, 2)},
    )
    finding = only(diagnose(scene))
    assert (finding.ranks, finding.waiting) == ([2], [0, 1])
    in_turn = fact(finding, "waits-in-turn")
    assert (in_turn.ranks, in_turn.values) == ((0,), {"for_rank": 1})


def test_a_rank_that_never_enters_init_process_group():
    finding = only(
        diagnose(
            snapshot(
                rank(0, call("init_process_group", 1), blocked=True),
                rank(1),
                outcome="hung",
                has_group=False,
            )
        )
    )
    assert (finding.symptom, finding.stage) == ("B.2", "communication setup")
    assert finding.ranks == [1]


def test_two_ranks_that_both_receive_first():
    scene = snapshot(
        rank(0, call("recv", 2, peer=1), blocked=True),
        rank(1, call("recv", 4, peer=0), blocked=True),
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.cause, finding.ranks) == ("both-sides-wait", [0, 1])


def test_messages_whose_tags_differ():
    scene = snapshot(
        rank(0, call("send", 2, peer=1, tag=1), blocked=True),
        rank(1, call("recv", 4, peer=0, tag=2), blocked=True),
        outcome="hung",
    )
    assert only(diagnose(scene)).cause == "message-tags-differ"


IN_TURN = """\
if rank == 0:
    dist.all_reduce(x, group=a)
    dist.all_reduce(x, group=b)
else:
    dist.all_reduce(x, group=b)
    dist.all_reduce(x, group=a)
"""
ONCE = "if rank == 0:\n    all_reduce(x, a)\nelse:\n    all_reduce(x, b)\n"
LOOP = "for g in order:\n    dist.all_reduce(x, group=g)\n"
CROSSED = [
    ("dist.all_reduce(x, group=pick(rank))\n", (1, 1), "different-groups"),
    (ONCE, (2, 4), "different-groups"),
    (LOOP, (2, 2), "groups-in-opposite-order"),
    (IN_TURN, (2, 5), "groups-in-opposite-order"),
]


@pytest.mark.parametrize(("source", "lines", "cause"), CROSSED)
def test_two_groups_that_wait_for_each_other(source: str, lines: tuple[int, int], cause: str):
    scene = snapshot(
        rank(0, all_reduce(lines[0], group="1"), blocked=True),
        rank(1, all_reduce(lines[1], group="2"), blocked=True),
        source=source,
        outcome="hung",
        groups={"1": (0, 1), "2": (0, 1)},
    )
    assert only(diagnose(scene)).cause == cause


ROUNDS = """
for batch in batches:
    engine.backward(batch)
dist.barrier()
"""


def test_a_rank_that_left_a_loop_while_a_library_waits_on_its_own_group():
    """The library made its group of the same ranks, so the program chose no order of groups."""
    inside = [
        all_reduce(3, group="1", sequence=n, called_from="library/comm.py") for n in range(1, 4)
    ]
    scene = snapshot(
        rank(0, *inside[:2], call("barrier", 4), blocked=True),
        rank(1, *inside, blocked=True),
        source=ROUNDS,
        outcome="hung",
        groups={"1": (0, 1)},
    )
    finding = only(diagnose(scene))
    assert (finding.cause, finding.ranks) == ("uneven-iterations", [0])


def test_a_rank_that_raised_inside_a_collective_is_named():
    error = RankError(type="ValueError", message="ProcessGroupGloo::allgather: invalid", call=0)
    scene = snapshot(
        rank(0, call("all_gather"), blocked=True),
        raised(1, call("all_gather", status="failed"), error=error),
        outcome="failed",
    )
    finding = only(diagnose(scene))
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.1.1", [1], [0])


def test_a_hang_of_which_every_member_is_inside():
    scene = snapshot(
        rank(0, all_reduce(), blocked=True), rank(1, all_reduce(), blocked=True), outcome="hung"
    )
    finding = only(diagnose(scene))
    assert (finding.cause, finding.confidence) == ("transfer-stalled", "likely")


def test_a_hang_in_a_group_of_unknown_members_names_no_rank():
    scene = snapshot(
        rank(0, call("all_gather", group="3", source="flight recorder"), blocked=True),
        rank(1),
        outcome="hung",
        groups={"3": ()},
    )
    finding = only(diagnose(scene))
    assert (finding.kind, finding.cause, finding.ranks) == ("members-unknown", None, [0])
    assert "every member" not in finding.title


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [
        (10.5, ("rank-too-slow", "certain", "time-limit")),
        (3.0, (None, "likely", "made-no-progress")),
    ],
)
def test_a_hang_without_a_recorded_wait(duration_s: float, expected: tuple[str | None, str, str]):
    finding = only(
        diagnose(
            snapshot(
                rank(0),
                rank(1, state="running", position=at(4)),
                outcome="hung",
                duration_s=duration_s,
            )
        )
    )
    assert (finding.ranks, finding.values) == ([1], {"passed_s": duration_s})
    assert (finding.cause, finding.confidence, finding.kind) == expected


def test_a_member_that_is_not_a_rank_of_the_session():
    scene = snapshot(rank(0, all_reduce(members=(0, 1)), blocked=True), outcome="hung")
    finding = only(diagnose(scene))
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert finding.kind == "no-such-rank"


def test_where_a_rank_went_past_the_call():
    source = "if rank == 0:\n    dist.all_reduce(x)\n"
    places = hang(source, blocked_at(2), rank(1)).places
    assert {r: (p.line, p.role) for r, p in places.items()} == {0: (2, "waits"), 1: (1, "passed")}


def test_counts_are_not_reported_where_lines_are_not_known():
    own = all_reduce(2, source="flight recorder", caller="DistributedDataParallel", reduce_op=None)
    blind = call("all_reduce", None, source=own.source, caller=own.caller)
    source = "for b in loader:\n    model(b).sum().backward()\n"
    finding = hang(source, rank(0, own, own, own, blocked=True), rank(1, blind, blind))
    assert finding.cause == "uneven-iterations"
    assert fact(finding, "uneven-rounds").values == {"caller": 0, "op": "all_reduce"}


def test_a_hang_before_training_may_belong_to_the_preparation():
    late = rank(0, state="running", position=at(2))
    scene = snapshot(late, rank(1, call("barrier", 3), blocked=True), outcome="hung")
    finding = only(diagnose(scene))
    assert finding.symptom == "D.2.1"
    assert fact(finding, "before-training").values == {"symptom": "C.4"}
    training = (RankTraining(rank=1, backwards=2),)
    assert words.heading(finding)[0] == "hang D.2.1 or C.4"
    # Megatron-core calls the engine of the backward pass itself
    stepped = (RankTraining(rank=1, optimizers=(OptimizerTraining(name="adam", steps=1),)),)
    for trained in (
        replace(scene, training=training),
        replace(scene, training=stepped),
        replace(scene, trained_before=True),
    ):
        sure = only(diagnose(trained))
        assert "before-training" not in [fact.kind for fact in sure.facts]
        assert words.heading(sure)[0] == "hang D.2.1"


@pytest.mark.parametrize(
    ("cpu_share", "maker", "cause"),
    [(0.0, "blocked", "file-never-appears"), (0.0, "running", "rank-too-slow"),
     (0.9, "blocked", "rank-too-slow")],
)  # fmt: skip
def test_a_file_is_awaited_that_only_a_rank_at_work_may_still_make(
    cpu_share: float, maker: str, cause: str
):
    asks = Activity(cpu_share=cpu_share, waits_for="missing file", file="/data/done")
    late = rank(1, state="running", position=at(2), activity=asks)
    other = rank(2, state="running", position=at(3))
    if maker == "blocked":
        other = rank(2, call("barrier", 4), blocked=True)
    waiter = rank(0, call("barrier", 4), blocked=True)
    finding = only(diagnose(snapshot(waiter, late, other, outcome="hung")))
    assert (finding.kind, finding.cause) == ("late", cause)
    if not cpu_share:
        assert fact(finding, "file-missing").values == {"file": "/data/done"}


def test_a_hang_that_gloo_itself_ended():
    report = diagnose(
        snapshot(
            raised(0, all_reduce(status="failed"), error=peer_error(0, GLOO_TIMEOUT)),
            rank(1),
            outcome="failed",
        )
    )
    finding = only(report)
    assert (finding.symptom, finding.ranks, finding.waiting) == ("D.2.1", [1], [0])
    assert (finding.kind, finding.values["freed"]) == ("never-entered", True)


def test_a_wait_that_ends_by_itself_is_no_hang_of_an_interrupted_run() -> None:
    barrier = call("monitored_barrier", 5, group="1", members=(0, 1), gives_up_after_s=30.0)
    for waited_s, kinds in ((20.0, []), (50.0, ["never-entered"])):
        ranks = rank(0, state="finished"), rank(1, barrier, blocked=True, blocked_s=waited_s)
        report = diagnose(snapshot(*ranks, outcome="interrupted"))
        assert [one.kind for one in report.findings] == kinds
