"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddt_notebook.session import active

# A shell that starts the tests in the background makes them ignore SIGINT; some tests need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


#: Folders of tests with processes of their own: a busy machine fails one once, a fault twice.
#: How often a healthy program is accused on such a machine: benchmarks/busy_machine.py.
_WITH_PROCESSES = frozenset({"browser", "magics", "multiprocess", "notebooks"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each of them a second try; the end of the run names those that needed it."""
    tests = Path(__file__).parent
    for item in items:
        inside = item.path.relative_to(tests).parts if item.path.is_relative_to(tests) else ("",)
        if inside[0] in _WITH_PROCESSES:
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
