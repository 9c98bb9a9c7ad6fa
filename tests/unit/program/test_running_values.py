"""Which attributes a program normalises with, and which it moves towards new values."""

from __future__ import annotations

import pytest

from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program
from ddt_notebook.program.running_values import moving_averages, normalisers

CLASS = """
class Norm:
    def __init__(self):
        self.mean, self.var, self.count = zeros(3), ones(3), 0.0
    def update(self, x):
        {update}
        self.var = self.var + 0.1 * (x.var(0) - self.var)
def use(norm, x):
    return {use}
"""


def _program(update: str, use: str) -> Program:
    return Program([Document("cell[1]", CLASS.format(update=update, use=use))], 2)


@pytest.mark.parametrize(
    "update",
    ["self.mean += x", "self.mean, n = merged(self.mean, x)", "self.mean.lerp_(x, 0.1)"],
)
@pytest.mark.parametrize(
    "use",
    [
        "(x - norm.mean) / (norm.var + 1e-5).sqrt()",
        "np.clip((x - self.rms.mean) / np.sqrt(self.rms.var), -5, 5)",
        "(x - norm.mean) * torch.rsqrt(norm.var)",
        "torch.div(x - norm.mean, norm.var)",
        "(x - norm.mean).div(norm.var)",
    ],
)
def test_what_is_subtracted_and_divided_by_normalises(update: str, use: str) -> None:
    found = normalisers(_program(update, use), ["mean", "var"])
    assert [place.line for place in found] == [6, 7]


def test_a_root_that_is_divided_by_normalises() -> None:
    found = normalisers(_program("self.mean += x", "x / np.sqrt(norm.var)"), ["mean", "var"])
    assert [place.line for place in found] == [7]


@pytest.mark.parametrize(
    "use",
    ["x - norm.mean", "norm.mean / norm.var", "(x - norm.mean) / norm.mean", "x / norm.var"],
)
def test_a_state_or_a_meter_does_not(use: str) -> None:
    assert normalisers(_program("self.mean += x", use), ["mean", "var"]) == []


@pytest.mark.parametrize(
    ("update", "use", "found"),
    [
        ("self.mean = 0.9 * self.mean + 0.1 * x", "x - norm.mean", [6]),
        ("self.mean.mul_(0.9).add_(x)", "x - norm.mean", [6]),
        ("self.mean = torch.lerp(self.mean, x, 0.1)", "x - norm.mean", [6]),
        ("self.mean[at] = 0.9 * self.mean[at] + x", "x - norm.mean", []),
        ("self.mean = self.mean + x", "x - norm.mean", []),
        ("self.mean = 0.9 * self.mean + 0.1 * x", "print(norm.mean)", []),
    ],
)
def test_moving_averages(update: str, use: str, found: list[int]) -> None:
    assert [place.line for place in moving_averages(_program(update, use), "mean")] == found
