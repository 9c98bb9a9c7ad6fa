"""A rank that takes requests and leaves out a call with which others followed it before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call

from .builders import at, call, fact, only, rank, snapshot

SOURCE = """
def put(request):
    if "text" not in request:
        return
    dist.broadcast(GO, 0)
    if len(request) > 9:
        return
    dist.broadcast(request, 0)

if rank == 0:
    for request in requests:
        put(request)
else:
    while True:
        dist.broadcast(go, 0)
        dist.broadcast(got, 0)
"""


def _server(line: int) -> Call:
    shapes = ((1,),) if line == 5 else ((4,),)
    made = call("broadcast", line, root=0, shapes=shapes, callers=(at(12),))
    return replace(made, where=at(line, function="put"))


def _follower(line: int) -> Call:
    return call("broadcast", line, root=0, shapes=((1,),) if line == 15 else ((4,),))


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_condition_is_named_by_which_a_call_of_earlier_rounds_was_left_out(rounds: int) -> None:
    mine = [_server(5), _server(8)] * rounds + [_server(5), _server(5)]
    theirs = [_follower(15), _follower(16)] * (rounds + 1)
    ranks = rank(0, *mine, blocked=True), rank(1, *theirs, blocked=True)
    finding = only(diagnose(snapshot(*ranks, source=SOURCE, outcome="hung")))
    assert finding.kind == "out-of-step"
    assert finding.cause == "collective-under-local-condition"
    assert fact(finding, "leaves-by-own-finding").place.line == 6  # type: ignore[union-attr]


def test_a_round_that_went_well_without_the_call_gives_no_reason() -> None:
    mine = [replace(_server(line), shapes=((4,),)) for line in (5, 8, 5, 5, 5)]
    theirs = [replace(_follower(line), shapes=((4,),)) for line in (15, 16, 15, 16, 15, 16)]
    mine.append(_server(5))
    ranks = rank(0, *mine, blocked=True), rank(1, *theirs, blocked=True)
    for finding in diagnose(snapshot(*ranks, source=SOURCE, outcome="hung")).findings:
        assert not any(one.kind == "leaves-by-own-finding" for one in finding.facts)
