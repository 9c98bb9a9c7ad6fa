"""Finds models, optimizers, loaders and tensors among a rank's variables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ...model.parity import ParityRole
from ...model.placement import Wrapper
from .. import torch_private

#: The most entries of a list or dict, and the most levels of nested lists, that are visited.
_ENTRIES = 64
_DEPTH = 2
#: Wrappers that keep a part of one flat parameter on each rank, without parameter names.
FLATTENING = ("FSDP", "DeepSpeed")
#: Settings that select an implementation of the step and do not change its result.
_NOT_COMPARED = {"params", "foreach", "fused", "capturable", "differentiable"}


class UnknownName(LookupError):
    """The rank has no such variable."""


@dataclass
class Objects:
    """Objects by name: ``"model"``, ``"trainer.optimizer"``, ``"batch[0]"``."""

    modules: dict[str, nn.Module] = field(default_factory=dict)
    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    loaders: dict[str, DataLoader[Any]] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    #: Other names of a module, or of a part of it.
    also: dict[str, list[str]] = field(default_factory=dict)
    #: Variables that raised when they were visited.
    unreadable: list[str] = field(default_factory=list)

    def parameter_names(self) -> dict[int, str]:
        """Name of each parameter by its ``id``: ``"model.fc1.weight"``."""
        names: dict[int, str] = {}
        for root, module in self.modules.items():
            for name, parameter in unwrap(module)[0].named_parameters():
                names.setdefault(id(parameter), f"{root}.{name}")
        return names


_Values = Iterable[tuple[str, ParityRole, torch.Tensor]]


class FrameworkObjects:
    """Finds what a framework beside torch holds; a rank that is prepared for one replaces it."""

    def values(self, namespace: Mapping[str, Any], names: list[str] | None) -> _Values:
        """Name, role and value of each variable of the framework in the user's objects."""
        return ()


IN_FRAMEWORK = FrameworkObjects()


def find(namespace: Mapping[str, Any], names: list[str] | None = None) -> Objects:
    """Search all variables, or the named ones.

    Raises
    ------
    UnknownName
        If there is no such variable.
    """
    chosen = {n: _resolve(namespace, n) for n in names} if names else namespace
    found = Objects()
    for name, value in chosen.items():
        try:
            _visit(found, name, value, 0)
        except Exception:  # noqa: BLE001  (a proxy of another library may raise anything)
            found.unreadable.append(name)
    _keep_outermost(found)
    held = {id(t) for m in found.modules.values() for t in (*m.parameters(), *buffers(m))}
    found.tensors = {n: t for n, t in found.tensors.items() if id(t) not in held}
    return found


def _resolve(namespace: Mapping[str, Any], path: str) -> Any:
    first, *rest = path.split(".")
    try:
        value = namespace[first]
        for part in rest:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
    except (KeyError, AttributeError, IndexError, TypeError):
        raise UnknownName(f"there is no {path!r} on this rank") from None
    return value


def _visit(found: Objects, name: str, value: Any, depth: int) -> None:
    if isinstance(value, (nn.Module, Optimizer, DataLoader, torch.Tensor)):
        _add(found, name, value)
    elif isinstance(value, (list, tuple)) and depth < _DEPTH:
        for at, item in enumerate(value[:_ENTRIES]):
            _visit(found, f"{name}[{at}]", item, depth + 1)
    elif isinstance(value, Mapping) and depth < _DEPTH:
        for key in list(value)[:_ENTRIES]:
            _visit(found, f"{name}[{key!r}]", value[key], depth + 1)
    elif depth == 0 and not isinstance(value, (type, ModuleType, FunctionType)):
        # an object that holds model and optimizer, such as a trainer
        for key, item in list(getattr(value, "__dict__", {}).items())[:_ENTRIES]:
            if isinstance(item, (nn.Module, Optimizer, DataLoader)):
                _add(found, f"{name}.{key}", item)


def _add(found: Objects, name: str, value: Any) -> None:
    for kind, known in (
        (nn.Module, found.modules),
        (Optimizer, found.optimizers),
        (DataLoader, found.loaders),
        (torch.Tensor, found.tensors),
    ):
        if isinstance(value, kind):
            twin = next((n for n, other in known.items() if other is value), None)
            if twin is None:
                known[name] = value  # type: ignore[index]
            elif kind is nn.Module:
                found.also.setdefault(twin, []).append(name)


