"""Measures the parts of a rank's memory: parameters, gradients, optimizer state, buffers, rest."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ... import system_memory
from ...model.memory import MemoryKind, RankMemory
from .. import torch_private
from . import process_memory
from .objects import Objects, buffers, find, local, local_bytes, optimizer_state, unwrap
from .simulated import simulated_gpus

#: The largest number of nodes of an autograd graph that are visited.
_MAX_NODES = 200_000


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None, **_: Any
) -> RankMemory:
    """The memory of this rank now, without a history.

    Parameters
    ----------
    rank
        Global rank.
    namespace
        The rank's variables.
    names
        Only these variables.

    Raises
    ------
    UnknownName
        If there is no such variable.
    """
    found = find(namespace, names)
    memory = of_models(rank, found.modules.values(), found.optimizers.values())
    return of_process(with_parts(memory, tensors=variable_bytes(found)))


def observe_running(rank: int, namespace: Mapping[str, Any]) -> RankMemory:
    """The memory of a rank whose main thread runs; asks nothing of a GPU.

    The GPU's allocator may be locked for as long as the main thread waits for the GPU, and the
    kernel's count of shared pages stops the process's changes to its memory map.
    """
    found = find(namespace)
    memory = of_models(rank, found.modules.values(), found.optimizers.values())
    return replace(
        with_parts(memory, tensors=variable_bytes(found)),
        measured="running",
        rss_bytes=system_memory.resident_bytes(),
        data_bytes=system_memory.data_bytes(),
        limits=process_memory.limits(gpu=False),
    )


def of_gpu(memory: RankMemory) -> RankMemory:
    """With what the allocator of this rank's GPU holds; waits for nothing on the GPU.

    Only the main thread may call it, see `observe_running`.
    """
    if not process_memory.uses_gpu() or not memory.device.startswith("cuda"):
        return memory
    whole = torch.cuda.get_device_properties(memory.device).total_memory
    return replace(
        memory,
        limits=memory.limits | {"GPU": whole},
        gpu_allocated=torch.cuda.memory_allocated(memory.device),
        gpu_reserved=torch.cuda.memory_reserved(memory.device),
        gpu_peak=torch.cuda.max_memory_allocated(memory.device),
    )


def of_process(memory: RankMemory) -> RankMemory:
    """With the memory of the process from the operating system, and of the GPU from CUDA."""
    gpu = process_memory.uses_gpu()
    return replace(
        memory,
        rss_bytes=system_memory.resident_bytes(),
        pss_bytes=system_memory.pss_bytes(),
        data_bytes=system_memory.data_bytes(),
        limits=process_memory.limits(),
        gpu_allocated=torch.cuda.memory_allocated() if gpu else None,
        gpu_reserved=torch.cuda.memory_reserved() if gpu else None,
        gpu_peak=torch.cuda.max_memory_allocated() if gpu else None,
    )


def of_models(
    rank: int, modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]
) -> RankMemory:
    """The parts that models and optimizers hold, and the facts that an estimate needs."""
    modules, optimizers = list(modules), list(optimizers)
    parameters = _parameters(modules, optimizers)
    wrappers = dict.fromkeys(unwrap(module)[1] for module in modules)
    # tensors on a simulated GPU are in the memory of the process
    devices = dict.fromkeys("cpu" if simulated_gpus() else str(local(p).device) for p in parameters)
    kinds = dict.fromkeys(type(getattr(o, "optim", o)).__name__ for o in optimizers)
    return RankMemory(
        rank=rank,
        device=next(iter(devices), "cpu"),
        parts={kind: size for kind, size in _parts(modules, optimizers, parameters) if size},
        optimizer=", ".join(kinds),
        parameter_count=sum(p.numel() for p in parameters),
        trained_count=sum(p.numel() for p in parameters if p.requires_grad),
        wrapper=next(filter(None, wrappers), ""),
    )


def _parts(
    modules: list[nn.Module], optimizers: list[Optimizer], parameters: list[torch.Tensor]
) -> Iterator[tuple[MemoryKind, int]]:
    """Bytes that models and optimizers hold on this rank, by kind."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    state = [
        value
        for optimizer in optimizers
        for _, value, _ in optimizer_state(optimizer, {})
        if isinstance(value, torch.Tensor)
    ]
    held = {id(b): b for module in modules for b in buffers(module)}
    yield "parameters", local_bytes(parameters)
    yield "gradients", local_bytes(gradients)
    yield "optimizer state", local_bytes(state)
    yield "buffers", local_bytes(held.values())
    buckets = (
        _bucket_bytes(ddp)
        for ddp in ddp_modules(modules)
        if not ddp.gradient_as_bucket_view  # otherwise the gradients are views of the buckets
    )
    yield "DDP buckets", sum(buckets)


