"""The call log outlives its writer, and a reader never takes one record for another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddt_notebook.wire import ring
from ddt_notebook.wire.ring import RingReader, RingWriter

RECORDS = 60_000
#: Writes records whose fields and times tell their number.
WRITE_MANY = f"""
import sys
from pathlib import Path
from ddt_notebook.wire.ring import DONE, RingWriter
writer = RingWriter(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range({RECORDS}):
    writer.begin({{"op": "barrier", "n": number}}, float(number), blocking=True)
    writer.end(number, DONE, number + 0.5, number)
"""
CALL = {"op": "all_reduce", "kind": "collective", "g": "0", "m": [0, 1], "a": 7}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.calls"


def test_a_record_is_there_before_its_call_is_made(path: Path) -> None:
    writer = RingWriter(path)
    index = writer.begin(CALL, 10.0, blocking=True)
    reader = RingReader(path)
    record = reader.read(index)
    assert record is not None
    assert (record.fields, record.entered_s) == (CALL, 10.0)
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
        writer.begin(CALL | {"op": "barrier"}, 3.0, blocking=True)
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL

    reader = RingReader(path)
    records = [reader.read(index) for index in range(reader.count)]
    assert [(r.fields["op"], r.status) for r in records if r] == [
        ("all_reduce", ring.DONE),
        ("barrier", ring.PENDING),
    ]
    assert reader.blocked_in == (1, 3.0)


def test_the_ring_comes_round(path: Path) -> None:
    writer = RingWriter(path)
    for number in range(ring.SLOTS + 2):
        writer.begin({"op": "barrier", "n": number}, 1.0, blocking=True)
    writer.end(0, ring.FAILED, 9.0, 9)  # its slot belongs to another record by now
    reader = RingReader(path)
    assert reader.count == ring.SLOTS + 2
    assert reader.read(0) is None
    assert reader.read(1) is None
    for index in (2, ring.SLOTS, ring.SLOTS + 1):
        record = reader.read(index)
        assert record is not None
        assert (record.fields["n"], record.status) == (index, ring.PENDING)
    assert reader.read(ring.SLOTS + 2) is None


def test_a_record_being_written_is_not_read(path: Path) -> None:
    """Between the first and the last byte of a record its slot has the number 0."""
    writer = RingWriter(path)
    index = writer.begin(CALL, 1.0, blocking=True)
    writer._map[64:72] = bytes(8)
    assert RingReader(path).read(index) is None


def test_a_record_that_is_too_long_keeps_what_identifies_the_call(path: Path) -> None:
    writer = RingWriter(path)
    long = CALL | {"f": "/project/" + "x" * 600, "l": 3, "n": "step"}
    index = writer.begin(long, 1.0, blocking=True)
    following = writer.begin(CALL, 2.0, blocking=True)
    reader = RingReader(path)
    record, after = reader.read(index), reader.read(following)
    assert record is not None
    assert after is not None
    assert record.fields == CALL | {"l": 3}
    assert after.fields == CALL


def test_a_record_of_a_very_large_group_loses_its_members_first(path: Path) -> None:
    writer = RingWriter(path)
    index = writer.begin(CALL | {"m": list(range(512)), "none": 1}, 1.0, blocking=True)
    record = RingReader(path).read(index)
    assert record is not None
    assert record.fields == {key: CALL[key] for key in ("op", "kind", "g", "a")} | {"none": 1}


def test_the_reader_cannot_write(path: Path) -> None:
    RingWriter(path)
    with pytest.raises(TypeError):
        RingReader(path)._map[0:1] = b"x"


def test_nothing_vanishes_while_it_is_written_to(path: Path) -> None:
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
            assert (record.fields["n"], record.entered_s) == (count - 1, count - 1.0)
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
