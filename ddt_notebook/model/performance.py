"""How a rank's main thread spent its time while a cell ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPerformance:
    """The time of one rank's main thread, in seconds.

    Attributes
    ----------
    rank
        Global rank.
    ran_s
        How long the cell ran on the rank.
    cpu_s
        How long the thread used a processor.
    queued_s
        How long the thread was ready to run while other processes used the processor; None if the
        system does not report it.
    queued_beside_s
        The same for the rank's other threads, such as gloo's, for which it may have waited.
    """

    rank: int
    ran_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float | None = None
    queued_beside_s: float = 0.0

    @property
    def starved_s(self) -> float | None:
        """How long its threads were ready to run without a processor; None if it is not known."""
        return None if self.queued_s is None else self.queued_s + self.queued_beside_s
