"""What a rank of a job notes when an exception leaves a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddt_notebook.rank.probes.calls import CallLog
from ddt_notebook.wire.records import CallRecord
from ddt_notebook.wire.ring import RingReader, RingWriter


def test_the_exception_is_noted_before_the_call_is_seen_to_have_ended(tmp_path: Path) -> None:
    """Otherwise a launcher that ends the process in between leaves a rank that waits for nothing.

    The time of the note is that of the end: what a rank records later shows that it has gone on.
    """
    log = CallLog(None)
    log.attach(RingWriter(tmp_path / "calls"))
    reader = RingReader(tmp_path / "calls")
    noted: list[tuple[object, float]] = []

    def note(_: BaseException, ended_s: float) -> None:
        noted.append((reader.blocked_in, ended_s))

    def fail() -> None:
        raise RuntimeError("connection closed by peer")

    log.failure_hook = note
    with pytest.raises(RuntimeError):
        log.record(CallRecord(op="barrier"), fail, "")
    ((blocked, ended_s),) = noted
    assert blocked is not None
    assert reader.blocked_in is None
    assert reader.changed_s == ended_s
