"""Ranks with different parts, which make each collective at lines of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.rules import cycle
from ddt_notebook.model import Call, Finding, Place, Position
from ddt_notebook.program.escape_paths import Reason

from .builders import at, call, only, rank, snapshot

SOURCE = """\
def player():
    for update in range(3):
        dist.scatter(x)
        if update % 2 == 0:
            dist.broadcast(m)
        dist.all_reduce(y)

def trainer():
    while update < updates - 1:
        dist.scatter(x)
        dist.broadcast(m)
        dist.all_reduce(y)

if rank == 0:
    player()
else:
    trainer()
"""
PLAYER, TRAINER = ("player", 15), ("trainer", 17)


def made(op: str, line: int, part: tuple[str, int], **fields: Any) -> Call:
    function, called = part
    one = call(op, line, **fields)
    return replace(one, where=at(line, function=function), callers=(at(called),))


def _where(one: Call) -> Position:
    assert one.where is not None
    return one.where


def found(player: list[Call], trainer: list[Call], *, waits: bool) -> Finding:
    stacks = [(at(15), *map(_where, player[-1:])), (at(17), *map(_where, trainer[-1:]))]
    blocked = replace(rank(0, *player, blocked=True), stack=stacks[0])
    other = rank(1, *trainer, blocked=waits)
    if waits:
        other = replace(other, stack=stacks[1])
    return only(diagnose(snapshot(blocked, other, source=SOURCE, outcome="hung")))


def reasons(finding: Finding) -> list[int]:
    return [one.place.line for one in finding.facts if one.place and one.place.role == "passed"]


ROUND = [("scatter", 3, 10), ("broadcast", 5, 11), ("all_reduce", 6, 12)]


def rounds(number: int, part: tuple[str, int]) -> list[Call]:
    own = part is TRAINER
    return [made(op, lines[own], part) for _ in range(number) for op, *lines in ROUND]


def test_a_loop_of_one_part_ends_before_that_of_the_other() -> None:
    player = [*rounds(2, PLAYER), made("scatter", 3, PLAYER)]
    finding = found(player, rounds(2, TRAINER), waits=False)
    assert (finding.cause, finding.ranks, reasons(finding)) == ("uneven-iterations", [1], [9])


def test_a_condition_keeps_one_part_from_its_own_line() -> None:
    first = rounds(1, PLAYER), rounds(1, TRAINER)
    player = [*first[0], made("scatter", 3, PLAYER), made("all_reduce", 6, PLAYER)]
    trainer = [*first[1], made("scatter", 10, TRAINER), made("broadcast", 11, TRAINER)]
    finding = found(player, trainer, waits=True)
    assert (finding.cause, reasons(finding)) == ("rank-skips-collective", [4])


@pytest.mark.parametrize("before", [0, 1])
def test_the_condition_is_the_reason_if_only_one_part_has_such_a_line(before: int) -> None:
    source = "dist.barrier()\nif rank == 0:\n    dist.barrier()\n"
    calls = [call("barrier", 1)] * before
    waits = rank(0, *calls, call("barrier", 3), blocked=True)
    finding = only(diagnose(snapshot(waits, rank(1, *calls), source=source, outcome="hung")))
    assert finding.cause == "collective-under-rank-condition"
    assert reasons(finding) == [2]


SERVER = """\
def generate(request=None):
    tokens = prepare(request)
    for at in range(begin, tokens.size(1)):
        tokens[:, at] = model(tokens[:, :at]).argmax(-1)
        if (tokens[:, at] == end).all():
            break

def serve():
    for request in requests:
        dist.broadcast(GENERATE, 0)
        generate(request)

if rank == 0:
    serve()
else:
    while True:
        dist.broadcast(choice, 0)
        generate()
"""


def _served(*lines: tuple[int, str], first: bool) -> list[Call]:
    """Broadcasts of the one part or the other, and steps of the model, which both make."""
    ways = ((11, 14), (10, 14)) if first else ((18,), (17,))
    found = []
    for line, function in lines:
        is_step = function == "generate"
        ways_here = ways[0] if is_step else ways[1][1:]
        one = call(
            "all_reduce" if is_step else "broadcast", line, group="tensor" if is_step else "0"
        )
        callers = tuple(
            at(n, function="serve" if first and n < 14 else "<module>") for n in ways_here
        )
        found.append(replace(one, where=at(line, function=function), callers=callers))
    return found


def test_a_part_that_left_the_loop_of_both_is_named_and_not_the_condition_that_gave_the_parts() -> (
    None
):
    step = (4, "generate")
    served = _served((10, "serve"), step, step, (10, "serve"), first=True)
    follows = _served((17, "<module>"), step, step, step, first=False)
    first = replace(rank(0, *served, blocked=True), stack=(at(14), at(10, function="serve")))
    second = replace(rank(1, *follows, blocked=True), stack=(at(18), at(4, function="generate")))
    finding = only(diagnose(snapshot(first, second, source=SERVER, outcome="hung")))
    assert (finding.cause, finding.ranks) == ("collective-under-local-condition", [0])
    assert reasons(finding) == [5]


def test_a_loop_that_was_seen_to_end_on_one_rank_explains_both_waits() -> None:
    """The rank that left it forms groups for the next part; the other one is in a message."""
    source = "while True:\n    exchange(x)\n    if time() > end:\n        break\nform()\nform()\n"
    scene = snapshot(
        rank(0, call("isend", 2, peer=1), blocked=True),
        rank(1, call("new_group", 5, sequence=1), blocked=True),
        source=source,
        outcome="hung",
    )
    context = Context(scene)
    passed = Place(file="cell[3]", line=3, role="passed")
    left = Reason("loop-ends-by-clock", "parted", passed, 1)
    stayed = Reason("collective-under-local-condition", "parted", passed, 0, priority=3)
    both = [(left, 1, 0), (stayed, 0, 1)]
    assert cycle._of_one_parting(both) == [(left, 1, 0)]
    assert not cycle._are_unclear(context, [(left, 1, 0)])
    assert cycle._are_unclear(context, both)
    elsewhere = replace(left, place=replace(passed, line=5))
    assert cycle._are_unclear(context, [(elsewhere, 1, 0)]), "it ends no loop"
