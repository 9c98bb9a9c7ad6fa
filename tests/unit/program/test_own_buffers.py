"""Which buffers a class updates from what they held, and uses."""

from __future__ import annotations

import pytest

from ddt_notebook.program.own_buffers import accumulates
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program

CLASS = """
class Part(nn.Module):
    def __init__(self):
        self.register_buffer("kept", torch.zeros(3))
    def forward(self, x):
        {update}
        {use}
def moved(old, new):
    old.data.mul_(0.9).add_(new)
def copied(old, new):
    old.copy_(new)
def enqueue(self, new, at, queue):
    queue[:, at : at + 4] = new.T
def begin(self, queue):
    queue[:] = 0
"""


def _lines(update: str, use: str) -> list[int]:
    source = CLASS.format(update=update, use=use)
    program = Program([Document("cell[1]", source)], 2)
    return [place.line for place in accumulates(program, "kept")]


@pytest.mark.parametrize(
    "update",
    [
        "self.kept += x.mean(0)",
        "self.kept[at] = x",
        "self.kept = self.kept * 0.9 + x.mean(0) * 0.1",
        "self.kept = torch.lerp(self.kept, x.mean(0), 0.1)",
        "self.kept.mul_(0.9).add_(x.mean(0), alpha=0.1)",
        "self.kept.data.lerp_(x.mean(0), 0.1)",
        "self.kept.data[at] = x",
        "moved(self.kept, x.mean(0))",
        "self.enqueue(x, 0, self.kept)",
        "self.enqueue(x, queue=self.kept, at=0)",
    ],
)
def test_an_update_from_the_old_content_is_found(update: str) -> None:
    assert _lines(update, "return x - self.kept") == [6]


@pytest.mark.parametrize(
    ("update", "use"),
    [
        ("self.kept = x.detach()", "return x - self.kept"),
        ("self.kept.copy_(x)", "return x - self.kept"),
        ("copied(self.kept, x)", "return x - self.kept"),
        ("moved(x, self.kept)", "return x - self.kept"),
        ("self.begin(self.kept)", "return x - self.kept"),
        ("self.enqueue(self.kept, 0, x)", "return x - self.kept"),
        ("self.kept[:] = x", "return x - self.kept"),
        ("out, self.kept = self.cell(x, self.kept)", "return out - self.kept"),
        ("self.kept = self.cell(x, self.kept)", "return x - self.kept"),
        ("self.kept += x.mean(0)", "return x"),
        ("self.kept += x.mean(0)", "print(self.kept.sum(), len(self.kept))"),
        ("self.kept += x.mean(0)", "print(f'{self.kept.sum()}')"),
        ("self.other += x.mean(0)", "return x - self.kept"),
    ],
)
def test_a_state_of_the_batch_and_a_counter_are_not(update: str, use: str) -> None:
    assert _lines(update, use) == []
