"""The result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model import RankError, Snapshot
from ..model.replay import ReplayOutcome


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of one cell on the ranks.

    Attributes
    ----------
    ok
        True if every rank that was asked finished the cell.
    outputs
        What each rank printed or showed, as text, by rank. Its length is limited; the whole text
        is in the session's output files.
    errors
        The exception of each rank that raised, by rank.
    snapshot
        All observations of the run.
    duration_s
        From the start of the cell until it had ended on every rank, in seconds.
    frozen
        True if the ranks are still held in a hang, for inspection.
    lost
        For each rank that was replaced, the names of the variables that it lost.
    replayed
        How far the replay of a recorded rank got; None for any other run.
    """

    ok: bool
    outputs: dict[int, str]
    errors: dict[int, RankError]
    snapshot: Snapshot
    duration_s: float
    frozen: bool = False
    lost: dict[int, list[str]] = field(default_factory=dict)
    replayed: ReplayOutcome | None = None

    def __repr__(self) -> str:
        word = "held" if self.frozen else self.snapshot.outcome
        return f"<RunResult {word}: {len(self.outputs)} ranks, {self.duration_s:.2f} s>"
