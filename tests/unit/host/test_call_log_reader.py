"""Call log and Flight Recorder become one numbered list that ranks can be compared by."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ddt_notebook.host import call_log_reader
from ddt_notebook.host.call_log_reader import RankRecorder, thin
from ddt_notebook.model import Call, Position
from ddt_notebook.wire import ring
from ddt_notebook.wire.records import Group
from ddt_notebook.wire.ring import RingReader

from .builders import RankLog

LOG, FLIGHT = "call log", "flight recorder"
FOUR, FLOAT = ((4,),), ("float32",)


@pytest.fixture
def log(tmp_path: Path) -> RankLog:
    return RankLog(tmp_path)


# -- numbering ---------------------------------------------------------------------------------


def test_operations_of_a_library_count_between_calls(log: RankLog) -> None:
    log.call("all_reduce")
    log.fly(1)
    for _ in range(3):
        log.library(op="broadcast")
    log.call("barrier")
    log.fly(5, op="barrier")
    log.library()
    assert log.numbered() == [
        ("all_reduce", 1, LOG),
        ("broadcast", 2, FLIGHT),
        ("broadcast", 3, FLIGHT),
        ("broadcast", 4, FLIGHT),
        ("barrier", 5, LOG),
        ("all_reduce", 6, FLIGHT),
    ]
    assert log.recorder.reached() == {"0": 6}


def test_one_call_may_be_several_operations(log: RankLog) -> None:
    log.call("all_gather_object", operations=2)
    for number in (1, 2):
        log.fly(number, op="all_gather")
    log.library(op="broadcast")
    log.call("all_reduce")
    assert log.numbered() == [
        ("all_gather_object", 1, LOG),
        ("broadcast", 2, FLIGHT),
        ("all_reduce", 3, LOG),
    ]


def test_numbers_of_calls_do_not_depend_on_when_they_are_read(tmp_path: Path) -> None:
    """The notebook may look at any moment, also while a call is pending."""
    often, once = (RankLog(tmp_path, rank) for rank in (0, 1))
    for log in (often, once):
        for step in range(4):
            index = log.begin("all_reduce")
            if log is often:
                log.recorder.drain()
            log.end(index, operations=1 + step % 2)
            log.library()
            if log is often:
                log.recorder.drain()
    assert often.numbered() == once.numbered()
    assert [number for _, number, _ in once.numbered()] == list(range(1, 9))


def test_messages_do_not_change_the_numbers_of_collectives(tmp_path: Path) -> None:
    """Ranks of a pipeline send different numbers of messages on one group."""
    logs = [RankLog(tmp_path, rank) for rank in (0, 1)]
    for log, messages in zip(logs, (1, 3), strict=True):
        for number in range(messages):
            log.call("send", kind="p2p", number=number + 1, peer=2, tag=0)
            log.fly(log.operations, op="send")
        log.call("barrier")
        log.library()
    for log in logs:
        collectives = [call for call in log.calls() if call.kind == "collective"]
        assert [(call.op, call.sequence) for call in collectives] == [
            ("barrier", 1),
            ("all_reduce", 2),
        ]
    assert [call.sequence for call in logs[1].calls() if call.kind == "p2p"] == [1, 2, 3]


def test_each_group_has_its_own_numbers_and_calls_of_outsiders_have_none(log: RankLog) -> None:
    log.call("all_reduce")
    log.call("all_reduce", group=Group("3", (0, 1)), operations_before=0)
    log.call("all_reduce", group=Group("4", (1, 2)), outside=True)
    result = [(call.group, call.members, call.sequence) for call in log.calls()]
    assert result == [("0", (0, 1), 1), ("3", (0, 1), 1), ("4", (), None)]
    assert log.recorder.reached() == {"0": 1, "3": 1}
    assert log.recorder.groups() == {"0": (0, 1), "3": (0, 1), "4": (1, 2)}


def test_an_installed_library_is_not_a_part_of_torch(log: RankLog) -> None:
    log.call("all_gather", library="/env/site-packages/accelerate/fsdp.py")
    log.call("all_reduce", library="nn/parallel/distributed.py")
    result = [(call.called_from, call.caller) for call in log.calls()]
    assert result == [("accelerate/fsdp.py", None), (None, "DistributedDataParallel")]


def test_numbers_go_on_in_the_next_cell(log: RankLog) -> None:
    log.call("all_reduce")
    log.library()
    log.recorder.drain()
    log.recorder.begin_run()
    log.call("barrier")
    assert log.numbered() == [("barrier", 3, LOG)]


def test_entries_of_an_earlier_cell_do_not_count_for_this_one(log: RankLog) -> None:
    for _ in range(5):
        log.call("all_reduce")
    log.recorder.drain()
    log.recorder.begin_run()
    for number in (3, 4, 5):
        log.fly(number)
    log.call("barrier")
    assert log.numbered() == [("barrier", 6, LOG)]


def test_a_new_generation_starts_from_one(log: RankLog) -> None:
    log.call("all_reduce")
    log.library(done=False)
    log.begin("barrier")
    log.recorder.drain()
    log.recorder.new_generation()
    log.operations = 0
    log.recorder.begin_run()
    log.call("all_gather")
    assert log.numbered() == [("all_gather", 1, LOG)]
    assert log.recorder.pending_flight() is None
    assert log.recorder.reached() == {"0": 1}


def test_numbers_continue_when_the_cell_forms_the_group_anew(log: RankLog) -> None:
    """Its backend counts from 0 again; no number may occur twice."""
    log.call("all_reduce")
    log.call("all_reduce")
    log.operations = -1  # there is no group whose operations could be counted
    log.call("init_process_group", kind="setup", number=1, operations=0)
    log.operations = 0
    log.call("barrier")
    log.recorder.drain()
    log.library()
    log.call("barrier")
    result = [(call.op, call.sequence) for call in log.calls() if call.kind == "collective"]
    numbered = sorted((sequence, op) for op, sequence in result)
    ops = ["all_reduce", "all_reduce", "barrier", "all_reduce", "barrier"]
    assert numbered == list(enumerate(ops, start=1))


def test_a_library_may_be_the_first_user_of_a_group_that_is_formed_anew(log: RankLog) -> None:
    for _ in range(4):
        log.call("all_reduce")
    log.recorder.begin_run()
    log.operations = -1
    log.call("init_process_group", kind="setup", number=1, operations=0)
    log.recorder.drain()
    log.operations = 0
    log.library(op="broadcast", done=False)
    assert log.recorder.pending_flight() == ("0", 1)
    assert [call.op for call in log.calls()] == ["init_process_group", "broadcast"]


# -- pending calls -----------------------------------------------------------------------------


def test_a_pending_call_is_the_one_in_which_the_rank_is_blocked(log: RankLog) -> None:
    log.call("barrier")
    index = log.begin("all_reduce", file="cell[3]", line=6)
    log.fly(2, done=False)
    log.recorder.drain()
    result = log.recorder.calls({})
    assert log.recorder.blocked is not None
    call = result.calls[result.by_record[log.recorder.blocked[0]]]
    assert (call.op, call.sequence, call.status) == ("all_reduce", 2, "pending")
    assert call.where is not None
    assert call.where.label == "cell[3] line 6: 3:6"
    assert log.recorder.pending_flight() is None, "its own operation is not a library's"

    log.end(index, ring.FAILED)
    assert [call.status for call in log.calls()] == ["done", "failed"]
    assert log.recorder.failed


def test_a_handle_that_was_not_waited_for_is_still_reported(log: RankLog) -> None:
    index = log.begin("all_reduce", asynchronous=True)
    log.end(index, ring.ISSUED)
    log.recorder.begin_run()
    assert [call.op for call in log.calls()] == [], "it belongs to the earlier cell"
    log.writer.block(index, 5.0)
    assert [(call.op, call.status) for call in log.calls()] == [("all_reduce", "issued")]
    log.writer.settle(index, ring.DONE, 6.0)
    log.writer.block(None, 6.0)
    log.call("barrier")
    assert [(call.op, call.sequence) for call in log.calls()] == [("barrier", 2)]


def test_the_oldest_pending_operation_of_a_library(log: RankLog) -> None:
    log.call("barrier")
    log.library()
    log.library(done=False)
    log.library(done=False)
    log.recorder.drain()
    assert log.recorder.pending_flight() == ("0", 3)
    result = log.recorder.calls({"0": (0, 1)})
    call = result.calls[result.by_flight["0", 3]]
    assert (call.sequence, call.status, call.members) == (3, "pending", (0, 1))
    log.fly(3)
    assert log.recorder.pending_flight() == ("0", 4)


def test_where_a_library_was_called_from(log: RankLog) -> None:
    line = Position(file="cell[2]", line=3, function="step")
    log.library(where=line, library="DistributedDataParallel")
    log.fly(1)  # a later look, without stacks
    (call,) = log.calls()
    assert call.caller == "DistributedDataParallel"
    assert call.where is not None
    assert (call.where.place, call.where.function) == ("cell[2] line 3", "step")


def test_branch_events_before_collectives_of_a_library(log: RankLog) -> None:
    for created_ns in (5, 15, 25, 35):
        log.library(created_ns=created_ns)
    log.recorder.drain()
    log.recorder.branch_marks = ((10, 7), (20, -1), (30, 9))
    assert [call.branches_before for call in log.calls()] == [None, 7, None, 9]


def test_operations_of_an_earlier_group_of_the_same_name_are_left_out(log: RankLog) -> None:
    """Its operation 2 is not that of the group that was formed again, which has not issued one."""
    log.call("init_process_group", kind="setup", operations=0, operations_before=-1)
    for _ in range(2):
        log.library()
    log.call("destroy_process_group", kind="setup", operations=0)
    log.operations = 0
    log.call("init_process_group", kind="setup", operations=0, operations_before=-1)
    log.recorder.drain()
    earlier = list(log.flown)
    log.library()
    log.recorder.add_flight(earlier)  # the recorder gives everything again when it is asked for all
    assert [call.sequence for call in log.calls() if call.source == "flight recorder"] == [1]
    assert log.recorder.reached()["0"] == 1


def test_reading_calls_at_each_step_gives_the_same_list_as_reading_at_the_end(
    tmp_path: Path,
) -> None:
    """The list of calls is made anew only if something has changed."""
    log = RankLog(tmp_path)
    members = {"0": log.members}

    def asked_at_the_end() -> RankRecorder:
        fresh = RankRecorder(RingReader(tmp_path / "rank0.calls"), lambda cell, line: "  line")
        fresh.drain()
        fresh.add_flight(log.flown)
        fresh.branch_marks = log.recorder.branch_marks
        return fresh

    def step(number: int) -> None:
        match number % 7:
            case 0 | 1:
                log.call()
            case 2:
                log.open = log.begin("barrier")
            case 3:
                log.end(log.open)
            case 4:
                log.library(done=False, created_ns=number)
            case 5:
                log.fly(log.operations, done=True, created_ns=number)
            case _:
                log.recorder.branch_marks = (*log.recorder.branch_marks, (number, number))

    for number in range(40):
        step(number)
        log.recorder.drain()
        for last in (1, 5):
            known, expected = (r.calls(members, last) for r in (log.recorder, asked_at_the_end()))
            assert [c.index for c in known.calls] == [c.index for c in expected.calls]
            assert [_timeless(c) for c in known.calls] == [_timeless(c) for c in expected.calls]
            assert (known.by_record, known.by_flight) == (expected.by_record, expected.by_flight)
            assert log.recorder.calls(members, last) is known


def test_a_log_without_news_is_not_read(log: RankLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher looks at hundreds of logs many times a second."""
    log.open = log.begin("barrier")
    assert log.recorder.drain()
    places: list[int] = []
    read = os.pread

    def noted(descriptor: int, size: int, at: int) -> bytes:
        places.append(at)
        return read(descriptor, size, at)

    monkeypatch.setattr(os, "pread", noted)
    assert not log.recorder.drain()
    assert places == [0], "one look at the turn"
    assert log.recorder.blocked_since_s is not None
    log.end(log.open)
    assert log.recorder.blocked is None
    assert log.recorder.drain(), "that somebody else looked at the head hides nothing"
    assert log.recorder.blocked_since_s is None
    assert [call.status for call in log.calls()] == ["done"]


