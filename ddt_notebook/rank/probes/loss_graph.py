"""Reads from a loss's graph how it was computed: mean or sum, and by what number it was scaled."""

from __future__ import annotations

from math import isclose
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


def count(loss: torch.Tensor) -> int:
    """By how many elements a loss divides a sum, if the program counted or chose them; else 0.

    It may have ignored targets, divided by a count of its own, or taken the mean of a selection.
    Call it before the backward pass.
    """
    node = loss.grad_fn
    divisor = 1.0
    for _ in range(_MOST_NODES):
        if node is None:
            return 0
        name = node.name()
        if name in ("DivBackward0", "MulBackward0"):
            number = _number(node)
            if not number:
                return 0
            divisor *= number if name == "DivBackward0" else 1 / number
        elif name.startswith("NllLoss"):
            if _REDUCTIONS.get(torch_private.saved_by(node, "reduction")) == "sum":
                return _whole(divisor)
            weights = torch_private.saved_by(node, "total_weight")
            plain = torch_private.saved_by(node, "weight") is None
            return int(weights) if plain and _is_mean(node) and _is_single(weights) else 0
        elif name.startswith("SumBackward"):
            return _whole(divisor)
        elif name.startswith("MeanBackward"):
            return _chosen(node)
        elif name not in (*_PASSED, "NegBackward0"):
            return 0
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return 0


def _whole(number: float) -> int:
    whole = round(number)
    return whole if whole > 1 and isclose(whole, number, rel_tol=1e-6) else 0


def _is_mean(node: Any) -> bool:
    return _REDUCTIONS.get(torch_private.saved_by(node, "reduction")) == "mean"


def _is_single(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_cpu


def _chosen(mean: Any) -> int:
    """The number of elements of a mean, if they were selected just before it."""
    node = mean
    for _ in range(_MOST_NODES):
        node = next((n for n, _ in node.next_functions if n is not None), None)
        if node is None:
            return 0
        if node.name() in ("IndexBackward0", "MaskedSelectBackward0"):
            elements = torch_private.saved_by(mean, "self_numel")
            elements = torch_private.saved_by(mean, "self_sym_numel") or elements
            return int(elements) if isinstance(elements, int) else 0
    return 0


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
