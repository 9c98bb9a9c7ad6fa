"""Reports the devices of this rank's tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin

from ...model.placement import (
    Accelerator,
    PlacedObject,
    RankPlacement,
    Role,
    TensorPlacement,
)
from .. import torch_private
from . import training
from .objects import (
    FLATTENING,
    Objects,
    buffers,
    find,
    is_dtensor,
    local,
    mesh_label,
    optimizer_state,
    unwrap,
)
from .simulated import GPU, simulated_gpus

_MAX_TENSORS = 1000
_MAX_OBJECTS = 60
#: Attributes that every module has: its registered parts and its hooks.
_OWN_ATTRIBUTES = frozenset(vars(nn.Module()))


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankPlacement:
    """The tensors that this rank holds, by device."""
    found = find(namespace, names)
    parameter_names = found.parameter_names()
    optimized = {
        id(p)
        for optimizer in found.optimizers.values()
        for group in optimizer.param_groups
        for p in group["params"]
    }
    alone = training.RECORD.stepped_alone()
    objects = [
        *(_module(n, m, found.also.get(n, []), optimized, alone) for n, m in found.modules.items()),
        *(_optimizer(n, o, parameter_names) for n, o in found.optimizers.items()),
        *_variables(found),
    ]
    return RankPlacement(
        rank=rank,
        objects=tuple(objects[:_MAX_OBJECTS]),
        objects_left_out=max(0, len(objects) - _MAX_OBJECTS),
        unreadable=tuple(found.unreadable),
        accelerators=tuple(_accelerators()),
    )


def _module(
    name: str, outer: nn.Module, also: list[str], optimized: set[int], alone: set[int]
) -> PlacedObject:
    module, wrapper = unwrap(outer)
    parameters = dict(module.named_parameters())
    tensors = [_describe(n, p, "parameter") for n, p in parameters.items()]
    tensors += [_describe(n, b, "buffer") for n, b in module.named_buffers()]
    if wrapper not in FLATTENING:  # their modules have views of the flat parameter as attributes
        tensors += [_describe(n, t, "attribute") for n, t in _attributes(module)]
    return replace(
        _placed(name, "module", type(module).__name__, tensors),
        wrapper=wrapper,
        trained=any(id(p) in optimized or p.grad is not None for p in parameters.values()),
        stepped_alone=any(id(p) in alone for p in parameters.values()),
        also=tuple(also),
        loose_modules=tuple(_loose_modules(module)),
    )


def _attributes(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that a module holds but has not registered."""
    registered = {id(t) for t in (*module.parameters(), *buffers(module))}
    for prefix, part in module.named_modules():
        if not type(part)._apply.__module__.startswith("torch."):
            continue  # it moves its tensors by itself, as a metric of torchmetrics does
        for key, value in _own_values(part):
            # a stage of a pipeline is given its input so
            if hasattr(part, f"set_{key}"):
                continue
            # a tensor with a grad_fn was computed in the last step and is not part of the model
            if isinstance(value, torch.Tensor) and value.is_leaf and id(value) not in registered:
                registered.add(id(value))
                yield f"{prefix}.{key}".lstrip("."), value


def _loose_modules(module: nn.Module) -> Iterator[str]:
    registered = {id(part) for part in module.modules()}
    for prefix, part in module.named_modules():
        for key, value in _own_values(part):
            if isinstance(value, nn.Module) and id(value) not in registered:
                yield f"{prefix}.{key}".lstrip(".")


def _own_values(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The attributes of one module, and the entries of its lists and dicts."""
    for key, value in vars(module).items():
        if key in _OWN_ATTRIBUTES:
            continue
        if isinstance(value, (list, tuple)):
            yield from ((f"{key}[{at}]", item) for at, item in enumerate(value[:_MAX_TENSORS]))
        elif isinstance(value, dict):
            yield from ((f"{key}[{k!r}]", item) for k, item in list(value.items())[:_MAX_TENSORS])
        else:
            yield key, value


def _optimizer(name: str, optimizer: Any, parameter_names: Mapping[int, str]) -> PlacedObject:
    tensors = [
        _describe(n, value, "state")
        for n, value, _ in optimizer_state(optimizer, parameter_names)
        if isinstance(value, torch.Tensor)
    ]
    return _placed(name, "optimizer", type(optimizer).__name__, tensors)


def _variables(found: Objects) -> list[PlacedObject]:
    """Tensors outside modules; those of one container, such as a batch, together."""
    by_root: dict[str, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in found.tensors.items():
        root, bracket, rest = name.partition("[")
        by_root.setdefault(root, []).append((bracket + rest, tensor))
    return [
        _placed(root, "tensor", "" if members[0][0] else "Tensor", [
            _describe(name, tensor, "tensor") for name, tensor in members
        ])
        for root, members in by_root.items()
    ]  # fmt: skip


def _placed(
    name: str,
    kind: Literal["module", "optimizer", "tensor"],
    type_name: str,
    tensors: list[TensorPlacement],
) -> PlacedObject:
    return PlacedObject(
        name=name,
        kind=kind,
        type=type_name,
        tensors=tuple(tensors[:_MAX_TENSORS]),
        tensors_left_out=max(0, len(tensors) - _MAX_TENSORS),
        bytes=sum(tensor.bytes for tensor in tensors),
    )


def _describe(name: str, tensor: torch.Tensor, role: Role) -> TensorPlacement:
    described = TensorPlacement(
        name=name,
        role=role,
        device=str(tensor.device),
        dtype=str(tensor.dtype).removeprefix("torch."),
        requires_grad=tensor.requires_grad,
    )
    if isinstance(tensor, UninitializedTensorMixin):  # a lazy module before its first batch
        return described
    described = replace(described, shape=tuple(tensor.shape), bytes=_bytes(local(tensor)))
    if not is_dtensor(tensor):
        return described
    sharded: Any = tensor
    return replace(
        described,
        device=str(local(tensor).device),
        placements=", ".join(map(placement_name, sharded.placements)),
        mesh=mesh_label(tensor),
        local_shape=tuple(local(tensor).shape),
    )


def placement_name(placement: Any) -> str:
    """``Shard(0)``: the same text in every version of torch."""
    if placement.is_replicate():
        return "Replicate()"
    if placement.is_partial():
        return "Partial()"
    return f"Shard({placement.dim})"


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's elements; 0 on the meta device."""
    if tensor.is_meta:
        return 0
    if tensor.layout is torch.sparse_coo:
        return sum(map(_bytes, torch_private.sparse_parts(tensor)))
    return tensor.numel() * tensor.element_size()


def _accelerators() -> list[Accelerator]:
    """GPUs that this rank can see; does not ask the driver if torch was built without CUDA."""
    simulated = simulated_gpus()
    if simulated:
        return [
            Accelerator(device=f"{GPU}:{at}", identity=str(at), simulated=True)
            for at in range(simulated)
        ]
    if not torch.backends.cuda.is_built():
        return []
    visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
    found = []
    for index in range(torch.cuda.device_count()):
        identity = visible[index] if index < len(visible) else str(index)
        name = ""
        if torch.cuda.is_initialized():  # otherwise this would create a context on it
            name = torch.cuda.get_device_name(index)
        found.append(Accelerator(device=f"cuda:{index}", identity=identity, name=name))
    return found
