"""What one process computes on the same data: the reference that the ranks are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .evidence import Evidence, NotReached

#: Weights and biases, layer by layer.
Weights = Sequence[Any]


def train(
    weights: Weights,
    inputs: Any,
    labels: Any,
    steps: Iterable[Any],
    rate: float | Sequence[float],
) -> Weights:
    """Plain gradient descent with the mean gradient over the samples of each step.

    Parameters
    ----------
    weights
        Weights and biases, layer by layer.
    inputs, labels
        All samples.
    steps
        The indices of the samples of each step.
    rate
        The learning rate, or one for each step.
    """
    rates = itertools.repeat(rate) if isinstance(rate, float) else rate
    current = [values.astype("float64") for values in weights]
    for chosen, each in zip(steps, rates, strict=False):
        gradients = _gradients(current, inputs[chosen].astype("float64"), labels[chosen])
        current = [w - each * g for w, g in zip(current, gradients, strict=True)]
    return current


def mean_loss(weights: Weights, inputs: Any, labels: Any) -> float:
    """Mean cross-entropy over the samples."""
    import numpy as np

    chances = _softmax(_outputs(weights, inputs)[-1])
    return float(-np.log(chances[np.arange(len(labels)), labels]).mean())


def accuracy(weights: Weights, inputs: Any, labels: Any) -> float:
    """The share of the samples that are classified correctly."""
    return float((_outputs(weights, inputs)[-1].argmax(axis=1) == labels).mean())


def _outputs(weights: Weights, inputs: Any) -> list[Any]:
    """The input and the output of each layer; a ReLU stands between layers."""
    made = [inputs.astype("float64")]
    for at in range(0, len(weights), 2):
        if at:
            made[-1] = made[-1] * (made[-1] > 0)
        made.append(made[-1] @ weights[at].T + weights[at + 1])
    return made


def _softmax(scores: Any) -> Any:
    import numpy as np

    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _gradients(weights: Weights, inputs: Any, labels: Any) -> list[Any]:
    import numpy as np

    made = _outputs(weights, inputs)
    error = _softmax(made[-1])
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    found: list[Any] = []
    for at in range(len(weights) - 2, -1, -2):
        below = made[at // 2]
        found[:0] = [error.T @ below, error.sum(axis=0)]
        error = (error @ weights[at]) * (below > 0)
    return found


# -- on the data of a grading ----------------------------------------------------------------------


def batches_of(seen: Evidence) -> list[dict[int, Any]]:
    """The samples of each batch as the ranks read them, by rank; a rank without one is left out."""
    if not seen.passes:
        raise NotReached
    batches = []
    for epoch in range(seen.passes):
        shares = {rank: seen.epochs(rank)[epoch] for rank in seen.journals}
        longest = max(len(share) for share in shares.values())
        size = seen.data.setting.batch or max(1, longest)
        for at in range(0, longest, size):
            parts = {rank: share[at : at + size] for rank, share in shares.items()}
            batches.append({rank: part for rank, part in parts.items() if len(part)})
    return batches


def steps_of(seen: Evidence) -> list[Any]:
    """The samples of each step over all ranks."""
    import numpy as np

    setting = seen.data.setting
    batches = [np.concatenate(list(parts.values())) for parts in batches_of(seen)]
    each = len(batches) // seen.passes
    steps: list[Any] = []
    for epoch in range(seen.passes):
        own = batches[epoch * each : (epoch + 1) * each]
        together = setting.accumulate
        steps += [np.concatenate(own[at : at + together]) for at in range(0, each, together)]
    return steps * setting.epochs if seen.passes == 1 and setting.batch is None else steps


def whole_batches(seen: Evidence, count: int) -> list[Any]:
    """A number of steps, each on all samples that were read."""
    if not seen.passes:
        raise NotReached
    return [sorted({int(i) for journal in seen.journals.values() for i in journal.reads})] * count


def expected(seen: Evidence, steps: Callable[[Evidence], list[Any]] = steps_of) -> Any:
    """The parameters of one process that takes the same steps."""
    data = seen.data
    return train(data.initial, data.inputs, data.labels, steps(seen), data.setting.rate)


def validation_accuracy(seen: Evidence) -> float:
    """The accuracy of rank 0's model on all validation samples."""
    data = seen.data
    return accuracy(seen.models()[0], data.validation_inputs, data.validation_labels)


def validation_loss(seen: Evidence) -> float:
    """The loss of rank 0's model on all validation samples."""
    data = seen.data
    return mean_loss(seen.models()[0], data.validation_inputs, data.validation_labels)


def training_loss(seen: Evidence) -> float:
    """The loss of rank 0's model on all training samples."""
    return mean_loss(seen.models()[0], seen.data.inputs, seen.data.labels)
