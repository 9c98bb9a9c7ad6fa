"""Collects which ways the ranks went through the user's code, when a run has failed or hung."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.branches import RankBranches
from .observed_rank import ObservedRank


def rank_branches(handles: Iterable[ObservedRank]) -> tuple[RankBranches, ...]:
    """The branch events of ranks in their current run; ranks that observed none are left out."""
    found, every = [], list(handles)
    noted_by = [one.branch_values for one in every if one.branch_values is not None]
    in_callbacks = any(one.callbacks_only for one in noted_by)
    for handle in every:
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
                    # a rank that has died, or answers too late, does not say whether all of its
                    # code was observed: it is as on the others
                    callbacks_only=noted.callbacks_only
                    if noted is not None
                    else in_callbacks
                    or all(one.kind == "handled" or not one.line for one in outcomes),
                )
            )
    return tuple(found)
