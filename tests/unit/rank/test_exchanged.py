"""The record of what a program's own collectives are given."""

from __future__ import annotations

import sys

import pytest
import torch

from ddt_notebook.model import Position
from ddt_notebook.model.exchanged import Exchanged
from ddt_notebook.rank.probes import exchanged

WHERE = Position(file="train.py", line=1)
ABOUT = Exchanged(op="all_reduce", where=WHERE, number=1, members=(0, 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e308, 0.0, 2.5])
@pytest.mark.parametrize("loss", [0.0, 1e-308, float("nan"), float("inf"), 2.5])
def test_every_number_can_be_reduced(value: float, loss: float) -> None:
    best = value, loss, torch.tensor([value, loss])  # are looked through, as variables of a frame
    tensor = torch.tensor(value, dtype=torch.float64)
    taken = exchanged._reduces(ABOUT, tensor, sys._getframe(), loss)
    assert best
    if value == loss == 2.5:
        assert taken is not None
        assert taken.about.of_loss
    elif taken is not None:
        assert not taken.about.of_loss
