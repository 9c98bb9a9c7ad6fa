"""The numbers that a program gave to collectives after an evaluation."""

from __future__ import annotations

import torch

from ddt_notebook.rank.probes.accumulated import elements


def test_only_finite_elements_are_kept() -> None:
    """A saved run holds no infinity and no NaN: it could not be read again."""
    assert list(elements(torch.tensor([1.0, float("inf"), float("nan"), -2.0]))) == [1.0, -2.0]
    assert [*elements(float("inf")), *elements(3)] == [3.0]
