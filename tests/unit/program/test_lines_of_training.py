"""The lines to which a fault of training leads: inputs, learning rate, passes, a divided loss."""

from __future__ import annotations

import pytest

from ddt_notebook.model import Place, Position
from ddt_notebook.program.gradients import (
    clips_at_scaled_limit,
    decides_passes,
    divides_by_world,
    inputs_from,
    loss_divided_by_world,
    sets_rate,
    sets_synchronisation,
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

DIVIDED = """\
loss = model(x).mean() / 2
loss.backward()
loss = loss.detach()
loss /= world_size
for x in data:
    loss = model(x).mean() / world_size
    loss.backward()
def fit():
    for x in data:
        loss = model(x).mean() / 2
        loss.backward()
        loss = shared(loss)
def shared(loss):
    dist.all_reduce(loss)
    return loss / world_size
"""
CLIPPED = """\
def fit(limit):
    print(scaler.get_scale())
    {}
NORM = 5.0
factor = scaler.get_scale()
scaled = 5.0 * factor
"""
SHARES = """\
class Share:
    def __init__(self, x, rank, world):
        self.generator = torch.Generator().manual_seed(1000 + rank)
        self.log = open("rank-%d.txt" % rank)
        self.shows = rank == 0
        begin = rank * 8
        self.cut = x[begin:begin + 8]
        self.every = [one for at, one in enumerate(x) if at % world == rank]
        self.at = range(rank, len(x), world)
        self.node = x.chunk(world)[rank]
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


def test_only_a_division_before_backward_divides_its_loss() -> None:
    program = Program([Document("cell[1]", DIVIDED)], 2)
    top = "<module>"
    assert _line(loss_divided_by_world(program, _at(2, top))) is None
    assert _line(loss_divided_by_world(program, _at(7, top))) == 6
    assert _line(loss_divided_by_world(program, _at(11, "fit"))) is None
    assert divides_by_world(program, _at(9, "fit"))
    assert not divides_by_world(Program([Document("cell[1]", SHARES)], 2), _at(8, "__init__"))


@pytest.mark.parametrize(
    ("call", "scaled"),
    [
        ("clip_grad_norm_(parameters, 5.0)", False),
        ("clip_grad_norm_(parameters, max_norm=NORM)", False),
        ("clip_grad_norm_(parameters, 5.0 * scaler.get_scale())", True),
        ("clip_grad_value_(parameters, scaled)", True),
        # the limit is not known
        ("clip_grad_norm_(parameters, limit)", True),
        ("clip(parameters)", True),
    ],
)
def test_a_limit_of_clipping_that_may_come_from_the_scaler(call: str, scaled: bool) -> None:
    source = CLIPPED.format(call)
    assert clips_at_scaled_limit(Program([Document("cell[1]", source)], 2)) is scaled
    without = Program([Document("cell[1]", source.replace("get_scale", "get"))], 2)
    assert not clips_at_scaled_limit(without)


def test_a_share_is_cut_out_or_counted_out() -> None:
    program = Program([Document("cell[1]", SHARES)], 2)
    assert [one.line for one in shares_in_class(program, {"Share"})] == [7, 8, 9, 10]


def test_the_line_that_switches_the_averaging_of_ddp() -> None:
    source = """
class Trainer:
    def step(self, batches):
        for number, batch in enumerate(batches):
            self.model.require_backward_grad_sync = number == len(batches)
            loss = self.model(batch)
            loss.backward()
        self.model.require_backward_grad_sync = True
"""
    program = Program([Document("train.py", source)], 2)
    place = sets_synchronisation(program, Position(file="train.py", line=6))
    assert _line(place) == 5
    without = Program([Document("train.py", "model(x).backward()")], 2)
    assert sets_synchronisation(without, Position(file="train.py", line=1)) is None
