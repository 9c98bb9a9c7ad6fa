"""What the ranks must come to, computed from the grader's data and from what the ranks read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import reference_training as replay
from .evidence import Evidence, NotReached


def batches_of(seen: Evidence) -> list[dict[int, Any]]:
    """The samples of each batch, by the ranks that have one, as the ranks read them."""
    if not seen.passes:
        raise NotReached
    batches = []
    for epoch in range(seen.passes):
        shares = {rank: seen.epochs(rank)[epoch] for rank in seen.journals}
        longest = max(len(share) for share in shares.values())
        size = seen.task.setting.batch or max(1, longest)
        for at in range(0, longest, size):
            parts = {rank: share[at : at + size] for rank, share in shares.items()}
            batches.append({rank: part for rank, part in parts.items() if len(part)})
    return batches


def steps_of(seen: Evidence) -> list[Any]:
    """The samples of each step over all ranks."""
    import numpy as np

    setting = seen.task.setting
    batches = [np.concatenate(list(parts.values())) for parts in batches_of(seen)]
    each = len(batches) // seen.passes
    steps: list[Any] = []
    for epoch in range(seen.passes):
        own = batches[epoch * each : (epoch + 1) * each]
        together = setting.accumulate
        steps += [np.concatenate(own[at : at + together]) for at in range(0, each, together)]
    return steps * setting.epochs if seen.passes == 1 and setting.batch is None else steps


def whole_batches(seen: Evidence, count: int) -> list[Any]:
    """A number of steps, each on all that was read."""
    if not seen.passes:
        raise NotReached
    return [sorted({int(i) for journal in seen.journals.values() for i in journal.reads})] * count


def expected(seen: Evidence, steps: Callable[[Evidence], list[Any]] = steps_of) -> Any:
    """The parameters of one process that takes the same steps."""
    task = seen.task
    return replay.train(task.initial, task.inputs, task.labels, steps(seen), task.setting.rate)


def validation_accuracy(seen: Evidence) -> float:
    """Of the model of rank 0, on all validation samples."""
    task = seen.task
    return replay.accuracy(seen.models()[0], task.validation_inputs, task.validation_labels)


def validation_loss(seen: Evidence) -> float:
    """Of the model of rank 0, on all validation samples."""
    task = seen.task
    return replay.mean_loss(seen.models()[0], task.validation_inputs, task.validation_labels)


def training_loss(seen: Evidence) -> float:
    """Of the model of rank 0, on all training samples."""
    return replay.mean_loss(seen.models()[0], seen.task.inputs, seen.task.labels)
