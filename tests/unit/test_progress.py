"""Which waits can end, and which cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.model import Call, RankReport, Rendezvous
from ddt_notebook.model.rank import Activity
from ddt_notebook.model.waits import cannot_complete, waits

MEMBERS = (0, 1, 2)


def entered(sequence: int = 1, **fields) -> Call:
    return Call(
        **{"index": 0, "op": "all_reduce", "members": MEMBERS, "sequence": sequence,
           "status": "pending", **fields}
    )  # fmt: skip


def blocked(rank: int, call: Call) -> RankReport:
    return RankReport(rank=rank, state="blocked", blocked_in=0, calls=(call,))


def stuck(reports: list[RankReport]) -> frozenset[int]:
    return cannot_complete(waits(reports), reports)


def test_waits_for_a_rank_that_runs():
    reports = [blocked(0, entered()), blocked(1, entered()), RankReport(rank=2, state="running")]
    assert waits(reports)[0].missing == {2}
    assert stuck(reports) == frozenset()


def test_waits_for_a_rank_that_finished():
    reports = [blocked(0, entered()), blocked(1, entered()), RankReport(rank=2)]
    assert stuck(reports) == {0, 1}


def test_different_calls_never_meet():
    reports = [
        blocked(0, entered()),
        blocked(1, entered(op="barrier")),
        blocked(2, entered(reduce_op="MAX")),
    ]
    assert waits(reports)[0].mismatched == {1}
    assert stuck(reports) == {0, 1, 2}


def test_a_call_that_gives_up_by_itself_ends_whatever_the_others_do():
    own = entered(op="monitored_barrier", group="1", gives_up_after_s=30.0)
    others = [blocked(1, entered()), blocked(2, entered())]
    assert stuck([blocked(0, own), *others]) == frozenset()
    assert stuck([blocked(0, replace(own, gives_up_after_s=None)), *others]) == {0, 1, 2}
    finished = [RankReport(rank=rank, state="finished") for rank in (1, 2)]
    assert stuck([blocked(0, own), *finished]) == frozenset()
    late = replace(blocked(0, own), blocked_s=40.0)
    assert stuck([late, *others]) == {0, 1, 2}, "it should have raised by now"


def test_a_member_that_raised_inside_never_completes_it():
    failed = RankReport(rank=2, state="raised", calls=(entered(status="failed"),))
    assert stuck([blocked(0, entered()), blocked(1, entered()), failed]) == {0, 1}


def test_a_member_that_died_inside_never_completes_it():
    dead = RankReport(rank=2, state="died", calls=(entered(),))
    assert stuck([blocked(0, entered()), dead]) == {0}


def test_a_transfer_of_data_makes_progress():
    assert stuck([blocked(rank, entered()) for rank in MEMBERS]) == frozenset()


def test_a_dropped_call_had_matched():
    later = entered(9, status="done")
    ahead = RankReport(rank=1, state="finished", calls=(later,), calls_dropped=8)
    reports = [blocked(0, entered(3, members=(0, 1))), ahead]
    assert waits(reports)[0].missing == frozenset()


def test_a_cycle_of_waits_over_two_groups_cannot_end():
    reports = [
        blocked(0, entered(group="1", members=(0, 1))),
        blocked(1, entered(group="2", members=(0, 1))),
    ]
    assert stuck(reports) == {0, 1}


def test_a_chain_of_waits_for_a_running_rank_can_end():
    reports = [
        blocked(0, entered(group="1", members=(0, 1))),
        blocked(1, entered(group="2", members=(1, 2))),
        RankReport(rank=2, state="running"),
    ]
    assert stuck(reports) == frozenset()


def test_init_process_group_needs_every_rank():
    forming = entered(op="init_process_group", kind="setup", members=())
    assert waits([blocked(0, forming), RankReport(rank=1)])[0].missing == {1}


def message(op: str, peer: int | None, **fields) -> Call:
    return entered(op=op, kind="p2p", peer=peer, **fields)


def test_a_receive_from_any_source_needs_one_sender():
    finished, running = RankReport(rank=1), RankReport(rank=2, state="running")
    receiver = blocked(0, message("recv", None))
    assert stuck([receiver, finished, running]) == frozenset()
    assert stuck([receiver, finished]) == {0}


def test_message_meets_its_partner():
    pair = [blocked(0, message("recv", 1)), blocked(1, message("isend", 0))]
    assert stuck(pair) == frozenset()
    crossed = [blocked(0, message("recv", 1)), blocked(1, message("recv", 0))]
    assert stuck(crossed) == {0, 1}
    tags = [blocked(0, message("recv", 1, tag=1)), blocked(1, message("send", 0))]
    assert stuck(tags) == {0, 1}


def joining(at: int, **fields) -> RankReport:
    usual = {"address": "127.0.0.1:29500", "rank": at, "world_size": 3, "backend": "gloo"}
    return blocked(
        at,
        entered(
            op="init_process_group",
            kind="setup",
            members=(),
            rendezvous=Rendezvous(**usual | fields),
        ),
    )


@pytest.mark.parametrize(
    "odd",
    [{"address": "127.0.0.1:29501"}, {"rank": 1}, {"rank": 3}, {"world_size": 4}],
    ids=["address", "repeated number", "outside", "world size"],
)
def test_ranks_whose_announcements_do_not_fit_never_form_a_group(odd: dict[str, object]) -> None:
    assert stuck([joining(0), joining(1), joining(2, **odd)]) == {0, 1, 2}
    coming = RankReport(rank=1, state="running")
    assert stuck([joining(0), coming, joining(2, **odd)]) == frozenset()


@pytest.mark.parametrize(
    "other",
    [{"address": "localhost:29500"}, {"rank": None}, {"address": ""}, {"backend": "nccl"}],
    ids=["another name of the host", "number not known", "address not known", "backend"],
)
def test_announcements_that_may_fit_are_given_the_time_that_pytorch_gives(
    other: dict[str, object],
) -> None:
    assert stuck([joining(0), joining(1), joining(2, **other)]) == frozenset()


def test_two_groups_at_two_addresses_are_complete() -> None:
    pairs = [joining(r, rank=r % 2, world_size=2, address=f"127.0.0.1:{r // 2}") for r in range(4)]
    assert stuck(pairs) == frozenset()


@pytest.mark.parametrize(
    ("held_by", "cpu_share", "expected"), [(100, 0.0, {0}), (999, 0.0, set()), (100, 0.9, set())]
)
def test_a_rank_that_waits_for_the_lock_of_a_file(
    held_by: int, cpu_share: float, expected: set[int]
) -> None:
    """It cannot move if a rank that waits holds the lock; another process may release it."""
    holder = replace(blocked(0, entered()), pid=100)
    seen = Activity(cpu_share=cpu_share, waits_for="file lock", file="x", held_by=held_by)
    waiter = RankReport(rank=1, pid=101, state="running", activity=seen)
    works = replace(blocked(2, entered()), pid=102)
    assert stuck([holder, waiter, works]) == (expected and {0, 2})
    free = RankReport(rank=0, pid=100, state="running")
    assert stuck([free, waiter, works]) == frozenset()
    asks = replace(waiter, activity=replace(seen, waits_for="busy lock"))  # it may give up
    assert stuck([holder, asks, works]) == frozenset()
    elsewhere = [replace(one, host=host) for one, host in ((holder, "a"), (waiter, "b"))]
    assert stuck([*elsewhere, works]) == frozenset()  # another process has that id there
