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


def _outcome(
    line: int, to_line: int | str, function: str = "<module>", file: str = FILE
) -> BranchOutcome:
    if isinstance(to_line, str):
        return BranchOutcome(file=file, line=line, function=function, kind="return", times=1)
    return BranchOutcome(file=file, line=line, function=function, to_line=to_line, times=1)


def _last(
    source: str, at: int, *ranks: list[BranchOutcome]
) -> dict[str, list[tuple[int | None, tuple[int, ...]]]]:
    """For each name, the lines that stored it last, by what each rank went through."""
    program = Program([Document(FILE, source)], 2)
    decision = decision_at(program, Position(file=FILE, line=at))
    assert decision is not None
    branches = {
        rank: RankBranches(rank=rank, outcomes=tuple(found), events=tuple(range(len(found))))
        for rank, found in enumerate(ranks)
    }
    until = {rank: len(found) for rank, found in enumerate(ranks)}
    return {
        name: [(place and place.line, by) for place, by in lines]
        for name, lines in LastStores(program, branches).before(decision, until)
    }


RESUMES = """class Loop:
    def __init__(self, steps):
        self.first = 0
        self.load()
        self.rates = [float(one) for one in steps]
    def load(self):
        if rank == 0:
            self.first = 6
    def run(self):
        while self.first < 9:
            self.first += 1
Loop([1]).run()
"""


def _resumed(rank: int) -> list[BranchOutcome]:
    return [
        _outcome(7, 8 if rank == 0 else 0, "load"),
        _outcome(7, "return", "load"),
        _outcome(5, 5, "<listcomp>"),
        _outcome(5, 0, "<listcomp>"),
        _outcome(5, "return", "<listcomp>"),
        _outcome(5, "return", "__init__"),
    ]


def test_a_function_that_was_called_later_in_the_constructor_has_stored_it() -> None:
    """The constructor returns after that, and its own line ran before the call."""
    found = _last(RESUMES, 10, _resumed(0), _resumed(1))
    assert found == {"self.first": [(8, (0,)), (3, (1,))]}


RESETS = """class Flag:
    def set(self):
        if rank == 0:
            self.on = True
    def reset(self):
        self.on = False
    def run(self):
        if self.on:
            stop()
"""


def test_a_function_that_returned_later_has_stored_it_last() -> None:
    both = [[_outcome(3, 4 if rank == 0 else 0, "set")] for rank in (0, 1)]
    reset = [_outcome(6, "return", "reset")]
    assert _last(RESETS, 8, both[0] + reset, both[1] + reset) == {}
    assert _last(RESETS, 8, reset + both[0], reset + both[1]) == {"self.on": [(4, (0,)), (6, (1,))]}


STOPS = """def train(loader):
    stop = False
    for epoch in range(9):
        if rank == 0:
            stop = stopper(epoch)
        if stop:
            break
"""


def test_a_local_name_that_one_rank_alone_stored() -> None:
    rounds = [[_outcome(3, 4, "train"), _outcome(4, 5 - rank, "train")] for rank in (0, 1)]
    assert _last(STOPS, 6, *rounds) == {"stop": [(5, (0,)), (2, (1,))]}


def test_a_local_name_of_an_earlier_run_of_the_function_is_another_one() -> None:
    earlier = [_outcome(3, 4, "train"), _outcome(4, 5, "train"), _outcome(7, "return", "train")]
    now = [_outcome(3, 4, "train"), _outcome(4, 6, "train")]
    assert _last(STOPS, 6, earlier + now, now) == {}


def test_a_name_that_all_ranks_stored_again_after_the_condition() -> None:
    source = STOPS.replace("        if stop:", "        stop = bool(stop)\n        if stop:")
    rounds = [[_outcome(3, 4, "train"), _outcome(4, 5 + rank, "train")] for rank in (0, 1)]
    # the line itself is the same on all ranks: what it took the value from is not
    assert _last(source, 7, *rounds) == {"stop": [(5, (0,)), (2, (1,))]}
    agreed = source.replace("bool(stop)", "agree()")
    assert _last(agreed, 7, *rounds) == {}


def test_the_bound_of_a_loop_that_ranks_stored_at_different_lines() -> None:
    source = """def fit():
    first = 0
    if rank == 0:
        first = 3
    for step in range(first, 9):
        pass
"""
    found = _last(source, 5, *([_outcome(3, 4 if rank == 0 else 5, "fit")] for rank in (0, 1)))
    assert found == {"first": [(4, (0,)), (2, (1,))]}
