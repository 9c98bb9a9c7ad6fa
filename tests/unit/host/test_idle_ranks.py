"""After how long idle ranks stop, on small and on large machines."""

from __future__ import annotations

import pytest

from ddt_notebook.host.idle_ranks import SMALL_BYTES, IdleLimits

LARGE = 2 * SMALL_BYTES


@pytest.mark.parametrize(
    ("minutes", "total", "idle_s", "used", "stop"),
    [
        (None, LARGE, 1e6, 0.99, False),
        (0, SMALL_BYTES, 1e6, 0.99, False),
        (None, SMALL_BYTES, 1700, 0.5, False),
        (None, SMALL_BYTES, 1900, 0.5, True),
        (None, SMALL_BYTES, 70, 0.9, True),
        (None, SMALL_BYTES, 30, 0.9, False),
        (20, LARGE, 1100, 0.99, False),
        (20, LARGE, 1300, 0.1, True),
    ],
)
def test_idle_ranks_stop_if_asked_or_on_a_small_machine(
    minutes: float | None, total: int, idle_s: float, used: float, stop: bool
) -> None:
    assert IdleLimits.of(minutes, total).reached(idle_s, lambda: used) is stop
