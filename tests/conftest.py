"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from ddt_notebook.host.session import active

# A shell that starts the tests in the background makes them ignore SIGINT; some tests need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


#: Tests with a browser, a kernel or ranks: a machine that stalls for a second fails one of some
#: thousand, a fault fails it twice. The end of the run shows what failed at first: there, a wrong
#: accusation is a fault all the same (benchmarks/busy_machine.py looks for more of them).
_TWICE = (
    "tests/browser/",
    "tests/magics/",
    "tests/multiprocess/",
    "tests/notebooks/",
)


#: What these find depends on the time that ranks take: they run when no browser computes any more.
_MEASURING = (
    "test_cards.py",
    "test_held_out.py",
    "test_memory.py",
    "test_showing.py",
    "test_slow_ranks.py",
    "test_timeline.py",
    "test_training_faults.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Have all notebooks use one kernel, where nbval tests them."""
    if config.getoption("nbval_lax", False):
        from .lesson_kernels import LessonKernels

        config.pluginmanager.register(LessonKernels())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give some a second try, of which the end of the run names those that needed it.

    A browser computes and ranks wait: in turns, their files keep the processors busy.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    computing, waiting = (
        [name for name in files if name.startswith(place)]
        for place in ("tests/browser/", "tests/multiprocess/")
    )
    waiting.sort(key=lambda name: name.endswith(_MEASURING))
    turns = [name for pair in zip_longest(computing, waiting) for name in pair if name]
    items[:] = [item for name in dict.fromkeys([*turns, *files]) for item in files[name]]
    for item in items:
        if item.nodeid.startswith(_TWICE):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def nothing_has_run() -> Iterator[None]:
    """What ran last in one test is nothing to the next."""
    yield
    active.keep(None)