def _bucket_bytes(ddp: DistributedDataParallel) -> int:
    """The size of DDP's buckets, which together hold each gradient once.

    DDP gives their sizes under a lock that a backward pass holds for as long as it waits for other
    ranks. Another thread would wait with it.
    """
    if threading.current_thread() is threading.main_thread():
        return sum(torch_private.bucket_sizes(ddp))
    return local_bytes(
        parameter
        for name, parameter in ddp.module.named_parameters()
        if parameter.requires_grad and name not in ddp.parameters_to_ignore
    )


def variable_bytes(found: Objects) -> int:
    """Bytes of the variables that are tensors; shared memory counts once."""
    return sum({key: size for t in found.tensors.values() for key, size in storages(t)}.values())


def ddp_modules(modules: Iterable[nn.Module]) -> list[DistributedDataParallel]:
    """The DDP models among some modules and their submodules."""
    return [p for m in modules for p in m.modules() if isinstance(p, DistributedDataParallel)]


def with_parts(memory: RankMemory, **sizes: int) -> RankMemory:
    """With more parts, in bytes by kind; those of size 0 are left out."""
    return replace(memory, parts=memory.parts | {kind: n for kind, n in sizes.items() if n})


def storages(tensor: torch.Tensor) -> Iterator[tuple[tuple[str, int], int]]:
    """Device and address of a tensor's memory, with its size; empty if it has no own memory."""
    part = local(tensor)
    if part.layout is torch.strided and part.device.type != "meta":
        try:
            storage = part.untyped_storage()
            address = storage.data_ptr()
        except (NotImplementedError, RuntimeError):
            return  # a wrapper of torch.func or a fake tensor
        yield (str(part.device), address), storage.nbytes()


def kept_for_backward(output: Any, others: Iterable[torch.Tensor]) -> int:
    """Bytes of the activations that a graph keeps for its backward pass.

    Parameters
    ----------
    output
        The output of a forward pass: tensors, or containers of tensors.
    others
        Tensors that exist anyway, such as parameters, whose memory is not counted.
    """
    known = {key for tensor in others for key, _ in storages(tensor)}
    kept: dict[tuple[str, int], int] = {}
    pending = [t.grad_fn for t in tensors_in(output) if t.grad_fn is not None]
    seen = set(pending)
    while pending and len(seen) < _MAX_NODES:
        node = pending.pop()
        for value in torch_private.saved_values(node):
            for tensor in tensors_in(value, 1):
                kept.update((key, size) for key, size in storages(tensor) if key not in known)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return sum(kept.values())


def tensors_in(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """The tensors of a model's output."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif depth and hasattr(value, "__dataclass_fields__"):
        yield from tensors_in(vars(value), depth - 1)


def _parameters(
    modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]
) -> list[torch.Tensor]:
    found = {id(p): p for module in modules for p in module.parameters()}
    for optimizer in optimizers:
        found |= {id(p): p for group in optimizer.param_groups for p in group["params"]}
    return list(found.values())
