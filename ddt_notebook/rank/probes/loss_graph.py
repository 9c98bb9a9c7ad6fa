"""Reads from a loss's graph how it was computed: mean or sum, and by what number it was scaled."""

from __future__ import annotations

from typing import Any

import torch

from ...model.training import LossGraph
from .. import torch_private

#: Number of operations between the loss and its reduction that are followed, such as divisions.
_MOST_NODES = 6
#: ``torch.nn.functional``: 0 is "none", 1 is "mean", 2 is "sum".
_REDUCTIONS = {1: "mean", 2: "sum"}
#: Operations that pass their first input on and neither scale nor reduce it.
_PASSED = ("AddBackward0", "ToCopyBackward0", "ViewBackward0", "SqueezeBackward0", "CloneBackward0")


def describe(loss: torch.Tensor) -> LossGraph | None:
    """How a loss was computed; None if it has no graph. Call it before the backward pass."""
    node = loss.grad_fn
    factor: float | None = 1.0
    for _ in range(_MOST_NODES):
        if node is None:
            return None
        name = node.name()
        if name in ("DivBackward0", "MulBackward0"):
            number = _number(node)
            if number is None or factor is None or number == 0:
                factor = None
            else:
                factor = factor / number if name == "DivBackward0" else factor * number
        elif name == "NegBackward0":  # what should grow, such as a reward, is negated
            factor = None if factor is None else -factor
        elif name not in _PASSED:
            return LossGraph(reduction=_reduction(name, node), factor=factor)
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return LossGraph(factor=factor)


def _reduction(name: str, node: Any) -> str:
    if name.startswith("MeanBackward"):
        return "mean"
    if name.startswith("SumBackward"):
        return "sum"
    return _REDUCTIONS.get(torch_private.saved_by(node, "reduction"), "")


def _number(node: Any) -> float | None:
    """The constant by which a node divides or multiplies; None if that is not a constant."""
    values = [torch_private.saved_by(node, name) for name in ("other", "self")]
    constants = [v for v in values if isinstance(v, torch.Tensor) and not v.requires_grad]
    if len(constants) != 1 or constants[0].numel() != 1 or not constants[0].is_cpu:
        return None
    return float(constants[0])
