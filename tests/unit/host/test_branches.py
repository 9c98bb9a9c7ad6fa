"""Which ways of ranks were observed, also of those that do not say it themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ddt_notebook.host.branches import rank_branches
from ddt_notebook.model.branches import BranchOutcome
from ddt_notebook.wire.messages import BranchValues

WAY = BranchOutcome(file="train.py", line=3, function="f", kind="branch", to_line=4)
HANDLED = BranchOutcome(file="train.py", line=9, function="f", kind="handled", error="KeyError")


def handle(rank: int, noted: BranchValues | None, *outcomes: BranchOutcome) -> Any:
    log = SimpleNamespace(outcomes=outcomes, events=(0,), events_dropped=0)
    ring = SimpleNamespace(read=lambda: log)
    return SimpleNamespace(rank=rank, branch_ring=ring, branch_values=noted)


@pytest.mark.parametrize(
    ("said", "outcome", "callbacks_only"),
    [(True, WAY, True), (False, WAY, False), (None, WAY, False), (None, HANDLED, True)],
)
def test_a_rank_that_does_not_say_what_was_observed(
    said: bool | None, outcome: BranchOutcome, callbacks_only: bool
) -> None:
    noted = None if said is None else BranchValues(callbacks_only=said)
    first, second = rank_branches([handle(0, None, outcome), handle(1, noted, WAY)])
    assert (first.rank, first.callbacks_only) == (0, callbacks_only)
    assert second.callbacks_only is bool(said)
