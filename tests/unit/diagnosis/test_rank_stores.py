"""What a loop looks at and only some ranks have stored, as the source shows it."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.diagnosis.rank_stores import stored_by_some
from ddt_notebook.model import Place
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program

RESUMED = """
class Trainer:
    def __init__(self):
        self.step = 0

    def load(self, file):
        {guard}
        self.step = torch.load(file)["step"]

    def train(self):
        while self.step < self.steps:
            self.step += 1

trainer = Trainer()
{call}
trainer.train()
"""
IN_STATE = """
def train(state, loader):
    for batch in loader:
        if state["iter_num"] >= most:
            break
        state["iter_num"] += 1

state = dict(iter_num=0)
if {test}:
    state["iter_num"] = torch.load("meta.pth")["iter_num"]
train(state, loader)
"""


def _lines(source: str, loop: str) -> list[tuple[str, int | None, tuple[int, ...]]]:
    source = textwrap.dedent(source)
    program = Program([Document("train.py", source)], 2)
    line = source[: source.index(loop)].count("\n") + 1
    place = Place(file="train.py", line=line, function="train", code=loop)
    return [
        (name, at.line if at is not None else None, ranks)
        for name, lines in stored_by_some(program, place, (0, 1))
        for at, ranks in lines
    ]


def test_the_others_return_before_it_is_stored() -> None:
    source = RESUMED.format(guard="if rank != 0: return", call='trainer.load("a.pt")')
    assert _lines(source, "while") == [("self.step", 8, (0,)), ("self.step", None, (1,))]


def test_a_function_that_one_rank_calls() -> None:
    source = RESUMED.format(guard="pass", call='if rank == 1: trainer.load("a.pt")')
    assert _lines(source, "while") == [("self.step", 8, (1,)), ("self.step", None, (0,))]


@pytest.mark.parametrize("guard", ["pass", "if rank != 0: print(file)", "if file is None: return"])
def test_all_ranks_store_it(guard: str) -> None:
    source = RESUMED.format(guard=guard, call='trainer.load("a.pt")')
    assert _lines(source, "while") == []


def test_an_item_under_which_a_loop_ends() -> None:
    found = _lines(IN_STATE.format(test="rank == 0"), "for")
    assert found == [("state['iter_num']", 10, (0,)), ("state['iter_num']", None, (1,))]
    assert _lines(IN_STATE.format(test="resume"), "for") == []