def test_an_asynchronous_call_that_ends_by_itself_is_seen(log: RankLog) -> None:
    index = log.begin(asynchronous=True)
    log.end(index, ring.ISSUED)
    assert [call.status for call in log.calls()] == ["issued"]
    log.writer.settle(index, ring.DONE, 1.0)  # as is_completed() does: the rank enters nothing
    assert [call.status for call in log.calls()] == ["done"]
    assert not log.recorder.drain()


def _timeless(call: Call) -> Call:
    """Without the time of an entry of the Flight Recorder, which depends on when it was asked."""
    return replace(call, entered_s=None) if call.source == FLIGHT else call


# -- bounds ------------------------------------------------------------------------------------


def test_records_that_the_ring_lost_are_reported_as_missing(log: RankLog) -> None:
    for _ in range(ring.SLOTS + 5):
        log.call("barrier")
    log.recorder.drain()
    assert log.recorder.overflowed
    assert len(log.calls()) == ring.SLOTS
    log.recorder.begin_run()
    log.call("barrier")
    log.recorder.drain()
    assert not log.recorder.overflowed


def test_only_the_latest_calls_are_kept(log: RankLog) -> None:
    for op in ("barrier", "all_reduce", "all_gather"):
        log.call(op)
    log.recorder.drain()
    result = log.recorder.calls({}, last=1)
    assert [(call.op, call.index, call.sequence) for call in result.calls] == [("all_gather", 0, 3)]
    assert result.left_out == 2


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_log_reader, "KEEP", 3)


