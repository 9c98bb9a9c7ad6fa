"""Where this rank's part of a sharded model, or of an optimizer's state, lies within the whole.

The whole is all parameters, one behind the other. A parameter that several dimensions of a mesh
divide is laid out in blocks: the blocks of a rank's rows stand together, and within them those of
its columns.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ...model.partition import SHARD_SLOTS, ModelShard, fill
from .. import torch_private
from ..frameworks import registered as frameworks
from .objects import is_dtensor, local, mesh_label, unwrap
from .pieces import Piece, Range
from .placement import placement_name


def observe(
    modules: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]
) -> Iterator[ModelShard]:
    """What this rank holds of each sharded module and of each optimizer with a sharded state."""
    for name, outer in modules.items():
        module, wrapper = unwrap(outer)
        if wrapper in ("FSDP2", "DTensor"):
            yield _shard(name, wrapper, map(_piece, module.parameters()))
        elif wrapper == "FSDP":
            pieces = [Piece(*one, "flat parameter") for one in torch_private.flat_shards(module)]
            if pieces:
                yield _shard(name, wrapper, pieces)
        elif wrapper == "DeepSpeed" and (pieces := list(_of_deepspeed(module))):
            yield _shard(name, "DeepSpeed ZeRO-3", pieces)
        elif not wrapper and (of_framework := frameworks.pieces(outer)) is not None:
            yield _shard(name, *of_framework)
        zero = getattr(outer, "optimizer", None) if wrapper == "DeepSpeed" else None
        if pieces := list(_of_deepspeed_groups(zero)):
            yield _shard(f"{name}.optimizer", "DeepSpeed ZeRO", pieces)
    zero_redundancy = sys.modules.get("torch.distributed.optim")
    for name, optimizer in optimizers.items():
        kind = getattr(zero_redundancy, "ZeroRedundancyOptimizer", None)
        if kind is not None and isinstance(optimizer, kind):
            yield _shard(name, "ZeroRedundancyOptimizer", _of_optimizer(optimizer))


def _shard(name: str, wrapper: str, pieces: Iterable[Piece]) -> ModelShard:
    pieces = list(pieces)
    spread = Counter(piece.spread for piece in pieces if piece.spread)
    places = dict.fromkeys((piece.mesh, piece.coordinate) for piece in pieces if piece.mesh)
    return ModelShard(
        name=name,
        wrapper=wrapper,
        parameters=sum(piece.size for piece in pieces),
        local_parameters=sum(piece.count for piece in pieces),
        local_bytes=sum(piece.count * piece.item_bytes for piece in pieces),
        placements=tuple(text for text, _ in spread.most_common()),
        mesh="; ".join(dict.fromkeys(mesh for mesh, _ in places)),
        coordinate=next(iter(places))[1] if len(places) == 1 else (),
        slots=_slots(pieces),
    )


def _slots(pieces: list[Piece]) -> tuple[int, ...]:
    """The percentage of each slot of the whole that is held; empty if that is not known."""
    whole = sum(piece.size for piece in pieces)
    if not whole or any(piece.held is None for piece in pieces):
        return ()
    amounts = [0.0] * SHARD_SLOTS
    before = 0
    for piece in pieces:
        low, high = ((before + at) * SHARD_SLOTS / whole for at in piece.held or (0, 0))
        fill(amounts, low, high)
        before += piece.size
    return tuple(min(100, round(100 * amount)) for amount in amounts)


# -- DTensor ---------------------------------------------------------------------------------------


def _piece(parameter: nn.Parameter) -> Piece:
    size, part = parameter.numel(), local(parameter)
    if not is_dtensor(parameter):
        return Piece(size, (0, size), size, parameter.element_size())
    spread = ", ".join(map(placement_name, parameter.placements))  # type: ignore[attr-defined]
    held = _block(parameter)
    mesh = parameter.device_mesh  # type: ignore[attr-defined]
    coordinate = tuple(mesh.get_coordinate() or ())
    return Piece(
        *(size, held, part.numel(), part.element_size(), spread),
        *(mesh_label(parameter), coordinate),
    )


def _block(tensor: Any) -> Range | None:
    """The part of a DTensor; None if it is not what its placements say."""
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return None
    ranges = [(0, length) for length in tensor.shape]
    axes = list(enumerate(tensor.placements))
    # a strided shard is a part of what the other axes of the mesh have made
    for axis, placement in sorted(axes, key=lambda one: _is_strided(one[1])):
        if placement.is_shard() or _is_strided(placement):
            low, high = ranges[placement.dim]
            count = tensor.device_mesh.size(axis)
            each = -(-(high - low) // count)
            begin = min(high, low + each * coordinate[axis])
            ranges[placement.dim] = begin, min(high, begin + each)
    if tuple(high - low for low, high in ranges) != tuple(local(tensor).shape):
        return None
    begin, length = 0.0, float(tensor.numel())
    for (low, high), whole in zip(ranges, tensor.shape, strict=True):
        if whole:
            begin, length = begin + length * low / whole, length * (high - low) / whole
    return round(begin), round(begin + length)


def _is_strided(placement: Any) -> bool:
    return hasattr(placement, "split_factor")


# -- ZeRO ------------------------------------------------------------------------------------------


def _of_optimizer(optimizer: Any) -> Iterator[Piece]:
    """The parameters whose state ``ZeroRedundancyOptimizer`` keeps on this rank."""
    mine = {id(p) for group in optimizer.optim.param_groups for p in group["params"]}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            size = parameter.numel()
            count = size if id(parameter) in mine else 0
            yield Piece(size, (0, count), count, parameter.element_size(), "by parameter")


def _of_deepspeed(module: nn.Module) -> Iterator[Piece]:
    """The partitions of ZeRO-3: each rank has an equal part of each parameter."""
    for parameter in module.parameters():
        part = getattr(parameter, "ds_tensor", None)
        size = getattr(parameter, "ds_numel", None)
        if part is None or size is None:
            return
        length = part.numel()
        begin = min(size, length * _rank_in(getattr(parameter, "ds_process_group", None)))
        held = begin, min(size, begin + length)
        yield Piece(size, held, held[1] - held[0], part.element_size(), "by element")


def _of_deepspeed_groups(optimizer: Any) -> Iterator[Piece]:
    """The partitions of ZeRO-1 and ZeRO-2: each rank updates an equal part of each group."""
    parts = getattr(optimizer, "single_partition_of_fp32_groups", None)
    groups = getattr(optimizer, "real_dp_process_group", None)
    sizes = getattr(optimizer, "partition_size", None)
    if not parts or not groups or not sizes:
        return
    for part, group, length in zip(parts, groups, sizes, strict=False):
        size = length * group.size()
        begin = length * _rank_in(group)
        yield Piece(size, (begin, begin + length), length, part.element_size(), "by element")


def _rank_in(group: Any) -> int:
    return int(group.rank()) if group is not None else 0
