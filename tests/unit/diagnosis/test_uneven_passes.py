"""Loops that took other rounds in an earlier epoch, and condition arms that order calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose

from .builders import all_reduce, at, call, only, peer_error, raised, rank, snapshot
from .test_partings import Rank, _found, _line

EPOCHS = """for epoch in range(3):
    for batch in loader:
        dist.all_reduce(loss)
        if epoch == 1 and batch % 2:
            dist.all_reduce(score)
"""


def _epochs(*rounds: int, scored: tuple[int, ...]) -> list[object]:
    """The steps of a rank; ``scored``: the rounds of the run in which it scores."""
    steps: list[object] = []
    number = 0
    for batches in rounds:
        steps.append((1, 2))
        for _ in range(batches):
            steps += [(2, 3), 3, (4, 5 if number in scored else 2)]
            steps += [5] if number in scored else []
            number += 1
        steps.append((2, 1))
    return steps


def test_a_loop_that_ended_a_round_earlier_in_an_earlier_epoch() -> None:
    """The calls of one rank's next epoch fitted those of the other one's last round by chance."""
    short = _epochs(2, 2, scored=(3,))[:-1]
    long = _epochs(3, 2, scored=())[:-2]
    sizes = (3, 3, 3, 3)
    found = _found(
        EPOCHS,
        Rank(0, short, "blocked", sizes=(*sizes, 7)),
        Rank(1, long, "blocked", sizes=(*sizes, 3)),
    )
    assert (found.cause, _line(found)) == ("uneven-iterations", 2)
    sides = next(fact.values["sides"] for fact in found.facts if fact.kind == "parted")
    assert {way for way, _, _ in sides} == {"ended after 2 rounds", "went on after 2 rounds"}


def test_a_rank_that_goes_on_in_the_others_collectives_is_level_again() -> None:
    source = """for epoch in range(3):
    for batch in loader:
        dist.all_reduce(batch)
    for _ in range(most - len(loader)):
        dist.all_reduce(nothing)
    if loss < best:
        break
"""

    def epoch(batches: int, *after: object) -> list[object]:
        joined: list[object] = [(4, 5), 5] * (3 - batches)
        return [(1, 2), *[(2, 3), 3] * batches, (2, 4), *joined, (4, 6), *after]

    waits = [*epoch(2, (6, 1)), *epoch(2, (6, 1)), (1, 2), (2, 3), 3]
    stops = [*epoch(3, (6, 1)), *epoch(3, (6, 7))]
    found = _found(source, Rank(0, waits, "blocked"), Rank(1, stops))
    assert (found.cause, _line(found)) == ("collective-under-local-condition", 6)


def test_rounds_without_a_collective_put_no_rank_out_of_step() -> None:
    source = """for epoch in range(3):
    for batch in loader:
        work(batch)
    dist.all_reduce(loss)
    if loss < best:
        break
"""

    def epoch(rounds: int, *after: object) -> list[object]:
        return [(1, 2), *[(2, 3)] * rounds, (2, 4), 4, *after]

    waits = [*epoch(3, (5, 1)), *epoch(2, (5, 1)), (1, 2), (2, 3), (2, 4), 4]
    stops = [*epoch(2, (5, 1)), *epoch(2, (5, 6))]
    found = _found(source, Rank(0, waits, "blocked"), Rank(1, stops))
    assert (found.cause, _line(found)) == ("collective-under-local-condition", 5)


def test_a_comprehension_over_a_generator_that_ended_on_one_rank() -> None:
    source = """def batches(data):
    for one in data:
        yield one
losses = [train(batch) for batch in batches(data)]
def train(batch):
    dist.all_reduce(batch)
    return 1
