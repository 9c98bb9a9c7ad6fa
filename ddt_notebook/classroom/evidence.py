"""What a grading has seen: how the run ended, what was read and trained, what the ranks hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ddt_notebook.model.snapshot import Snapshot

from .task import Task

#: Kinds of events in a rank's journal: a training sample was read, a validation sample was read, a
#: number of samples went through the model while gradients were kept.
READ, READ_VALIDATION, TRAINED = 1, 2, 3


class NotReached(Exception):
    """The run did not get so far that this behaviour could be seen."""


@dataclass(frozen=True)
class Journal:
    """What one rank did, in order.

    Attributes
    ----------
    reads, validation_reads
        Indices of samples.
    trained
        Number of samples of each forward pass that kept gradients.
    """

    reads: Any
    validation_reads: Any
    trained: Any

    @classmethod
    def parse(cls, data: bytes) -> Journal:
        """Read the file that a rank wrote; what it did not finish is left out."""
        import numpy as np

        events = np.frombuffer(data[: len(data) // 8 * 8], "<i4").reshape(-1, 2)
        kinds = (READ, READ_VALIDATION, TRAINED)
        return cls(*(events[events[:, 0] == kind, 1] for kind in kinds))


@dataclass(frozen=True)
class Evidence:
    """All that behaviours are judged by.

    Attributes
    ----------
    task
        The data that the grader drew.
    snapshot
        What was observed of the run.
    errors
        What left the cell, by rank.
    journals
        What each rank did.
    variables
        What the ranks hold after the cell, by rank and name.
    folder
        Where the cell could write files.
    loaded
        What a fresh process read from the file that was to be written; None if it could not.
    seconds
        How long the cell ran.
    """

    task: Task
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

    def need_end(self) -> None:
        """Raise `NotReached` unless every rank finished."""
        if not self.ended:
            raise NotReached

    def values(self, name: str) -> dict[int, Any]:
        """A variable on each rank."""
        self.need_end()
        return {rank: held.get(name) for rank, held in sorted(self.variables.items())}

    def models(self) -> dict[int, Any]:
        """The parameters of ``model`` on each rank.

        Raises
        ------
        NotReached
            If a rank has none, or it has other parameters than the exercise's.
        """
        shapes = [array.shape for array in self.task.initial]
        found = self.values("model")
        for arrays in found.values():
            if not isinstance(arrays, list) or [getattr(a, "shape", 0) for a in arrays] != shapes:
                raise NotReached
        return found

    @cached_property
    def passes(self) -> int:
        """How often all readable samples were read, if each was read equally often; else 0."""
        import numpy as np

        reads = np.concatenate([journal.reads for journal in self.journals.values()])
        counts = np.bincount(reads, minlength=len(self.task.labels))
        kept: Any = np.delete(counts, list(self.task.damaged))
        return int(kept[0]) if len(kept) and (kept == kept[0]).all() else 0

    def epochs(self, rank: int) -> list[Any]:
        """The indices that a rank read, epoch by epoch."""
        import numpy as np

        return list(np.array_split(self.journals[rank].reads, max(1, self.passes)))
