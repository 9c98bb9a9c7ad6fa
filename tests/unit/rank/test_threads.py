"""Which thread enters a collective, and which lines started it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddt_notebook.model.threads import ThreadCall
from ddt_notebook.rank.probes import threads
from ddt_notebook.wire import thread_file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], list[ThreadCall]]:
    record = threads.ThreadCalls()
    monkeypatch.setattr(threads, "RECORD", record)
    for owner, name in ((threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # restores it
    threads.install()
    record.attach(tmp_path / "rank0.threads")
    return lambda: list(thread_file.read(tmp_path / "rank0.threads"))


def _enter(until: threading.Event | None = None) -> None:
    threads.RECORD.call(until.wait if until else lambda: True, (), {}, "barrier", "0")


def _line() -> int:
    return sys._getframe(1).f_lineno


def test_the_lines_that_started_a_thread_and_its_open_call(
    calls: Callable[[], list[ThreadCall]],
) -> None:
    until = threading.Event()

    def begin() -> threading.Thread:
        thread = threading.Timer(0, _enter, args=(until,))
        thread.name = "saver"
        thread.start()
        return thread

    thread, line = begin(), _line()
    while not calls():
        pass
    (call,) = calls()
    assert (call.op, call.thread, call.pending) == ("barrier", "saver", True)
    assert call.started[0].function == "begin"
    assert call.started[1].line == line
    until.set()
    thread.join()
    assert [(one.times, one.pending) for one in calls()] == [(1, False)]


def test_work_in_a_pool_is_that_of_the_line_that_handed_it_over(
    calls: Callable[[], list[ThreadCall]],
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(len, "")
        work, line = pool.submit(_enter), _line()
        work.result()
    (call,) = calls()
    assert (call.started[0].line, call.where is not None) == (line, True)


def test_what_the_main_thread_calls_is_not_noted(calls: Callable[[], list[ThreadCall]]) -> None:
    _enter()
    assert calls() == []


def test_a_run_begins_without_the_calls_of_the_one_before(
    calls: Callable[[], list[ThreadCall]],
) -> None:
    for _ in range(2):
        threads.RECORD.begin_run()
        for _ in range(3):
            thread = threading.Thread(target=_enter)
            thread.start()
            thread.join()
    assert [one.times for one in calls()] == [3]


def test_the_last_run_of_a_long_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rank0.threads"
    line = thread_file.entered(0, "barrier", "0", "t" * 1000, None, [])
    last = thread_file.entered(0, "all_reduce", "0", "t", None, [])
    file.write_bytes(line * 2000 + thread_file.BEGINS + last)
    assert [one.op for one in thread_file.read(file)] == ["all_reduce"]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rank0.threads"
    whole = thread_file.entered(0, "barrier", "0", "t", ("a.py", 3, "f"), [])
    file.write_bytes(whole + thread_file.left(0) + whole[:20] + b"\xff\n[1, 2]\n{}\n[[]]\n")
    assert [(one.op, one.pending) for one in thread_file.read(file)] == [("barrier", False)]
