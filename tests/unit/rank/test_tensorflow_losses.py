"""Gradients of which another form is given to an optimizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ddt_notebook.rank.frameworks.tensorflow_losses import LossRecord, Mean


class _Operation:
    def __init__(self, kind: str, *inputs: _Operation) -> None:
        self.type = kind
        self.inputs = [SimpleNamespace(op=one) for one in inputs]


@pytest.mark.parametrize(
    ("kinds", "known"),
    [
        ((), True),
        (("UnsortedSegmentSum", "Cast"), True),
        (("Mul",), False),
        (("CollectiveReduceV2",), False),
    ],
    ids=["as it is", "the whole table", "scaled", "summed over workers"],
)
def test_a_gradient_in_another_form_is_that_of_the_same_loss(
    kinds: tuple[str, ...], known: bool
) -> None:
    record = LossRecord()
    mean = Mean(None, scaled=False, divided_by=None)
    made = last = _Operation("GatherNd")
    record._means[made] = mean
    for kind in kinds:
        last = _Operation(kind, last)
    gradients: list[Any] = [(SimpleNamespace(op=last), None), (SimpleNamespace(op=made), None)]
    assert record.mean_of(gradients) == (mean if known else None)
