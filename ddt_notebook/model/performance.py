"""What a rank's main thread did with its time while a cell ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPerformance:
    """Time of one rank's main thread.

    Attributes
    ----------
    rank
        Global rank.
    ran_s
        How long the cell ran on it.
    cpu_s
        How long it computed.
    queued_s
        How long it could have gone on, but other processes had the processor; None if the system
        does not tell.
    queued_beside_s
        The same of its other threads, such as gloo's, whose work it may have waited for.
    """

    rank: int
    ran_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float | None = None
    queued_beside_s: float = 0.0
