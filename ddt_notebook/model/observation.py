"""What the probes of one rank observed at one moment."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .agreements import RankAgreements
from .checkpoints import RankCheckpoints
from .clock import Clock
from .exchanged import RankExchanged
from .group_names import with_names_of_framework
from .memory import RankMemory
from .parity import RankParity
from .partition import RankPartition
from .performance import RankPerformance
from .placement import RankPlacement
from .shown import RankShown
from .snapshot import Snapshot
from .tensorflow import RankTensorFlow
from .timeline import RankTimeline
from .training import RankTraining


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one rank's probes observed; a field is None if its probe did not run or found nothing.

    Attributes
    ----------
    rank
        Global rank.
    placement, partition, parity, memory, timeline, training, performance, checkpoints, shown, \
    exchanged, tensorflow, agreements
        This rank's part of the field of `Snapshot` that has the same name.
    environment
        Facts about the environment of the rank's process, by name.
    """

    rank: int
    placement: RankPlacement | None = None
    partition: RankPartition | None = None
    parity: RankParity | None = None
    memory: RankMemory | None = None
    timeline: RankTimeline | None = None
    training: RankTraining | None = None
    performance: RankPerformance | None = None
    checkpoints: RankCheckpoints | None = None
    shown: RankShown | None = None
    exchanged: RankExchanged | None = None
    tensorflow: RankTensorFlow | None = None
    agreements: RankAgreements | None = None
    environment: dict[str, str] | None = None

    def updated(self, other: Observation) -> Observation:
        """Take over the fields that another observation of the same rank has."""
        found = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(self, **{name: one for name, one in found.items() if one is not None})

    def on_one_clock(self, clock: Clock) -> Observation:
        """The observation with its times on the clock of the first rank's host."""
        ahead_s = clock.ahead_s
        if not ahead_s:
            return self
        checkpoints, memory, timeline = self.checkpoints, self.memory, self.timeline
        if checkpoints is not None:
            uses = (
                replace(use, began_s=use.began_s + ahead_s, ended_s=use.ended_s + ahead_s)
                for use in checkpoints.uses
            )
            checkpoints = replace(checkpoints, uses=tuple(uses))
        if memory is not None:
            memory = replace(memory, started_s=memory.started_s + ahead_s)
        if timeline is not None:
            timeline = replace(
                timeline,
                started_s=timeline.started_s + ahead_s,
                ended_s=timeline.ended_s + ahead_s,
                traced_until_s=clock.moved(timeline.traced_until_s),
            )
        return replace(self, checkpoints=checkpoints, memory=memory, timeline=timeline)


@functools.cache
def _in_snapshots() -> tuple[str, ...]:
    """The names of the fields that a `Snapshot` also has."""
    known = {field.name for field in fields(Snapshot)}
    return tuple(field.name for field in fields(Observation) if field.name in known)


def add_observations(
    snapshot: Snapshot, seen: Mapping[int, Observation], clock_of: Mapping[int, Clock]
) -> Snapshot:
    """The snapshot with the observations of the ranks in the fields that any rank observed.

    Parameters
    ----------
    snapshot
        What else is known of the run.
    seen
        The observations by rank, each with the times of its own host.
    clock_of
        The clock of each rank's host.
    """
    changed: dict[str, Any] = {}
    seen = {rank: one.on_one_clock(clock_of.get(rank, Clock())) for rank, one in seen.items()}
    for name in _in_snapshots():
        found = [getattr(seen[rank], name) for rank in sorted(seen)]
        if any(one is not None for one in found):
            changed[name] = tuple(one for one in found if one is not None)
    return with_names_of_framework(replace(snapshot, **changed))
