"""Fixtures for all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# A shell that starts the tests in the background makes them ignore SIGINT; some tests need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent
