"""Which lines write into a parameter in place."""

from __future__ import annotations

import pytest

from ddt_notebook.program.parameter_writes import written_in_place
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("self.codes.weight.data.copy_(rows)", True),
        ("self.codes.weight.data = rows", True),
        ("self.codes.weight.data[at] = rows", True),
        ("model.codes.weight[at].detach().mul_(0.9)", True),
        ("accelerator.unwrap_model(model).codes.weight[at] = rows", True),
        ("accelerator.unwrap_model(model).other.weight[at] = rows", False),
        ("self.codes.weight = nn.Parameter(rows)", False),  # another tensor
        ("self.other.weight.data.copy_(rows)", False),
        ("self.codes.bias.data.copy_(rows)", False),
        ("rows.copy_(self.codes.weight)", False),
    ],
)
def test_lines_that_write(line: str, written: bool) -> None:
    source = f"def forward(self):\n    {line}\n\ndef __init__(self):\n    {line}\n"
    program = Program([Document("cell[1]", source)], 2)
    lines = [place.line for place in written_in_place(program, "model.inner.codes.weight")]
    assert lines == ([2] if written else [])


@pytest.mark.parametrize(
    ("loop", "line", "written"),
    [
        ("p in self.inner.parameters()", "p.data = 0.9 * p.data", True),
        ("p in self.inner.parameters()", "p.lerp_(q, 0.1)", True),
        ("_, p in model.named_parameters()", "p.data.add_(noise)", True),
        ("q, p in zip(self.other.parameters(), self.inner.parameters())", "p.copy_(q)", True),
        ("q, p in zip(self.inner.parameters(), self.other.parameters())", "p.copy_(q)", False),
        ("p in self.inner.parameters()", "p.requires_grad_(False)", False),
        ("p in self.inner.parameters()", "p.grad.zero_()", False),
        ("p in self.inner.parameters()", "p = 0.9 * p", False),
    ],
)
def test_loops_over_parameters_that_write(loop: str, line: str, written: bool) -> None:
    program = Program(
        [Document("cell[1]", f"def step(self):\n    for {loop}:\n        {line}\n")], 2
    )
    lines = [place.line for place in written_in_place(program, "model.inner.codes.weight")]
    assert lines == ([3] if written else [])