def _keep_outermost(found: Objects) -> None:
    """Keep only modules that are not part of another one; note the names of the others."""
    inside = {
        id(part): root
        for root, module in found.modules.items()
        for part in module.modules()
        if part is not module
    }
    for name, module in list(found.modules.items()):
        if id(module) in inside:
            root = inside[id(module)]
            while id(found.modules.get(root)) in inside:  # a part of a part
                root = inside[id(found.modules[root])]
            found.also.setdefault(root, []).extend([name, *found.also.pop(name, [])])
    for name, module in list(found.modules.items()):
        if id(module) in inside:
            del found.modules[name]


def buffers(module: nn.Module) -> Iterator[torch.Tensor]:
    """The buffers of a module; Megatron-core's DDP has another attribute of that name."""
    return (buffer for _, buffer in module.named_buffers())


def unwrap(module: nn.Module) -> tuple[nn.Module, Wrapper]:
    """The user's module, and the name of the wrapper that distributes it over the ranks."""
    wrapper: Wrapper = ""
    while True:
        if isinstance(module, DistributedDataParallel):
            wrapper, module = "DDP", module.module
        elif type(module).__name__ == "DeepSpeedEngine":
            wrapper, module = "DeepSpeed", module.module
        elif isinstance(module, DataParallel):
            module = module.module
        elif (inner := torch_private.inside_compiled(module)) is not None:
            module = inner
        else:
            break
    return module, wrapper or _sharding(module)


def has_whole_parameters(module: nn.Module, wrapper: Wrapper) -> bool:
    """Whether each rank has all of each parameter, of which its wrapper may divide what it updates.

    DeepSpeed divides the parameters themselves in ZeRO-3 only, and marks each of them.
    """
    return wrapper == "DeepSpeed" and not any(hasattr(p, "ds_id") for p in module.parameters())


def _sharding(module: nn.Module) -> Wrapper:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        parts = list(module.modules())
        if any(isinstance(part, fsdp.FSDPModule) for part in parts):
            return "FSDP2"
        if any(isinstance(part, fsdp.FullyShardedDataParallel) for part in parts):
            return "FSDP"
    if any(is_dtensor(parameter) for parameter in module.parameters()):
        return "DTensor"
    trained = [p for p in module.parameters() if p.requires_grad]
    within = {
        id(p)
        for part in module.modules()
        if isinstance(part, DistributedDataParallel)
        for p in part.parameters()
    }
    return "DDP" if trained and all(id(p) in within for p in trained) else ""


def is_dtensor(tensor: Any) -> bool:
    """Whether an object is a DTensor; does not import ``torch.distributed.tensor``."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Any) -> torch.Tensor:
    """The part of a tensor that this rank holds; needs no communication."""
    part: torch.Tensor = tensor.to_local() if is_dtensor(tensor) else tensor
    return part.detach()


def local_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the parts of tensors that this rank holds."""
    parts = [local(tensor) for tensor in tensors]
    return sum(part.numel() * part.element_size() for part in parts)


def mesh_label(tensor: Any) -> str:
    """``dp=2, tp=2`` of a DTensor's mesh; ``2×2`` if its dimensions have no names."""
    mesh = tensor.device_mesh
    sizes = list(mesh.shape)
    if mesh.mesh_dim_names:
        return ", ".join(f"{n}={s}" for n, s in zip(mesh.mesh_dim_names, sizes, strict=True))
    return "×".join(map(str, sizes))


def optimizer_settings(optimizer: Optimizer, *, on_gpu: bool = True) -> Iterator[tuple[str, str]]:
    """Names and values of an optimizer's settings: ``("lr[0]", "0.1")``.

    Those that are tensors on a GPU are left out if ``on_gpu`` is not set.
    """
    for at, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            plain = isinstance(value, (int, float, tuple, torch.Tensor))
            if isinstance(value, torch.Tensor) and not value.is_cpu and not on_gpu:
                continue
            if plain and key not in _NOT_COMPARED:
                yield f"{key}[{at}]", value_text(value)


def value_text(value: Any) -> str:
    """A number or a small tensor as text that is the same on every rank with this value."""
    plain = value.tolist() if isinstance(value, torch.Tensor) else value
    return f"{plain:.9g}" if isinstance(plain, float) else repr(plain)[:200]


def optimizer_state(
    optimizer: Optimizer, names: Mapping[int, str]
) -> Iterator[tuple[str, Any, nn.Parameter]]:
    """Name, value and parameter of each entry: ``("model.fc1.weight.exp_avg", …)``."""
    inner = getattr(
        optimizer, "optim", optimizer
    )  # ZeroRedundancyOptimizer wraps the optimizer of its part
    order = [p for group in optimizer.param_groups for p in group["params"]]
    for at, parameter in enumerate(order):
        for key, value in inner.state.get(parameter, {}).items():
            yield f"{names.get(id(parameter), f'[{at}]')}.{key}", value, parameter
