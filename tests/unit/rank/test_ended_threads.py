"""Which waits of the main thread can never end, since a thread has."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ddt_notebook.model import RankError
from ddt_notebook.rank.probes.ended_threads import EndedThreads

_TRIES = 200


class _Loader:
    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def put(self, batch: object) -> None:
        self.batches.put(batch)


def _ends(read: Callable[[], object]) -> threading.ExceptHookArgs:
    """The exception that ends a thread."""
    try:
        read()
    except ValueError as error:
        return threading.ExceptHookArgs((ValueError, error, error.__traceback__, None))
    raise AssertionError


def _read_into(batches: object) -> None:
    raise ValueError("n/a")


def _read_through(put: Callable[[object], None]) -> None:
    raise ValueError("n/a")


def _read_alone() -> None:
    raise ValueError("n/a")


_READ: dict[str, Callable[[Any], Callable[[], object]]] = {
    "its queue": lambda batches: lambda: _read_into(batches),
    "a method": lambda batches: partial(_read_through, _Loader(batches).put),
    "a list": lambda batches: partial(_read_into, [batches]),
    "another queue": lambda batches: partial(_read_into, queue.Queue()),
    "nothing": lambda batches: _read_alone,
}


@pytest.mark.parametrize(
    ("limit_s", "reader", "knows", "found"),
    [
        (None, "", "its queue", True),
        (None, "", "a method", True),
        (None, "", "a list", True),
        (None, "", "another queue", False),
        (None, "", "nothing", False),
        (60.0, "", "its queue", False),
        (None, "reader", "its queue", False),
    ],
)
def test_a_wait_for_a_dead_thread_can_end_by_a_limit_or_by_somebody_else(
    limit_s: float | None, reader: str, knows: str, found: bool
) -> None:
    record, batches = EndedThreads(), queue.Queue[RankError | None]()
    record.note(_ends(_READ[knows](batches)))
    record.note(_ends(_read_alone))
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
    event = threading.Event()
    record.note(_ends(lambda: _read_into(event)))
    assert record._ended
    record.begin_run()
    assert not record._ended
