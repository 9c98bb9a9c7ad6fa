"""The random states with which a script begins."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

from ddt_notebook.rank.script import seed


@pytest.fixture
def states():
    kept = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    yield
    torch.set_rng_state(kept[0])
    random.setstate(kept[1])
    numpy.random.set_state(kept[2])


def _next_word() -> int:
    """The word of NumPy's state from which libraries take a seed, as they do without one."""
    _, words, at, *_ = numpy.random.get_state()
    return int(words[at] if at < len(words) else words[0])


def test_a_seed_of_an_earlier_script_leaves_no_trace(states: None) -> None:
    found = set()
    for _ in range(3):
        numpy.random.seed(42)  # after which NumPy stands at the end of its state
        seed(None, 0)
        found.add(_next_word())
    assert len(found) == 3
