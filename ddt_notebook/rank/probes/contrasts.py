"""Notes losses that compare a rank's samples with others: their labels and choices.

The graph of a loss shows them: a cross entropy has more choices than samples, and a product of
matrices has computed the scores. It is read before the first, second, fourth, eighth backward pass
and so on.
"""

from __future__ import annotations

from typing import Any

import torch

from ...model import Position
from ...model.training import Contrast
from .. import torch_private
from .fingerprints import has_content, joint_content

#: Operations before a loss that are looked at, and losses of a run. They bound the record and were
#: chosen, not measured.
_NODES, MOST = 64, 12
#: Fewer samples may have labels by chance of which each is another.
_SAMPLES = 4
#: Scores of more elements than this are not read.
_ELEMENTS = 1 << 20


def describe(loss: torch.Tensor, number: int, where: Position | None) -> list[Contrast]:
    """The comparisons in a loss; call it before the backward pass."""
    found = []
    for node in _before(loss.grad_fn, "NllLossBackward0"):
        target = torch_private.saved_by(node, "target")
        scores = next(iter(_before(node, "LogSoftmaxBackward0")), None)
        shape = getattr(torch_private.saved_by(scores, "result"), "shape", ())
        if not _is_readable(target) or len(shape) != 2 or target.dim() != 1:
            continue
        samples, choices = shape
        among = _SAMPLES <= samples == choices
        if not among and (not 1 < samples < choices or choices % samples):
            continue  # such as classes or words
        if target.numel() != samples:
            continue
        labels = target.tolist()
        if among and len({*labels}) < samples:
            continue
        product = next(iter(_before(scores, "MmBackward0")), None)
        own, others = (torch_private.saved_by(product, name) for name in ("self", "mat2"))
        if not _is_readable(others) or others.shape[-1] != choices:
            continue
        found.append(
            Contrast(
                number=number,
                where=where,
                samples=samples,
                choices=choices,
                first=labels[0] if labels == list(range(labels[0], labels[0] + samples)) else None,
                own=joint_content([own.detach()]) if _is_readable(own) else 0,
                others=joint_content([others.detach()]),
                among=among,
            )
        )
    return found


def _is_readable(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.is_cpu
        and has_content(value)
        and value.numel() <= _ELEMENTS
    )


def _before(node: Any, kind: str) -> list[Any]:
    """The nearest operations of a kind among those before a node, at most two."""
    waiting = [node] if node is not None else []
    seen = set(waiting)
    found: list[Any] = []
    for one in waiting:
        if one.name() == kind:
            found.append(one)
            continue
        for following, _ in one.next_functions:
            if following is not None and following not in seen and len(seen) < _NODES:
                seen.add(following)
                waiting.append(following)
    return found
