"""Collects which ways the ranks went through the user's code, when a run has failed or hung."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.branches import RankBranches
from .observed_rank import ObservedRank


def rank_branches(handles: Iterable[ObservedRank]) -> tuple[RankBranches, ...]:
    """The branch events of ranks in their current run; ranks that observed none are left out."""
    found = []
    for handle in handles:
        if handle.branch_ring is None:
            continue
        log, noted = handle.branch_ring.read(), handle.branch_values
        values = noted.values if noted is not None else {}
        outcomes = tuple(
            replace(outcome, values=values.get(index, {}))
            for index, outcome in enumerate(log.outcomes)
        )
        unobserved = noted.unobserved if noted is not None else ""
        if log.events or unobserved:
            found.append(
                RankBranches(
                    rank=handle.rank,
                    outcomes=outcomes,
                    events=log.events,
                    events_dropped=log.events_dropped,
                    unobserved=unobserved,
                    callbacks_only=noted is not None and noted.callbacks_only,
                )
            )
    return tuple(found)
