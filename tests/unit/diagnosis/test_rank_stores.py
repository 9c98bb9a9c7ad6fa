"""What a loop looks at and only some ranks have stored, as the source shows it."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.diagnosis.rank_stores import Lacking, lacking, stored_by_some
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


PREPARED = """
class Data(LightningDataModule):
    def __init__(self):
        self.train = None

    def {hook}(self):
        self.split()

    def split(self):
        self.train = load()

    def train_dataloader(self):
        return DataLoader(self.train, 4)
"""
REFRESHED = """
class Rows(Dataset):
    def __init__(self):
        self.refresh()

    def refresh(self):
        self.step = 0

    def __getitem__(self, index):
        row = self.rows[self.step]
        self.step += 1
        return row

class Refresh(TrainerCallback):
    def on_epoch_end(self, args, state, control):
        {call}
"""


def _lacking(source: str, line: str, raised: tuple[int, ...] = (1,)) -> Lacking | None:
    program = Program([Document("train.py", source)], 2)
    number = source[: source.index(line)].count("\n") + 1
    place = Place(file="train.py", line=number, function="f", code=line)
    return lacking(program, place, raised, (0, 1), (0,))


def test_what_lightning_prepares_on_the_first_rank_of_a_host() -> None:
    found = _lacking(PREPARED.format(hook="prepare_data"), "return DataLoader")
    assert found is not None
    assert (found.names, found.way.line, found.stored.line) == (("self.train",), 7, 10)
    assert (found.ranks, found.hook, found.library) == ((0,), "prepare_data", "Lightning")
    assert _lacking(PREPARED.format(hook="setup"), "return DataLoader") is None
    other = PREPARED.format(hook="prepare_data").replace("LightningDataModule", "Base")
    assert _lacking(other, "return DataLoader") is None
    derived = f"class Base(L.LightningDataModule):\n    pass\n{other}"
    assert _lacking(derived, "return DataLoader") is not None


def test_what_one_rank_alone_stores_again() -> None:
    source = REFRESHED.format(call="if args.process_index == 0: self.rows.refresh()")
    found = _lacking(source, "row = self.rows[self.step]")
    assert found is not None
    assert (found.names, found.way.line, found.stored.line) == (("self.step",), 16, 7)
    assert _lacking(source, "row = self.rows[self.step]", raised=(0,)) is None  # it has stored it
    assert _lacking(source, "row = self.rows[self.step]", raised=(0, 1)) is None


@pytest.mark.parametrize(
    "call",
    [
        "self.rows.refresh()",
        "if state.epoch > 1: self.rows.refresh()",
        "if args.process_index == 0: print(self.rows.step)",
    ],
)
def test_what_all_ranks_store_is_not_lacking(call: str) -> None:
    assert _lacking(REFRESHED.format(call=call), "row = self.rows[self.step]") is None


@pytest.mark.parametrize(("other", "told"), [("None", True), ("make()", False)])
def test_ranks_that_store_their_own(other: str, told: bool) -> None:
    source = f"""
if rank == 0:
    table = load()
else:
    table = {other}
print(table[3])
"""
    assert (_lacking(source, "print(") is not None) == told
