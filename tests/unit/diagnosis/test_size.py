"""A long run is diagnosed without comparing every call with every other."""

from __future__ import annotations

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call

from .builders import all_reduce, rank, snapshot

RANKS, CALLS = 8, 2000


def test_each_call_is_compared_once(monkeypatch):
    compared = 0
    differences = Call.differences

    def counted(self: Call, other: Call) -> tuple[str, ...]:
        nonlocal compared
        compared += 1
        return differences(self, other)

    monkeypatch.setattr(Call, "differences", counted)
    calls = [all_reduce()] * CALLS
    odd = [*calls[:-1], all_reduce(reduce_op="MAX")]
    scene = snapshot(*[rank(r, *(odd if r == 5 else calls)) for r in range(RANKS)])
    report = diagnose(scene)
    assert report.findings[0].ranks == [5]
    assert report.checked == "8 ranks, 2,000 collectives on 1 group"
    assert compared <= RANKS * 2
