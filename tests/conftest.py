"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddt_notebook.session import active

# A shell that starts the tests in the background makes them ignore SIGINT; some tests need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def nothing_has_run() -> Iterator[None]:
    """What ran last in one test is nothing to the next."""
    yield
    active.keep(None)
