"""The call log outlives its writer, and a reader never confuses two records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ddt_notebook.model import FormatError, Rendezvous
from ddt_notebook.wire import ring
from ddt_notebook.wire.records import CallRecord, Group, decode_callers, encode_callers
from ddt_notebook.wire.ring import RingReader, RingWriter

RECORDS = 60_000
#: Writes records whose fields and times contain their number.
WRITE_MANY = f"""
import sys
from pathlib import Path
from ddt_notebook.wire.records import CallRecord
from ddt_notebook.wire.ring import DONE, RingWriter
writer = RingWriter(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range({RECORDS}):
    writer.begin(CallRecord(op="barrier", number=number), float(number), blocking=True)
    writer.end(number, DONE, number + 0.5, number)
"""
GROUP = Group("0", (0, 1))
CALL = CallRecord(op="all_reduce", group=GROUP, operations_before=7)
BARRIER = replace(CALL, op="barrier")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.calls"


def test_a_record_exists_before_its_call_is_made(path: Path) -> None:
    writer = RingWriter(path)
    index = writer.begin(CALL, 10.0, blocking=True)
    reader = RingReader(path)
    record = reader.read(index)
    assert record is not None
    assert (record.call, record.entered_s) == (CALL, 10.0)
    assert (record.status, record.left_s, record.operations_after) == (ring.PENDING, 0.0, -1)
    assert reader.count == 1
    assert reader.blocked_in == (index, 10.0)

    writer.end(index, ring.FAILED, 11.0, 8)
    record = reader.read(index)
    assert record is not None
    assert (record.status, record.left_s, record.operations_after) == (ring.FAILED, 11.0, 8)
    assert reader.blocked_in is None


def test_an_asynchronous_call_blocks_only_while_it_is_waited_for(path: Path) -> None:
    writer, reader = RingWriter(path), None
    index = writer.begin(CALL, 1.0, blocking=False)
    reader = RingReader(path)
    assert reader.blocked_in is None
    writer.end(index, ring.ISSUED, 2.0, 8)
    writer.block(index, 3.0)
    assert reader.blocked_in == (index, 3.0)
    writer.settle(index, ring.DONE, 4.0)
    record = reader.read(index)
    assert record is not None
    assert (record.status, record.left_s) == (ring.DONE, 4.0)
    assert record.operations_after == 8, "what was counted when the call returned stays"


def test_records_of_a_rank_that_was_killed(path: Path) -> None:
    child = os.fork()
    if child == 0:
        writer = RingWriter(path)
        writer.end(writer.begin(CALL, 1.0, blocking=True), ring.DONE, 2.0, 8)
        writer.begin(BARRIER, 3.0, blocking=True)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL

    reader = RingReader(path)
    records = [reader.read(index) for index in range(reader.count)]
    assert [(r.call.op, r.status) for r in records if r] == [
        ("all_reduce", ring.DONE),
        ("barrier", ring.PENDING),
    ]
    assert reader.blocked_in == (1, 3.0)


def test_the_ring_overwrites_its_oldest_records(path: Path) -> None:
    writer = RingWriter(path)
    for number in range(ring.SLOTS + 2):
        writer.begin(replace(BARRIER, number=number), 1.0, blocking=True)
    writer.end(0, ring.FAILED, 9.0, 9)  # its slot belongs to another record by now
    reader = RingReader(path)
    assert reader.count == ring.SLOTS + 2
    assert reader.read(0) is None
    assert reader.read(1) is None
    for index in (2, ring.SLOTS, ring.SLOTS + 1):
        record = reader.read(index)
        assert record is not None
        assert (record.call.number, record.status) == (index, ring.PENDING)
    assert reader.read(ring.SLOTS + 2) is None


def test_a_record_being_written_is_not_read(path: Path) -> None:
    """Between the first and the last byte of a record its slot has the number 0."""
    writer = RingWriter(path)
    index = writer.begin(CALL, 1.0, blocking=True)
    writer._map[64:72] = bytes(8)
    assert RingReader(path).read(index) is None


EVERYTHING = CallRecord(
    op="reduce",
    kind="p2p",
    group=Group("7", (1, 3)),
    outside=True,
    number=12,
    operations_before=9,
    reduce_op="MAX",
    detail='{"stage": 2}',
    root=3,
    peer=-1,
    tag=-5,
    shapes=((), (2, 3)),
    dtypes=("float32", "int64"),
    output_shapes=((1 << 40,),),
    file="/project/größe/\udcff.py",
    line=70_000,
    function="step",
    callers=encode_callers([("/project/größe/\udcff.py", 7, "fit"), ("main.py", 90, "<module>")]),
    library="nn/parallel/distributed.py",
    asynchronous=True,
    gives_up_after_s=30.0,
    rendezvous=Rendezvous(address="127.0.0.1:29500", rank=1, left_over=True),
    new_members=(0, 2),
)


@pytest.mark.parametrize("call", [CallRecord(op="barrier"), CALL, EVERYTHING])
def test_every_field_of_a_record_is_read_as_it_was_written(path: Path, call: CallRecord) -> None:
    writer = RingWriter(path)
    writer.begin(CALL, 1.0, blocking=True)
    index = writer.begin(call, 2.0, blocking=True)
    record = RingReader(path).read(index)
    assert record is not None
    assert record.call == call


def test_the_lines_that_led_to_a_call_are_read_as_they_were_written() -> None:
    lines = [("/project/größe.py", 7, "fit"), ("main.py", 90, "<module>")]
    assert list(decode_callers(encode_callers(lines))) == lines
    assert encode_callers([]) == ""
    for damaged in ("", "[1]", '{"files": [1]}', '{"lines": ["7"]}'):
        with pytest.raises(FormatError):
            decode_callers(damaged)


def test_the_lines_that_led_to_calls_leave_half_of_the_table_to_names(path: Path) -> None:
    writer = RingWriter(path)
    for line in range(9000):
        callers = encode_callers([("x" * 200, line, "f")])
        writer.begin(CallRecord(op="barrier", callers=callers), 1.0, blocking=True)
    last = writer.begin(CallRecord(op="named", callers=callers), 1.0, blocking=True)
    record = RingReader(path).read(last)
    assert record is not None
    assert (record.call.op, record.call.callers) == ("named", "")
    assert not RingReader(path).table_full


def test_shapes_that_do_not_fit_are_left_out(path: Path) -> None:
    writer = RingWriter(path)
    few, many = ((4, 4),), ((1,) * 60,)
    shapes = [(few, few), (few, many), (many, few)]
    for inputs, outputs in shapes:
        call = replace(CALL, shapes=inputs, dtypes=("int8",), output_shapes=outputs, line=3)
        writer.begin(call, 1.0, blocking=True)
    reader = RingReader(path)
    records = [reader.read(index) for index in range(3)]
    read = [(r.call.shapes, r.call.output_shapes, r.call.dtypes, r.call.line) for r in records if r]
    rest = (("int8",), 3)
    assert read == [(few, few, *rest), (few, (), *rest), ((), (), *rest)]


def test_neither_large_groups_nor_long_paths_shorten_a_record(path: Path) -> None:
    writer = RingWriter(path)
    everybody = Group("0", tuple(range(2000)))
    call = replace(CALL, group=everybody, shapes=((3,),), file="/project/" + "x" * 600, line=3)
    for _ in range(2):
        writer.begin(call, 1.0, blocking=True)
    reader = RingReader(path)
    records = [reader.read(index) for index in range(2)]
    assert [record.call for record in records if record] == [call, call]
    assert not reader.table_full


def test_a_full_table_costs_names_and_is_noted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "FILE_BYTES", ring.FILE_BYTES - ring.TABLE_BYTES + 100)
    writer = RingWriter(path)
    reader = RingReader(path)
    writer.begin(CALL, 1.0, blocking=True)
    assert not reader.table_full
    writer.begin(replace(CALL, file="x" * 100, line=2), 2.0, blocking=True)
    record = reader.read(1)
    assert record is not None
    assert (record.call.op, record.call.group, record.call.file) == ("all_reduce", GROUP, "")
    assert reader.table_full


def test_a_log_of_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ring, "VERSION", ring.VERSION + 1)
        RingWriter(path)
    with pytest.raises(FormatError, match=f"version {ring.VERSION + 1}.*version {ring.VERSION}"):
        RingReader(path)


@pytest.mark.parametrize("data", [b"", b"x" * 100, bytes(1 << 16)])
def test_a_file_that_is_not_a_log_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(FormatError, match="not the call log"):
        RingReader(path)


def test_a_file_that_is_cut_while_it_is_read_is_empty(path: Path) -> None:
    writer = RingWriter(path)
    index = writer.begin(CALL, 1.0, blocking=True)
    reader = RingReader(path)
    assert reader.count == 1
    os.truncate(path, 0)  # what is mapped has no pages any more: reading them would be a SIGBUS
    assert (reader.count, reader.blocked_in, reader.table_full) == (0, None, False)
    assert (reader.read(index), reader.status(index)) == (None, None)


def test_a_reader_misses_no_record_while_the_ring_is_written(path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_MANY, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        reader = RingReader(path)
        process.stdin.write("go\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        seen = reads = 0
        while seen < RECORDS and time.monotonic() < deadline:
            count = reader.count
            assert count >= seen, "the count went back"
            seen = count
            if count == 0:
                continue
            record, blocked = reader.read(count - 1), reader.blocked_in
            if record is None:  # only if the ring came round in the meantime
                assert reader.count >= count - 1 + ring.SLOTS
                continue
            reads += 1
            assert (record.call.number, record.entered_s) == (count - 1, count - 1.0)
            if record.status == ring.DONE:
                assert (record.left_s, record.operations_after) == (count - 0.5, count - 1)
            if blocked is not None:
                assert blocked[0] == int(blocked[1])
        assert seen == RECORDS
        assert reads > 100
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.communicate(timeout=10)
