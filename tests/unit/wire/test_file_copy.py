"""A copy of a rank's files holds what the rank wrote, at any moment at which it is read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ddt_notebook.model.branches import BranchOutcome
from ddt_notebook.wire import ring
from ddt_notebook.wire.branch_ring import BranchRingReader, BranchRingWriter
from ddt_notebook.wire.file_copy import BranchCopy, FileCopy, RingCopy, TextCopy, write_pieces
from ddt_notebook.wire.records import CallRecord, Group
from ddt_notebook.wire.ring import RingReader, RingWriter

CALL = CallRecord(op="all_reduce", group=Group("0", (0, 1)), operations_before=7)


class Copied:
    """A file, its copy, and how many bytes were copied so far."""

    def __init__(self, folder: Path, copy: FileCopy, size: int) -> None:
        self.path = folder / "copy"
        self._copy, self._size = copy, size
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._descriptor, size)
        self.bytes = 0

    def renew(self) -> int:
        """Copy what has changed; returns how many bytes that took."""
        pieces = self._copy.changes(1 << 18)
        data = b"".join(data for _, data in pieces)
        places = tuple((at, len(data)) for at, data in pieces)
        write_pieces(self._descriptor, places, data, self._size)
        return len(data)


@pytest.fixture
def written(tmp_path: Path) -> RingWriter:
    return RingWriter(tmp_path / "rank0.calls")


@pytest.fixture
def copied(tmp_path: Path, written: RingWriter) -> Copied:
    return Copied(tmp_path, RingCopy(tmp_path / "rank0.calls"), ring.FILE_BYTES)


def test_a_call_log_is_copied_before_the_first_record(copied: Copied) -> None:
    copied.renew()
    assert RingReader(copied.path).count == 0


def test_records_and_their_later_ends_are_copied(written: RingWriter, copied: Copied) -> None:
    first = written.begin(CALL, 1.0, blocking=False)
    second = written.begin(replace(CALL, op="barrier"), 2.0, blocking=True)
    copied.renew()
    reader = RingReader(copied.path)
    assert (reader.count, reader.blocked_in) == (2, (second, 2.0))
    assert [reader.read(index).call.op for index in (first, second)] == ["all_reduce", "barrier"]
    written.settle(first, ring.DONE, 3.0)  # only the record changes
    copied.renew()
    record = reader.read(first)
    assert (record.status, record.left_s, reader.blocked_in) == (ring.DONE, 3.0, (second, 2.0))
    written.end(second, ring.FAILED, 4.0, 9)
    copied.renew()
    record = reader.read(second)
    assert (record.status, record.operations_after, reader.blocked_in) == (ring.FAILED, 9, None)


def test_only_what_differs_is_copied(written: RingWriter, copied: Copied) -> None:
    for number in range(1000):
        written.end(written.begin(CALL, float(number), blocking=True), ring.DONE, number + 0.5, 8)
    assert copied.renew() > 50_000
    assert copied.renew() == 0
    written.end(written.begin(CALL, 2000.0, blocking=True), ring.DONE, 2000.5, 8)
    assert 0 < copied.renew() < 600


def test_a_ring_that_went_round_is_copied_with_new_names(
    written: RingWriter, copied: Copied
) -> None:
    for number in range(3 * ring.SLOTS):
        call = replace(CALL, file=f"file{number // 500}.py", line=number + 1)
        written.end(written.begin(call, float(number), blocking=True), ring.DONE, number + 0.5, 8)
        if number % 1700 == 0:
            copied.renew()
    copied.renew()
    theirs, ours = RingReader(copied.path), RingReader(copied.path.with_name("rank0.calls"))
    assert theirs.count == ours.count == 3 * ring.SLOTS
    for index in range(2 * ring.SLOTS, 3 * ring.SLOTS):
        assert theirs.read(index) == ours.read(index) is not None


def test_branch_events_are_copied_by_the_pages_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "rank0.branches"
    copied = Copied(tmp_path, BranchCopy(path), 0)
    assert copied.renew() == 0  # there is no file yet
    writer = BranchRingWriter(path)
    copied = Copied(tmp_path, BranchCopy(path), path.stat().st_size)
    copied.renew()
    reader = BranchRingReader(copied.path)
    assert not reader.has_events
    outcome = writer.add_outcome(BranchOutcome(file="cell[1]", line=3))
    for _ in range(10):
        writer.write(outcome)
    assert 0 < copied.renew() <= 4 * 4096
    assert reader.read() == BranchRingReader(path).read()
    assert len(reader.read().events) == 10


def test_text_that_grew_too_fast_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rank0.out"
    path.write_bytes(b"a" * 100)
    copied = Copied(tmp_path, TextCopy(path), 1 << 23)
    assert copied.renew() == 100
    with path.open("ab") as printed:
        printed.write(b"b" * (5 << 20) + b"end")
    while copied.renew():
        pass
    content = copied.path.read_bytes()[: path.stat().st_size]
    assert content.startswith(b"a" * 100 + b"\0")
    assert content.endswith(b"b" * 1000 + b"end")


def test_pieces_outside_of_the_copy_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    write_pieces(descriptor, ((-1, 2), (8, 4), (2, 2), (3, 1 << 40)), b"xxyyyyzzw", 10)
    os.close(descriptor)
    assert path.read_bytes() == b"\0\0zw"
