"""Makes ``torch.cuda``, tensors and checkpoints work with simulated GPUs."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager
from typing import Any

import torch

from .. import torch_private
from .simulated import CPU, GPU, SimulatedGPUs, device_of, mark, mark_of

_REFUSED = (
    "get_device_properties",
    "mem_get_info",
    "current_stream",
    "default_stream",
    "set_stream",
    "CUDAGraph",
    "graph",
    "can_device_access_peer",
)
_NOTHING_TO_DO = (
    "init",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "manual_seed",
    "manual_seed_all",
)


def install(count: int) -> SimulatedGPUs:
    """Simulate GPUs on the calling thread, until the process ends.

    As in a script under torchrun, the current device is ``cuda:0`` on every rank.

    Parameters
    ----------
    count
        The number of GPUs.
    """
    gpus = SimulatedGPUs(count)
    # otherwise DDP copies inputs on a CUDA stream
    os.environ["PYTORCH_DDP_USE_SIDE_STREAM"] = "0"
    _patch_cuda(gpus)
    _patch_accelerator(gpus)
    _patch_tensors(gpus)
    _patch_ddp(gpus)
    _register_checkpoints(gpus)
    gpus.start()
    return gpus


def _patch_cuda(gpus: SimulatedGPUs) -> None:
    cuda: Any = torch.cuda

    def index(device: Any = None) -> int:
        resolved = gpus.resolve(GPU if device is None else device)
        if resolved is None:
            raise ValueError(f"Expected a cuda device, but got: {device}")
        return int(resolved.index)

    def exchange(device: int) -> int:
        before = gpus.current
        if device >= 0:
            gpus.current = index(device)
        return before

    def set_device(device: Any) -> None:
        gpus.current = index(device)

    cuda.is_available = lambda: True
    cuda.is_initialized = cuda.is_current_stream_capturing = lambda: False
    cudnn: Any = torch.backends.cudnn
    cudnn.is_acceptable = lambda tensor: False
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.device_count = lambda: gpus.count
    cuda.current_device = lambda: gpus.current
    cuda.set_device = set_device
    torch_private.replace_cuda_internals(exchange)
    cuda.get_device_name = lambda device=None: f"simulated GPU {index(device)}"
    # libraries read it to choose faster implementations on new GPUs
    cuda.get_device_capability = lambda device=None: (0, 0)
    # CUDA has allocated nothing
    cuda.memory_stats_as_nested_dict = lambda *_, **__: {}
    for name in _NOTHING_TO_DO:
        setattr(cuda, name, lambda *_, **__: None)
    for name in _REFUSED:
        setattr(cuda, name, functools.partial(_refuse, f"torch.cuda.{name}"))
    for name in ("Stream", "Event"):
        kind = getattr(cuda, name)
        kind.__new__ = functools.partial(_refuse, f"torch.cuda.{name}")


def _refuse(name: str, *_: Any, **__: Any) -> Any:
    raise RuntimeError(
        f"{name} cannot be simulated: a session with simulated GPUs checks devices only"
    )


def _patch_accelerator(gpus: SimulatedGPUs) -> None:
    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.device_count = lambda: gpus.count
    accelerator.current_accelerator = lambda check_available=False: torch.device(GPU)
    accelerator.current_device_index = lambda: gpus.current
    accelerator.set_device_index = lambda device, /: torch.cuda.set_device(device)
    accelerator.current_stream = _NoStream
    accelerator.synchronize = lambda device=None, /: None


class _NoStream:
    """The current stream of a device, with the methods that optimizers use."""

    def __init__(self, device: Any = None) -> None:
        pass

    @staticmethod
    def is_capturing() -> bool:
        return False


# -- tensors ---------------------------------------------------------------------------------------


class _Move(torch.autograd.Function):
    """Copies a tensor to another device, and its gradient back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
        ctx.source = device_of(tensor)
        moved = tensor.detach().clone()
        mark(moved.untyped_storage(), device)
        return moved

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        moved = gradients[0].clone()
        mark(moved.untyped_storage(), ctx.source)
        return moved, None