@pytest.mark.usefixtures("small")
def test_calls_that_agree_on_all_members_are_dropped(tmp_path: Path) -> None:
    logs = {rank: RankLog(tmp_path, rank, members=(0, 1, 2)) for rank in range(3)}
    for rank, log in logs.items():
        log.call("all_reduce", reduce_op="SUM", shapes=FOUR, dtypes=FLOAT)
        log.call("all_reduce", reduce_op="MAX" if rank == 2 else "SUM", shapes=FOUR, dtypes=FLOAT)
        log.call("all_reduce", reduce_op="SUM", shapes=((4 if rank else 5,),), dtypes=FLOAT)
        log.call("broadcast", root=0, shapes=FOUR, dtypes=("int32",))
        if rank != 1:
            index = log.begin("all_reduce", group=Group("1", (0, 2)), operations_before=0)
            log.writer.end(index, ring.FAILED if rank else ring.DONE, 1.0, 1)
        for _ in range(4):
            log.call("barrier")
        log.recorder.drain()
    thin({rank: log.recorder for rank, log in logs.items()})
    for rank, log in logs.items():
        result = [(call.op, call.group, call.sequence) for call in log.calls()]
        between = [] if rank == 1 else [("all_reduce", "1", 1)]
        kept = [("all_reduce", "0", 2), ("all_reduce", "0", 3), *between]
        assert result == [*kept, *(("barrier", "0", number) for number in (6, 7, 8))]
        assert log.recorder.dropped == 3
        assert log.recorder.calls({}).left_out == 3


