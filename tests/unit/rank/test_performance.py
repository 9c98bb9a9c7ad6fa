"""What the counters of the main thread show of a cell."""

from __future__ import annotations

import os
import time

import pytest

from ddt_notebook.model import codec
from ddt_notebook.model.performance import RankPerformance
from ddt_notebook.rank.probes import performance


def spent(seconds: float, *, busy: bool) -> RankPerformance:
    record = performance.PerformanceRecord()
    record.begin_run()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not busy:
            time.sleep(seconds)
    record.end_run()
    return record.observed(0)


def test_sleep_counts_neither_as_computing_nor_as_queueing() -> None:
    measured = spent(0.2, busy=False)
    assert measured.cpu_s < 0.1
    # on a busy machine, a thread that wakes up waits for a processor
    assert (measured.queued_s or 0.0) < measured.ran_s - 0.1


def test_work_counts_as_computing_or_as_queueing() -> None:
    measured = spent(0.2, busy=True)
    assert measured.cpu_s + (measured.queued_s or 0.2) > 0.1


def test_a_short_cell_is_not_examined() -> None:
    record = performance.PerformanceRecord()
    record.begin_run()
    record.end_run()
    assert not record.is_long
    assert record.observed(0).ran_s == 0.0


def test_other_threads_are_counted_apart(monkeypatch, tmp_path) -> None:
    mine, other, fresh = str(os.getpid()), "11", "12"

    def queued(**seconds: float) -> None:
        for thread, spent_s in seconds.items():
            (tmp_path / thread[1:]).mkdir(exist_ok=True)
            (tmp_path / thread[1:] / "schedstat").write_text(f"5 {spent_s * 1e9:.0f} 7\n")

    monkeypatch.setattr(performance, "_THREADS", str(tmp_path))
    monkeypatch.setattr(performance, "_SLOW_FROM_S", 0.0)
    record = performance.PerformanceRecord()
    queued(**{f"t{mine}": 1.0, f"t{other}": 2.0})
    record.begin_run()
    queued(**{f"t{mine}": 1.25, f"t{other}": 2.5, f"t{fresh}": 3.0})
    record.end_run()
    measured = record.observed(0)
    assert measured.queued_s == pytest.approx(0.25)
    assert measured.queued_beside_s == pytest.approx(3.5)


def test_without_counters_nothing_is_reported(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(performance, "_THREADS", str(tmp_path / "task"))
    assert spent(0.2, busy=False).queued_s is None
    assert codec.to_plain(RankPerformance(rank=0, queued_s=None)) == {"rank": 0}
