"""Notes the user's lines that seed torch's random numbers, by seed.

A library may pass the same seed on, as Lightning does to the samplers that it makes.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from ...model import Position
from .frames import user_line

_MAX_SEEDS = 64
#: The last line for each seed.
SEEDED_AT: dict[int, Position] = {}


def latest() -> tuple[int | None, Position | None]:
    """The present seed of torch's random numbers and the line that set it; None if none did."""
    seed = torch.initial_seed()
    where = SEEDED_AT.get(seed)
    return (seed, where) if where is not None else (None, None)


def install() -> None:
    """Note each call of ``torch.manual_seed``."""
    original = torch.manual_seed

    @functools.wraps(original)
    def manual_seed(seed: Any) -> torch.Generator:
        __tracebackhide__ = True
        generator = original(seed)
        where = user_line(sys._getframe())
        number = torch.initial_seed()
        if where is not None and (number in SEEDED_AT or len(SEEDED_AT) < _MAX_SEEDS):
            SEEDED_AT[number] = where
        return generator

    torch.manual_seed = torch.random.manual_seed = manual_seed