def _patch_tensors(gpus: SimulatedGPUs) -> None:
    kind: Any = torch.Tensor
    original_device = kind.device
    original_to, original_numpy = kind.to, kind.numpy
    original_array, original_new_tensor = kind.__array__, kind.new_tensor

    def device(tensor: torch.Tensor) -> torch.device:
        simulated = device_of(tensor)
        return original_device.__get__(tensor) if simulated is None else simulated

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        other = args[0] if args else kwargs.get("other")
        if isinstance(other, torch.Tensor):
            kwargs = {name: value for name, value in kwargs.items() if name != "other"}
            args = (other.device, other.dtype, *args[1:])
        if isinstance(args[0] if args else kwargs.get("device"), int):  # the number of a GPU
            args = (torch.device(GPU, args[0]), *args[1:]) if args else args
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = torch.device(GPU, kwargs["device"])
        copy = bool(kwargs.pop("copy", False))
        where, dtype, _, layout = torch_private.parse_to(*args, **kwargs)
        options = {} if layout is None else {"memory_format": layout}
        target = None if where is None else gpus.resolve(where)
        plain = where is None or where.type not in (GPU, "cpu")
        if plain or target == device_of(tensor):
            asked = {} if where is None or target is not None else {"device": where}
            dtype = tensor.dtype if dtype is None else dtype
            return original_to(tensor, dtype=dtype, copy=copy, **asked, **options)
        if tensor.is_meta or tensor.layout != torch.strided:
            if tensor.is_meta:  # torch raises an error, since it has no values
                return original_to(tensor, CPU)
            _refuse(f"a {tensor.layout} tensor on {where}")
        if dtype is not None or options:
            dtype = tensor.dtype if dtype is None else dtype
            tensor = original_to(tensor, dtype=dtype, **options)
        return _Move.apply(tensor, target)  # type: ignore[no-any-return]

    def cuda(tensor: torch.Tensor, device: Any = None, *_: Any, **options: Any) -> torch.Tensor:
        options.pop("non_blocking", None)
        return to(tensor, gpus.resolve(GPU if device is None else device), **options)

    def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _refuse_numpy(tensor)
        return original_numpy(tensor, *args, **kwargs)

    def array(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _refuse_numpy(tensor)
        return original_array(tensor, *args, **kwargs)

    def new_tensor(tensor: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("device") is None and device_of(tensor) is None:
            return original_new_tensor(tensor, data, **kwargs)
        kwargs = {"dtype": tensor.dtype, "device": tensor.device} | kwargs
        return torch.tensor(data, **kwargs)

    kind.device = property(device)
    kind.is_cuda = property(lambda tensor: tensor.device.type == GPU)
    kind.is_cpu = property(lambda tensor: tensor.device.type == "cpu")
    kind.get_device = lambda tensor: -1 if tensor.device.index is None else tensor.device.index
    kind.to, kind.cuda, kind.numpy, kind.__array__ = to, cuda, numpy, array
    kind.cpu = lambda tensor, **options: to(tensor, CPU, **options)
    kind.new_tensor = new_tensor
    kind.pin_memory = lambda tensor, device=None: tensor
    torch.UntypedStorage.clone = _marked(torch.UntypedStorage.clone)  # type: ignore[method-assign]
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, _then_moved(getattr(torch, name)))


def _refuse_numpy(tensor: torch.Tensor) -> None:
    if device_of(tensor) is not None:
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )


def _marked(clone: Any) -> Any:
    """Make ``UntypedStorage.clone`` keep the device, for ``copy.deepcopy`` of a tensor."""

    def cloned(storage: Any) -> Any:
        copy = clone(storage)
        mark(copy, mark_of(storage))
        return copy

    return cloned


def _then_moved(make: Any) -> Any:
    """Create a tensor, then move it, because no mode intercepts ``torch.tensor``."""

    @functools.wraps(make)
    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if device is None and isinstance(data, torch.Tensor):
            device = data.device
        if device is None:
            device = torch.get_default_device()
        if torch.device(device).type != GPU:
            return make(data, *args, device=device, **kwargs)
        trained = kwargs.pop("requires_grad", False)
        moved = make(data, *args, device=CPU, **kwargs).to(device)
        return moved.requires_grad_() if trained else moved

    return made


# -- DDP and checkpoints ---------------------------------------------------------------------------


def _patch_ddp(gpus: SimulatedGPUs) -> None:
    """Put DDP's buckets on the device of the parameters."""

    def within(tensor: torch.Tensor | None) -> AbstractContextManager[None]:
        return gpus.within(None if tensor is None else device_of(tensor))

    torch_private.let_ddp_work_within(within)


def _register_checkpoints(gpus: SimulatedGPUs) -> None:
    """Make ``torch.save`` write simulated devices, and ``torch.load`` restore them."""

    def location(storage: Any) -> str | None:
        device = mark_of(torch_private.untyped(storage))
        return None if device is None else str(device)

    def restore(storage: Any, where: str) -> Any:
        if not where.startswith(GPU):
            return None
        meant = torch.device(where)
        if meant.index is not None and meant.index >= gpus.count:
            raise RuntimeError(
                f"Attempting to deserialize object on CUDA device {meant.index} but "
                f"torch.cuda.device_count() is {gpus.count}. Please use torch.load with "
                "map_location to map your storages to an existing device."
            )
        mark(torch_private.untyped(storage), gpus.resolve(meant))
        return storage

    torch.serialization.register_package(0, location, restore)
