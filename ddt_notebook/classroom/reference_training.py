"""What one process computes that trains on all data: the truth that ranks must come to together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

Weights = Sequence[Any]


def train(
    weights: Weights,
    inputs: Any,
    labels: Any,
    steps: Iterable[Any],
    rate: float | Sequence[float],
) -> Weights:
    """Plain gradient descent; each step goes by the mean over the samples of its batch.

    Parameters
    ----------
    weights
        Weights and biases, layer by layer.
    inputs, labels
        All samples.
    steps
        The indices of the samples of each step.
    rate
        The learning rate, or that of each step.
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
    """Share of the samples that are told rightly."""
    return float((_outputs(weights, inputs)[-1].argmax(axis=1) == labels).mean())


def _outputs(weights: Weights, inputs: Any) -> list[Any]:
    """The input and what each layer makes of it; between layers negative values become 0."""
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
