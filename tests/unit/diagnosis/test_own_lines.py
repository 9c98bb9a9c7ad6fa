"""Ranks that meet in one collective at lines of their own are not out of step."""

from __future__ import annotations

import pytest

from .test_partings import Rank, _found

FIRST_PROCESS_FIRST = """def sync():
    dist.barrier()
if rank == 0:
    prepare()
    sync()
if rank != 0:
    sync()
    read()
dist.all_reduce(x)
for batch in loader:
    if batch is None:
        break
    dist.all_reduce(batch)
dist.barrier()
"""
NAMES = {2: "sync"}


@pytest.mark.parametrize("state", ["blocked", "finished"])
def test_the_first_process_first(state: str) -> None:
    rounds = [9, (10, 11), (11, 13), 13, (10, 11)]
    waits = [(3, 4), 2, (2, "return"), (6, 9), *rounds, (11, 13), 13]
    stops = [(3, 6), (6, 7), 2, (2, "return"), *rounds, (11, 12)]
    stops += [14] if state == "blocked" else []
    found = _found(
        FIRST_PROCESS_FIRST,
        Rank(0, waits, "blocked", NAMES, callers=(13,), sizes=(1, 2, 3, 3)),
        Rank(1, stops, state, NAMES, callers=(14,), sizes=(1, 2, 3, 5)),
    )
    places = [fact.place for fact in found.facts if fact.kind == "parted"]
    assert [one.line for one in places if one is not None] == [11], str(found)
