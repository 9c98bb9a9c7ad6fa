"""Which line last stored what a condition looks at, as the ranks' branch events show."""

from __future__ import annotations

from ddt_notebook.diagnosis.last_stores import LastStores
from ddt_notebook.model import Position
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.program.branch_arms import decision_at
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program

SOURCE = """
class Stopper:
    def check(self, trainer, loss):
        if rank != 0:
            return
        trainer.stop = loss > 1

class Trainer:
    def __init__(self):
        self.stop = False
    def fit(self):
        while True:
            if self.stop:
                break

class Server:
    def close(self):
        self.stop = True
"""
FILE = "train.py"
AT_GUARD, IN_INIT, IN_CLOSE = 0, 1, 2


def _branches(rank: int, *events: int) -> RankBranches:
    outcomes = (
        BranchOutcome(file=FILE, line=4, function="check", to_line=5 if rank else 6, times=1),
        BranchOutcome(file=FILE, line=10, function="__init__", kind="return", times=1),
        BranchOutcome(file=FILE, line=18, function="close", kind="return", times=1),
    )
    return RankBranches(rank=rank, outcomes=outcomes, events=events)


def _stored(one: RankBranches, other: RankBranches) -> list[tuple[int | None, tuple[int, ...]]]:
    program = Program([Document(FILE, SOURCE)], 2)
    decision = decision_at(program, Position(file=FILE, line=13))
    assert decision is not None
    stores = LastStores(program, {one.rank: one, other.rank: other})
    until = {branches.rank: len(branches.events) for branches in (one, other)}
    return [
        (line.line if line is not None else None, ranks)
        for name, lines in stores.before(decision, until)
        for line, ranks in lines
        if name == "self.stop"
    ]


def test_a_rank_that_did_not_return_before_has_stored_it() -> None:
    found = _stored(_branches(0, IN_INIT, AT_GUARD), _branches(1, IN_INIT, AT_GUARD))
    assert found == [(6, (0,)), (10, (1,))]


def test_the_same_line_on_all_ranks_explains_nothing() -> None:
    assert _stored(_branches(0, IN_INIT), _branches(1, IN_INIT)) == []


def test_an_attribute_of_another_class_is_another_one() -> None:
    found = _stored(_branches(0, IN_INIT, IN_CLOSE), _branches(1, IN_INIT, AT_GUARD))
    assert found == []


def test_a_rank_of_which_no_store_was_seen() -> None:
    assert _stored(_branches(0, AT_GUARD), _branches(1)) == [(6, (0,)), (None, (1,))]
