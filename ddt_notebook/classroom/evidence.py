"""What the grader observed: how the run ended, what the ranks read, trained and hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ddt_notebook.model.snapshot import Snapshot

from .exercise_data import ExerciseData

#: Kinds of events in the journal of a rank: it read a training sample; it read a validation sample;
#: a number of samples went forward through the model with gradients enabled.
READ, READ_VALIDATION, TRAINED = 1, 2, 3


class NotReached(Exception):
    """The run ended too early to observe this behaviour."""


@dataclass(frozen=True)
class Journal:
    """The events of one rank, in order.

    Attributes
    ----------
    reads, validation_reads
        Indices of samples.
    trained
        Number of samples of each forward pass with gradients enabled.
    """

    reads: Any
    validation_reads: Any
    trained: Any

    @classmethod
    def parse(cls, data: bytes) -> Journal:
        """Read the file of a rank, without an event that is not complete."""
        import numpy as np

        events = np.frombuffer(data[: len(data) // 8 * 8], "<i4").reshape(-1, 2)
        kinds = (READ, READ_VALIDATION, TRAINED)
        return cls(*(events[events[:, 0] == kind, 1] for kind in kinds))


@dataclass(frozen=True)
class Evidence:
    """All that the behaviours are judged by.

    Attributes
    ----------
    data
        The data that the grader drew.
    snapshot
        The record of the run.
    errors
        The exception that left the cell, by rank.
    journals
        The events, by rank.
    variables
        The variables after the cell, by rank and name.
    folder
        The folder in which the cell could write files.
    loaded
        What a fresh process read from the file of the exercise; None if it could not.
    seconds
        The duration of the cell.
    """

    data: ExerciseData
    snapshot: Snapshot
    errors: Mapping[int, str]
    journals: Mapping[int, Journal]
    variables: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    folder: Path = Path()
    loaded: Any = None
    seconds: float = 0.0

    @cached_property
    def ended(self) -> bool:
        """Whether every rank finished the cell."""
        return self.snapshot.outcome == "ok"

    def require_end(self) -> None:
        """Raise `NotReached` unless every rank finished."""
        if not self.ended:
            raise NotReached

    def values(self, name: str) -> dict[int, Any]:
        """A variable on each rank."""
        self.require_end()
        return {rank: held.get(name) for rank, held in sorted(self.variables.items())}

    def models(self) -> dict[int, Any]:
        """The parameters of ``model`` on each rank.

        Raises
        ------
        NotReached
            If a rank has none, or a model with other shapes than the exercise's.
        """
        shapes = [array.shape for array in self.data.initial]
        found = self.values("model")
        for arrays in found.values():
            if not isinstance(arrays, list) or [getattr(a, "shape", 0) for a in arrays] != shapes:
                raise NotReached
        return found

    @cached_property
    def passes(self) -> int:
        """How often each readable sample was read, if this number is the same for all; else 0."""
        import numpy as np

        reads = np.concatenate([journal.reads for journal in self.journals.values()])
        counts = np.bincount(reads, minlength=len(self.data.labels))
        kept: Any = np.delete(counts, list(self.data.damaged))
        return int(kept[0]) if len(kept) and (kept == kept[0]).all() else 0

    def epochs(self, rank: int) -> list[Any]:
        """The indices that a rank read, epoch by epoch."""
        import numpy as np

        return list(np.array_split(self.journals[rank].reads, max(1, self.passes)))
