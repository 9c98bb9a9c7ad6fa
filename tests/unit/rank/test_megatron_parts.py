"""Which parts of parameters are read, and which line is known to have written over them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ddt_notebook.rank.frameworks.megatron_groups import Mesh
from ddt_notebook.rank.frameworks.megatron_parts import Parts


class _Pair(Mesh):
    """Two ranks that share each model."""

    def members(self, axis: str) -> tuple[int, ...]:
        return (0, 1) if axis == "tensor" else ()


def _parts() -> tuple[Parts, ModuleType]:
    layers = ModuleType("layers")

    def mark(tensor: Any, is_parallel: bool, dim: int, stride: int) -> None:
        tensor.tensor_model_parallel = is_parallel

    layers.set_tensor_model_parallel_attributes = mark  # type: ignore[attr-defined]
    parts = Parts(_Pair())
    parts.watch(layers)
    return parts, layers


def test_each_layer_is_read_once_in_a_run_unless_its_part_is_whole_or_constant() -> None:
    parts, layers = _parts()
    divided, whole, zero = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)
    nn.init.zeros_(zero.weight)
    for layer in (divided, zero):
        layers.set_tensor_model_parallel_attributes(layer.weight, True, 0, 1)
    found = []
    for layer in (divided, whole, zero):
        assert parts.expects(layer)
        found.append(parts.enters(layer, sys._getframe()))
        assert not parts.expects(layer)
    part, *others = found
    assert others == [None, None]
    assert part is not None
    assert (part.name, part.among) == ("Linear.weight", (0, 1))
    before = part.value
    divided.weight.data.add_(1)
    parts.begin_run()
    again = parts.enters(divided, sys._getframe())
    assert again is not None
    assert again.value != before


def test_the_line_of_a_broadcast_is_kept_of_parts_only() -> None:
    parts, layers = _parts()
    first, second = nn.Linear(4, 2), nn.Linear(4, 2)
    for layer in (first, second):
        layers.set_tensor_model_parallel_attributes(layer.weight, True, 0, 1)
    parts.broadcasts(first.weight.data, (0, 1))  # shares the memory, and has no marks
    parts.broadcasts(second.weight.data, (0,))  # writes over no other part
    parts.broadcasts(torch.ones(3), (0, 1))
    moved = first.weight.data.clone()
    first.weight.data = moved  # as into a buffer of all parameters
    parts.broadcasts(moved, (0, 1))
    assert [one() for one, _ in parts._written.values()] == [first.weight]
