"""A wait is ended if it cannot end by itself, and not too early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.host import hang_detection
from ddt_notebook.host.hang_detection import HangWatch, waiting_now
from ddt_notebook.host.pool import group_timeout_s
from ddt_notebook.host.rank_run import RunState
from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.model.waits import cannot_complete, needs_all_calls, waits

AT = Position(file="cell[3]", line=7, code="time.sleep(8)")


class Clock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(hang_detection, "time", fake)
    return fake


@pytest.fixture
def watch() -> HangWatch:
    return HangWatch(hang_after_s=2.0, timeout_s=10.0)


def blocked(rank: int, for_s: float = 0.5, **fields: Any) -> RankReport:
    known = {"index": 0, "op": "all_reduce", "members": (0, 1, 2), "sequence": 4}
    call = Call(**known | {"status": "pending", "shapes": ((4,),), "dtypes": ("float32",)} | fields)
    return RankReport(rank=rank, state="blocked", blocked_in=0, blocked_s=for_s, calls=(call,))


def running(rank: int, **fields: Any) -> RankReport:
    return RankReport(rank=rank, state="running", position=AT, **fields)


def seen(*reports: RankReport) -> RunState:
    waiting = waits(reports)
    return RunState(reports, waiting, cannot_complete(waiting, reports))


# -- when --------------------------------------------------------------------------------------


def test_a_wait_that_cannot_end_is_left_alone_for_hang_after(
    watch: HangWatch, clock: Clock
) -> None:
    view = seen(blocked(0), blocked(1), RankReport(rank=2))
    assert not watch.hung(view, failed=False)
    clock.now_s += 1.9
    assert not watch.hung(view, failed=False)
    clock.now_s += 0.1
    assert watch.hung(view, failed=False)


def test_a_rank_that_may_still_come_is_waited_for(watch: HangWatch, clock: Clock) -> None:
    for _ in range(5):
        assert not watch.hung(seen(blocked(0), blocked(1), running(2)), failed=False)
        clock.now_s += 60


def test_a_host_may_go_on_although_its_device_waits_for_ever() -> None:
    """Rank 2 has ended; what rank 0 will issue on another group is not known."""
    user, torch = (Position(file=name, line=3) for name in ("train.py", "/lib/torch/cuda.py"))
    device = blocked(0, members=(0, 2)), RankReport(rank=2)
    for at, stuck in ((user, {0}), (torch, {0, 1})):
        host = replace(device[0], device_waits=True, stack=(at,))
        other = blocked(1, members=(0, 1), group="other")
        assert seen(host, other, device[1]).stuck == stuck
    # nothing takes the place of a call that was issued to a stream
    crossed = [replace(blocked(r, root=r), device_waits=True, stack=(user,)) for r in (0, 1)]
    assert seen(*crossed, running(2)).stuck == {0, 1}


def forming(rank: int, *members: int) -> RankReport:
    every = {"op": "new_group", "members": (0, 1, 2, 3), "sequence": 1, "shapes": (), "dtypes": ()}
    return blocked(rank, **every | {"new_members": members})


def on_a_pair(rank: int, *members: int) -> RankReport:
    return blocked(rank, group="1", members=members)


@pytest.mark.parametrize("wait", [forming, on_a_pair])
def test_two_groups_of_one_name_disturb_each_other(wait: Any) -> None:
    pairs = [wait(0, 0, 1), wait(1, 0, 1), wait(2, 2, 3), wait(3, 2, 3)]
    assert seen(*pairs).stuck == {0, 1, 2, 3}
    assert seen(*pairs[:3], running(3)).stuck == set()
    assert seen(*pairs[:2], running(2), running(3)).stuck == set()
    assert seen(*(wait(rank, 0, 1, 2, 3) for rank in range(4))).stuck == set()
    assert seen(*(wait(rank) for rank in range(4))).stuck == set()


def _unnamed(rank: int, number: int, *before: int, dropped: int = 0) -> RankReport:
    """A rank of Horovod that waits in a call without a name."""
    form = Call(index=0, op="allreduce", group="allreduce.noname", members=(0, 1), status="done")
    made = [replace(form, sequence=one) for one in (*before, number)]
    calls = [replace(one, index=index) for index, one in enumerate(made)]
    calls[-1] = replace(calls[-1], status="pending")
    return RankReport(
        rank=rank,
        state="blocked",
        blocked_in=len(before),
        blocked_s=0.5,
        calls=tuple(calls),
        calls_dropped=dropped,
    )


def test_a_later_number_does_not_show_that_a_call_without_a_name_was_made() -> None:
    short = _unnamed(0, 61, dropped=2), _unnamed(1, 54, dropped=1)
    assert needs_all_calls(waits(short).values(), short)
    whole = _unnamed(0, 61, 33, 46), _unnamed(1, 54, 33)
    assert seen(*whole).stuck == {0, 1}
    assert not needs_all_calls(waits(whole).values(), whole)
    met = _unnamed(0, 61, 33, 54), _unnamed(1, 54, 33)
    assert not seen(*met).stuck


def test_the_time_starts_again_when_others_get_stuck(watch: HangWatch, clock: Clock) -> None:
    watch.hung(seen(blocked(0), running(1), RankReport(rank=2)), failed=False)
    clock.now_s += 1.5
    more = seen(blocked(0), blocked(1), RankReport(rank=2))
    assert not watch.hung(more, failed=False)
    assert not watch.hung(seen(running(0), running(1), RankReport(rank=2)), failed=False)
    clock.now_s += 1.9
    assert not watch.hung(more, failed=False)
    clock.now_s += 2.0
    assert watch.hung(more, failed=False)


def test_after_a_failure_a_wait_is_ended_soon(watch: HangWatch, clock: Clock) -> None:
    view = seen(blocked(0), blocked(1), RankReport(rank=2, state="raised"))
    assert not watch.hung(view, failed=True)
    clock.now_s += 0.25
    assert watch.hung(view, failed=True)
    impatient = HangWatch(hang_after_s=0.1, timeout_s=10)
    impatient.hung(view, failed=True)
    clock.now_s += 0.15
    assert impatient.hung(view, failed=True)


def test_after_a_failure_a_running_rank_is_waited_for_a_little(
    watch: HangWatch, clock: Clock
) -> None:
    raised = RankReport(rank=2, state="raised")
    on_the_way = seen(blocked(0), running(1), raised)
    assert not watch.hung(on_the_way, failed=True)
    clock.now_s += 0.9
    assert not watch.hung(on_the_way, failed=True)
    arrived = seen(blocked(0), blocked(1), raised)
    assert not watch.hung(arrived, failed=True)
    clock.now_s += 0.25
    assert watch.hung(arrived, failed=True)
    watch.hung(on_the_way, failed=True)
    clock.now_s += 1.0
    assert watch.hung(on_the_way, failed=True)


def test_a_suspended_rank_is_a_hang_only_when_no_other_rank_runs(
    watch: HangWatch, clock: Clock
) -> None:
    stopped = RankReport(rank=2, state="stopped")
    for others in ((running(0), running(1)), (blocked(0, members=(0, 1)), running(1))):
        for _ in range(2):
            assert not watch.hung(seen(*others, stopped), failed=False)
            clock.now_s += 5
    alone = seen(RankReport(rank=0), RankReport(rank=1), stopped)
    watch.hung(alone, failed=False)
    clock.now_s += 2
    assert watch.hung(alone, failed=False)
    assert watch.to_interrupt(alone, over_the_limit=False) == {2}


def test_the_limit_is_for_waiting_and_not_for_running(watch: HangWatch) -> None:
    assert not watch.over_the_limit(seen(running(0), running(1), running(2)))
    assert not watch.over_the_limit(seen(blocked(0, 9.9), running(1), running(2)))
    slow = seen(blocked(0, 3.0), blocked(1, 10.1), running(2))
    assert watch.over_the_limit(slow)
    assert watch.to_interrupt(slow, over_the_limit=True) == {2}
    assert watch.to_interrupt(slow, over_the_limit=False) == frozenset()


def test_without_a_limit_a_running_rank_is_waited_for_until_pytorchs_timeout(
    clock: Clock,
) -> None:
    patient = HangWatch(hang_after_s=2.0, timeout_s=None)
    for state in ("running", "silent"):
        view = seen(blocked(0, 1e5), blocked(1, 9e4), RankReport(rank=2, state=state))  # type: ignore[arg-type]
        assert not patient.hung(view, failed=False)
        clock.now_s += 1e5
        assert not patient.hung(view, failed=False)
        assert not patient.over_the_limit(view)
    assert group_timeout_s(None, "gloo") == 30 * 60
    assert group_timeout_s(None, "cpu:gloo,cuda:nccl") == 10 * 60
    assert group_timeout_s(20.0, "nccl") > 20.0


def test_only_ranks_that_others_wait_for_are_interrupted(watch: HangWatch) -> None:
    pair = {"members": (0, 1)}
    view = seen(blocked(0, 11.0, **pair), RankReport(rank=1, state="silent"), running(2))
    assert watch.to_interrupt(view, over_the_limit=True) == {1}


# -- who waits for whom ------------------------------------------------------------------------


def test_short_waits_are_not_shown() -> None:
    assert waiting_now(seen(running(0), running(1), running(2))) is None
    assert waiting_now(seen(blocked(0, 1.9), running(1), running(2))) is None


def shown(*reports: RankReport) -> tuple[tuple[int, ...], float, list[int]]:
    waiting = waiting_now(seen(*reports))
    assert waiting is not None
    return waiting.ranks, waiting.waited_s, [report.rank for report in waiting.awaited]


def test_all_ranks_in_the_same_call_are_shown_together() -> None:
    assert shown(blocked(0, 4.2), blocked(1, 2.0), running(2)) == ((0, 1), 4.2, [2])
    assert shown(blocked(0, 2.0), running(1), running(2)) == ((0,), 2.0, [1, 2])


def test_no_rank_is_awaited_in_a_call_that_all_have_entered() -> None:
    assert shown(blocked(0, 3.0), blocked(1, 3.0), blocked(2, 3.0)) == ((0, 1, 2), 3.0, [])


def test_a_chain_of_waits_leads_to_the_running_rank() -> None:
    receives = blocked(1, 2.5, op="recv", kind="p2p", peer=2, sequence=1)
    assert shown(blocked(0, 3.0), receives, running(2)) == ((0,), 3.0, [2, 1])
    pair = blocked(1, 2.5, op="recv", kind="p2p", peer=2, sequence=1, members=(1, 2))
    assert shown(running(0), pair, running(2)) == ((1,), 2.5, [2])


def test_a_suspended_rank_is_shown_also_if_no_other_waits() -> None:
    stopped = RankReport(rank=2, state="stopped")
    assert shown(running(0), running(1), stopped) == ((), 0.0, [2])
    assert shown(blocked(0, 3.0), running(1), stopped) == ((0,), 3.0, [1, 2])
