"""Whether what was reduced is divided by the rows of a tensor of the rank's own."""

from __future__ import annotations

import pytest

from ddt_notebook.model import Position
from ddt_notebook.program.own_rows import divided_by_rows
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program

FUNCTION = """
def update(self, x, y):
    total = x.sum(0)
    dist.all_reduce(total)
    {after}
    self.centre = self.centre * 0.9 + total * 0.1
    return total
"""


def _line(after: str) -> int | None:
    program = Program([Document("cell[1]", FUNCTION.format(after=after))], 2)
    found = divided_by_rows(program, Position(file="cell[1]", line=4), {"x"})
    return found[1].line if found is not None else None


@pytest.mark.parametrize(
    "after", ["total = total / len(x)", "total /= x.shape[0]", "total /= x.size(0)"]
)
def test_rows_of_the_tensor_that_was_summed(after: str) -> None:
    assert _line(after) == 5


@pytest.mark.parametrize(
    "after",
    [
        "total = total / (len(x) * world)",
        "total = total / len(x) / world",
        "total /= len(x); total /= world",
        "total = total * (1 / world) / len(x)",
        "total /= len(self.data)",
        "total /= len(y)",
        "mean = total / len(x); total = mean / world",
        "total.div_(len(x)); total.div_(world)",
        "pass",
    ],
)
def test_other_divisions(after: str) -> None:
    assert _line(after) is None
