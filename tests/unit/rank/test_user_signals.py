"""Observations that fail are left out; what a handler of a signal raised is not."""

from __future__ import annotations

import signal
from types import FrameType

import pytest

from ddt_notebook.rank.user_signals import left_out


def test_an_observation_that_fails_is_left_out() -> None:
    with left_out():
        raise ValueError


def test_the_time_limit_of_the_users_code_passes() -> None:
    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, over)
    try:
        with pytest.raises(TimeoutError), left_out():
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