dist.all_reduce(total)
"""
    names = {2: "batches", 6: "train", 7: "train"}
    usual: list[object] = [(2, 3), 6, (7, "return")]
    found = _found(
        source,
        Rank(0, [*usual * 2, (2, 3), 6], "blocked", names, (4,), (3, 3, 3)),
        Rank(1, [*usual * 2, (2, 0), 8], "blocked", names, (), (3, 3, 1)),
    )
    assert (found.cause, _line(found)) == ("uneven-iterations", 2)


ORDERS = """if rank == 0:
    dist.all_reduce({first})
    dist.all_reduce(count)
else:
    dist.all_reduce(count)
    dist.all_reduce(losses)
"""


@pytest.mark.parametrize(
    ("first", "lines", "cause"),
    [
        ("losses", (2, 5), "different-collectives"),
        ("losses.double()", (2, 5), "dtype-differs"),
        ("count.float()", (2, 5), "dtype-differs"),
    ],
)
def test_arms_that_make_the_same_calls_in_another_order(
    first: str, lines: tuple[int, int], cause: str
) -> None:
    scene = snapshot(
        raised(0, all_reduce(lines[0], status="failed"), error=peer_error(0)),
        rank(1, all_reduce(lines[1], dtypes=("int64",), status="pending"), state="died",
             exit_signal=6),
        source=ORDERS.format(first=first),
        outcome="failed",
    )  # fmt: skip
    assert only(diagnose(scene)).cause == cause


@pytest.mark.parametrize(
    ("other", "cause"),
    [("trainer = Trainer()", "different-collectives"), ("pass", "collective-under-rank-condition")],
)
def test_a_class_that_both_arms_construct_keeps_no_rank_from_its_collective(
    other: str, cause: str
) -> None:
    source = f"""class Trainer:
    def __init__(self, log=None):
        dist.all_reduce(start)
if rank == 0:
    trainer = Trainer(log)
else:
    {other}
dist.broadcast(state, 0)
"""
    inner = replace(at(3, function="__init__"), code="dist.all_reduce(start)")
    scene = snapshot(
        rank(0, all_reduce(where=inner, callers=(at(5),)), blocked=True),
        rank(1, call("broadcast", 8, root=0), blocked=True),
        source=source,
        outcome="hung",
    )
    assert only(diagnose(scene)).cause == cause


LAST_ROUND = """last = len({length}) - 1
for step, batch in enumerate(loader):
    is_last = step == last
    dist.all_reduce(batch)
    if is_last or step % 3 == 0:
        dist.all_reduce(loss)
"""


@pytest.mark.parametrize(
    ("length", "cause"),
    [("loader", "uneven-iterations"), ("names", "collective-under-local-condition")],
)
def test_a_rank_whose_loop_is_in_its_last_round(length: str, cause: str) -> None:
    first: list[object] = [(2, 3), 4, (5, 6), 6, (2, 3), 4]
    found = _found(
        LAST_ROUND.format(length=length),
        Rank(0, [*first, (5, 6), 6], "blocked", sizes=(3, 1, 3, 1)),
        Rank(1, [*first, (5, 2), (2, 3), 4], "blocked", sizes=(3, 1, 3, 3)),
    )
    assert (found.cause, _line(found)) == (cause, 5)


RESUMED = """step = 0
if rank == 0 and resume:
    {stored} = 7
for batch in loader:
    dist.all_reduce(batch)
    step += 1
    if step % every == 0:
        dist.all_reduce(loss)
"""


@pytest.mark.parametrize(
    ("stored", "cause", "line"),
    [
        ("step", "collective-under-rank-condition", 2),
        ("path", "collective-under-local-condition", 7),
    ],
)
def test_steps_that_one_rank_counts_from_another_number(stored: str, cause: str, line: int) -> None:
    found = _found(
        RESUMED.format(stored=stored),
        Rank(0, [(2, 3), (4, 5), 5, (7, 8), 8], "blocked", sizes=(3, 1)),
        Rank(1, [(2, 4), (4, 5), 5, (7, 4), (4, 5), 5], "blocked", sizes=(3, 3)),
    )
    assert (found.cause, _line(found)) == (cause, line)
