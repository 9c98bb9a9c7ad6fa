"""The numbers that a program gave to collectives after an evaluation."""

from __future__ import annotations

import torch

from ddt_notebook.rank.probes.accumulated import AccumulatedRecord, PassSums, elements


def test_only_finite_elements_are_kept() -> None:
    """A saved run holds no infinity and no NaN: it could not be read again."""
    assert list(elements(torch.tensor([1.0, float("inf"), float("nan"), -2.0]))) == [1.0, -2.0]
    assert [*elements(float("inf")), *elements(3)] == [3.0]


def test_what_other_ranks_are_given_is_known_beside_lists_for_outputs() -> None:
    record = AccumulatedRecord()
    record.begin_run()
    record.latest = PassSums(where=None, epoch=0, backwards=0)
    record.gives(([torch.zeros(2), torch.zeros(2)], torch.tensor([3.0, 4.0]), None))
    assert not record.latest.gave_more
    assert {3.0, 4.0} <= {*record.latest.given}
    record.gives(([None, None], (5.0, 6)))
    assert not record.latest.gave_more
    record.gives(([None, None], {"loss": 1.0}))
    assert record.latest.gave_more
