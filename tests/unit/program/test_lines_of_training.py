"""The lines to which a fault of training leads: inputs, learning rate, passes, a divided loss."""

from __future__ import annotations

from ddt_notebook.model import Place, Position
from ddt_notebook.program.gradients import (
    decides_passes,
    inputs_from,
    loss_divided_by_world,
    sets_rate,
)
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program
from ddt_notebook.program.sharded_values import shares_in_class

SOURCE = """\
class Share:
    def __init__(self, x, rank):
        self.rank = rank
        self.x = x[rank * 8:rank * 8 + 9]
class Trainer:
    def __init__(self):
        self.world, self.model = dist.get_world_size(), DDP(net)
    def draw(self):
        return windows()
    def run(self, every):
        for step in range(9):
            a, b = self.draw()
            x = torch.cat([a, b])
            for _ in range(every):
                loss = self.model(x).mean()
                loss /= self.world
                loss.backward()
            self.opt.step()
            for group in self.opt.param_groups:
                group["lr"] *= 0.5
    def other(self, every):
        for step, (x, y) in enumerate(self.data):
            loss = 0.5 * self.model(x).mean()
            loss.backward()
            mean = y / self.world
            if step % every == 0:
                self.opt.step()
"""


def _at(line: int, function: str) -> Position:
    return Position(file="cell[1]", line=line, function=function)


def _line(place: Place | None) -> int | None:
    return place.line if place is not None else None


def test_lines_to_which_a_fault_of_training_leads() -> None:
    program = Program([Document("cell[1]", SOURCE)], 2)
    assert _line(inputs_from(program, _at(15, "run"))) == 12
    assert _line(inputs_from(program, _at(23, "other"))) is None
    assert _line(sets_rate(program)) == 20
    assert _line(decides_passes(program, _at(17, "run"), _at(18, "run"))) == 14
    assert _line(decides_passes(program, _at(24, "other"), _at(27, "other"))) == 26
    assert _line(decides_passes(program, _at(17, "run"), _at(27, "other"))) is None
    assert _line(loss_divided_by_world(program, _at(17, "run"))) == 16
    assert _line(loss_divided_by_world(program, _at(24, "other"))) is None
    assert [one.line for one in shares_in_class(program, {"Share"})] == [4]