@pytest.mark.usefixtures("small")
def test_calls_that_the_other_ranks_have_not_reached_are_kept(tmp_path: Path) -> None:
    ahead, behind = (RankLog(tmp_path, rank) for rank in (0, 1))
    for _ in range(12):
        ahead.call("all_reduce")
    for _ in range(5):
        behind.call("all_reduce")
    for log in (ahead, behind):
        log.recorder.drain()
    thin({0: ahead.recorder, 1: behind.recorder})
    assert [call.sequence for call in behind.calls()] == [3, 4, 5]
    assert [call.sequence for call in ahead.calls()] == list(range(3, 13))


@pytest.mark.usefixtures("small")
def test_records_with_cut_shapes_are_tolerated(tmp_path: Path) -> None:
    logs = {rank: RankLog(tmp_path, rank) for rank in (0, 1)}
    for log in logs.values():
        log.call("all_reduce", shapes=((1,) * 60,), dtypes=FLOAT)
        for _ in range(8):
            log.call("barrier")
        log.recorder.drain()
    thin({rank: log.recorder for rank, log in logs.items()})
    assert len(logs[0].recorder) == len(logs[1].recorder) <= 4


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("op", ["send", "all_to_all_single"])
def test_a_long_loop_of_other_calls_stays_bounded(op: str, tmp_path: Path) -> None:
    logs = {rank: RankLog(tmp_path, rank) for rank in (0, 1)}
    for rank, log in logs.items():
        for number in range(30):
            if op == "send":
                name = "recv" if rank else "send"
                log.call(name, kind="p2p", number=number + 1, peer=1 - rank, tag=0, shapes=FOUR)
            else:
                log.call(op, shapes=((rank + 1,),), dtypes=FLOAT)
        log.recorder.drain()
    thin({rank: log.recorder for rank, log in logs.items()})
    assert max(len(log.recorder) for log in logs.values()) < 30


@pytest.mark.usefixtures("small")
def test_calls_that_can_never_be_matched_are_bounded_and_reported_as_missing(log: RankLog) -> None:
    for number in range(30):
        log.call("recv", kind="p2p", number=number + 1, peer=None, tag=0)
    failed = log.begin("barrier")
    log.end(failed, ring.FAILED)
    log.recorder.drain()
    thin({0: log.recorder})
    assert [call.op for call in log.calls()] == ["recv"] * 11 + ["barrier"]
    assert log.recorder.calls({}).left_out == 19
    assert log.recorder.overflowed


def test_names_for_which_there_was_no_room_are_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "FILE_BYTES", ring.FILE_BYTES - ring.TABLE_BYTES + 200)
    full = RankLog(tmp_path)
    full.call("all_reduce", file="/project/train.py", line=3)
    assert not full.recorder.names_missing
    full.call("all_reduce", file="/project/" + "x" * 200, line=7)
    found = full.calls()
    assert [call.where.file if call.where else None for call in found] == [
        "/project/train.py",
        None,
    ]
    assert (found[1].op, found[1].members, found[1].sequence) == ("all_reduce", (0, 1), 2)
    assert full.recorder.names_missing
    assert not full.recorder.overflowed, "no call is missing"
    full.recorder.close()
