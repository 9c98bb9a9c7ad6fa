"""Which waits of the main thread can never end, since a thread has."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from ddt_notebook.model import RankError
from ddt_notebook.rank.probes.ended_threads import EndedThreads

_TRIES = 200


@pytest.mark.parametrize(
    ("limit_s", "reader", "found"), [(None, "", True), (60.0, "", False), (None, "reader", False)]
)
def test_a_wait_for_a_dead_thread_can_end_by_a_limit_or_another_thread(
    limit_s: float | None, reader: str, found: bool
) -> None:
    record, batches = EndedThreads(), queue.Queue[RankError | None]()
    record.note(threading.ExceptHookArgs((ValueError, ValueError("n/a"), None, None)))
    stops, waits = threading.Event(), threading.Event()

    def look() -> None:
        seen = None
        waits.wait()  # the main thread waits for the start of a thread, too
        for _ in range(_TRIES if found else 20):
            seen = record.awaited()
            if seen is not None:
                break
            time.sleep(0.005)
        batches.put(seen)

    others = {one for one in threading.enumerate() if one is not threading.main_thread()}
    names = {one: one.name for one in others}
    for one in others:  # those of pytest
        one.name = f"ddt-{one.name}"
    lives = threading.Thread(target=stops.wait, name=reader, daemon=True) if reader else None
    if lives is not None:
        lives.start()
    threading.Thread(target=look, name="ddt-look", daemon=True).start()
    waits.set()
    try:
        seen = batches.get(timeout=limit_s)
    finally:
        stops.set()
        for one, name in names.items():
            one.name = name
    assert (str(seen) if seen else None) == ("ValueError: n/a" if found else None)


def test_a_run_begins_without_the_threads_of_the_one_before() -> None:
    record = EndedThreads()
    record.note(threading.ExceptHookArgs((ValueError, ValueError("n/a"), None, None)))
    record.begin_run()
    assert record.error is None
