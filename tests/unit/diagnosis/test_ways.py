"""The lines from which two ranks came to one line of a helper."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis.ways import Ways
from ddt_notebook.model import Call, Cell, Position, Snapshot
from ddt_notebook.program.program import Program

SOURCE = """def meet():
    dist.barrier()
def arms():
    if rank == 0:
        meet()
    else:
        meet()
def leaves():
    if rank == 0:
        return meet()
    meet()
def in_another_order():
    if rank == 0:
        meet(actor), meet(critic)
    else:
        meet(critic), meet(actor)
def in_turn():
    meet()
    meet()
"""


def _call(*callers: int) -> Call:
    lines = [Position(file="cell[1]", line=line, function="f") for line in callers]
    where = Position(file="cell[1]", line=2, function="meet")
    return Call(index=0, op="barrier", sequence=1, where=where, callers=tuple(lines))


@pytest.fixture(scope="module")
def ways() -> Ways:
    snapshot = Snapshot(cell=Cell(number=1, source=SOURCE), outcome="ok", ranks=())
    return Ways(Program.of(snapshot))


def test_lines_that_run_one_after_the_other_are_apart(ways: Ways) -> None:
    one, other = _call(18, 20), _call(19, 20)
    assert not ways.meet(one, other)
    at = ways.apart(one, other)
    assert at is not None
    assert at.line == 18
    assert ways.meet(one, one)


@pytest.mark.parametrize("lines", [(5, 7), (10, 11)])
def test_the_arms_of_a_condition_are_one_way(ways: Ways, lines: tuple[int, int]) -> None:
    assert ways.meet(_call(lines[0], 20), _call(lines[1], 20))


def test_arms_that_call_a_function_in_another_order_are_apart(ways: Ways) -> None:
    assert not ways.meet(_call(14, 20), _call(16, 20))


def test_a_way_that_is_not_known_is_not_apart(ways: Ways) -> None:
    assert ways.meet(_call(), _call(18, 20))
