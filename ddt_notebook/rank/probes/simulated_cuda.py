"""Makes ``torch.cuda``, tensors and checkpoints work with simulated GPUs."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
import torch.distributed.fsdp

from .. import torch_private
from . import simulated_batch_norm, simulated_generator, simulated_streams
from .simulated import CPU, GPU, InsideCalls, SimulatedGPUs, device_of, mark, mark_of

_REFUSED = (
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "can_device_access_peer",
    "current_blas_handle",
    "current_solver_handle",
    "device_memory_used",
    "memory_usage",
    "memory_summary",
    "memory_snapshot",
    "utilization",
    "temperature",
    "power_draw",
    "clock_rate",
)
#: The beginning of the names of types such as ``torch.cuda.FloatTensor``.
_TYPES = "torch.cuda."
_asks_default = False
_NOTHING_TO_DO = (
    "init",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_accumulated_host_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
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
    _patch_type()
    _patch_autocast()
    simulated_streams.install(gpus)
    simulated_generator.install(gpus)
    simulated_batch_norm.install()
    _patch_ddp(gpus)
    _refuse_data_parallel()
    _refuse_sharding()
    _register_checkpoints(gpus)
    torch_private.let_backward_passes_run_within(lambda: InsideCalls(gpus))
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
    for name in ("current_device", "device_count", "is_initialized"):
        setattr(torch.cuda.random, name, getattr(cuda, name))
    cuda.get_device_name = lambda device=None: f"simulated GPU {index(device)}"
    # libraries read it to choose faster implementations on new GPUs
    cuda.get_device_capability = lambda device=None: (0, 0)
    # CUDA has allocated nothing
    cuda.memory_stats_as_nested_dict = lambda *_, **__: {}
    for name in _NOTHING_TO_DO:
        setattr(cuda, name, lambda *_, **__: None)
    for name in _REFUSED:
        if hasattr(cuda, name):  # torch 2.12 has no current_solver_handle
            setattr(cuda, name, _refused(f"torch.cuda.{name}", getattr(cuda, name)))
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        setattr(cuda.nvtx, name, lambda *_, **__: None)
    cuda.profiler.start = cuda.profiler.stop = lambda: None
    cuda.get_per_process_memory_fraction = lambda device=None: 1.0
    cuda.get_sync_debug_mode = lambda: 0
    cuda.get_allocator_backend = lambda: "native"
    # there is none; libraries read it to see what NCCL can do
    cuda.nccl.version = lambda: (0, 0, 0)
    cuda.get_device_properties = lambda device=None: DeviceProperties(
        name=cuda.get_device_name(device)
    )
    cuda.mem_get_info = lambda device=None: (
        psutil.virtual_memory().available,
        psutil.virtual_memory().total,
    )


@dataclass(frozen=True, kw_only=True)
class DeviceProperties:
    """What ``get_device_properties`` returns: memory and processors of the machine, else 0."""

    name: str
    major: int = 0
    minor: int = 0
    total_memory: int = field(default_factory=lambda: int(psutil.virtual_memory().total))
    multi_processor_count: int = field(default_factory=lambda: os.cpu_count() or 1)
    warp_size: int = 32
    is_integrated: bool = True
    is_multi_gpu_board: bool = False
    uuid: str = ""
    gcnArchName: str = ""  # noqa: N815  (as PyTorch calls it)
    L2_cache_size: int = 0
    max_threads_per_multi_processor: int = 0
    regs_per_multiprocessor: int = 0
    shared_memory_per_block: int = 0
    shared_memory_per_multiprocessor: int = 0


def _refuse(name: str, *_: Any, advice: str = "", **__: Any) -> Any:
    why = f"; {advice}" if advice else ""
    raise RuntimeError(
        f"{name} cannot be simulated: the GPUs of this session are simulated by the CPU{why}"
    )


def _refused(name: str, original: Any) -> Any:
    """A function that refuses; for a class, one that cannot be made, so that annotations work."""
    refuse = functools.partial(_refuse, name)
    if not isinstance(original, type):
        return refuse
    make = staticmethod(lambda _, *args, **kwargs: refuse(*args, **kwargs))
    return type(original.__name__, (), {"__new__": make, "__module__": original.__module__})


def _patch_accelerator(gpus: SimulatedGPUs) -> None:
    accelerator: Any = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.device_count = lambda: gpus.count
    accelerator.current_accelerator = lambda check_available=False: torch.device(GPU)
    accelerator.current_device_index = lambda: gpus.current
    accelerator.set_device_index = lambda device, /: torch.cuda.set_device(device)
    accelerator.synchronize = lambda device=None, /: None
    accelerator.device_index = torch.cuda.device


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
        simulated = device_of(tensor) or mark_of(tensor)
        return _real_device(tensor, original_device) if simulated is None else simulated

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
    torch_private.make_wrappers_by(functools.partial(_wrapping, gpus))
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


def _real_device(tensor: torch.Tensor, original: Any) -> torch.device:
    try:
        found = original.__get__(tensor)
    except RuntimeError:  # ShardedTensor knows the getter that was replaced, and only that one
        own = type(tensor)
        found = own.__torch_function__(original.__get__, (own,), (tensor,))
    return found  # type: ignore[no-any-return]


def _wrapping(gpus: SimulatedGPUs, original: Any) -> Any:
    """Make tensors without storage on the CPU, and mark them.

    Asynchronous collectives return such tensors. The autograd engine asks for the streams of a
    device that it does not have as soon as a gradient is one of them.
    """

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        where = kwargs.get("device")
        target = None if where is None else gpus.resolve(where)
        if target is None:
            return original(*args, **kwargs)
        made = original(*args, **{**kwargs, "device": CPU})
        mark(made, target)
        return made

    return make


def _patch_type() -> None:
    """Let ``Tensor.type`` return and take names such as ``torch.cuda.FloatTensor``.

    Those types also make tensors, and one of them can be the default.
    """
    kind: Any = torch.Tensor
    original_type, original_default = kind.type, torch.set_default_tensor_type
    for name in [name for name in vars(torch.cuda) if name.endswith("Tensor")]:
        if hasattr(torch, name):
            setattr(torch.cuda, name, _TensorType(name, (), {"__module__": "torch.cuda"}))

    def set_default(asked: Any, /) -> None:
        name = asked if isinstance(asked, str) else f"{asked.__module__}.{asked.__name__}"
        original_default(name.replace(_TYPES, "torch.", 1))
        torch.set_default_device(GPU if name.startswith(_TYPES) else "cpu")

    torch.set_default_tensor_type = set_default

    def typed(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            name = original_type(tensor)
            last = name.rpartition(".")[2]
            return name if device_of(tensor) is None else f"{_TYPES}{last}"
        asked = f"{dtype.__module__}.{dtype.__name__}" if isinstance(dtype, type) else str(dtype)
        if asked.startswith(_TYPES):
            return original_type(tensor, asked.replace(_TYPES, "torch.", 1)).cuda()
        return original_type(tensor, dtype, *args, **kwargs)

    kind.type = typed


class _TensorType(type):
    """A type such as ``torch.cuda.FloatTensor``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch, cls.__name__)(*args, **kwargs).cuda()

    def __instancecheck__(cls, instance: object) -> bool:
        made = isinstance(instance, torch.Tensor)
        return made and instance.type() == f"{cls.__module__}.{cls.__name__}"


def _patch_autocast() -> None:
    """Let ``autocast("cuda")`` hold for the CPU, too, which computes."""
    kind: Any = torch.autocast
    original_enter, original_exit = kind.__enter__, kind.__exit__

    def enter(context: Any) -> Any:
        entered = original_enter(context)
        if context.device == GPU:
            context.before_on_cpu = (
                torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cpu"),
            )
            _set_autocast(torch.is_autocast_enabled(GPU), torch.get_autocast_dtype(GPU))
        return entered

    def leave(context: Any, *raised: Any) -> Any:
        if context.device == GPU:
            _set_autocast(*context.before_on_cpu)
        return original_exit(context, *raised)

    kind.__enter__, kind.__exit__ = enter, leave


def _set_autocast(enabled: bool, dtype: torch.dtype) -> None:
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)


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


def _default_device() -> torch.device:
    """The default device; ``get_default_device`` itself makes a tensor to find its index."""
    global _asks_default  # noqa: PLW0603  (it holds for the call that is under way)
    if _asks_default:
        return torch.empty(0).device
    _asks_default = True
    try:
        return torch.get_default_device()
    finally:
        _asks_default = False


def _then_moved(make: Any) -> Any:
    """Create a tensor, then move it, because no mode intercepts ``torch.tensor``."""

    @functools.wraps(make)
    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if device is None and isinstance(data, torch.Tensor):
            device = data.device
        if device is None:
            device = _default_device()
        if isinstance(device, int):
            device = torch.device(GPU, device)
        if torch.device(device).type != GPU:
            return make(data, *args, device=device, **kwargs)
        trained = kwargs.pop("requires_grad", False)
        moved = make(data, *args, device=CPU, **kwargs).to(device)
        return moved.requires_grad_() if trained else moved

    torch_private.compile_like(made, make)
    return made


# -- DDP and checkpoints ---------------------------------------------------------------------------


def _patch_ddp(gpus: SimulatedGPUs) -> None:
    """Put DDP's buckets on the device of the parameters."""

    def within(tensor: torch.Tensor | None) -> AbstractContextManager[None]:
        return gpus.within(None if tensor is None else device_of(tensor))

    torch_private.let_ddp_work_within(within)


def _refuse_data_parallel() -> None:
    """``DataParallel`` copies the model in C++, which does not support simulated devices."""
    original: Any = torch.nn.DataParallel.__init__

    @functools.wraps(original)
    def init(self: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
        used = range(torch.cuda.device_count()) if device_ids is None else device_ids
        if len(used) > 1:
            _refuse("torch.nn.DataParallel on several GPUs")
        original(self, module, device_ids, *args, **kwargs)

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        moved, named = torch_private.tree_map_only(
            torch.Tensor, lambda tensor: tensor.cuda(self.device_ids[0]), (inputs, kwargs)
        )
        return self.module(*moved, **named)

    torch.nn.DataParallel.__init__ = init  # type: ignore[method-assign]
    torch.nn.DataParallel.forward = forward  # type: ignore[method-assign]


def _refuse_sharding() -> None:
    """FSDP shards on the device for which PyTorch was built, so its shards would be on the CPU."""
    sharded: Any = torch.distributed.fsdp
    advice = "it runs on CPU ranks in a session without `simulate`"
    sharded.fully_shard = functools.partial(_refuse, "fully_shard (FSDP2)", advice=advice)
    name = "FullyShardedDataParallel (FSDP)"
    sharded.FullyShardedDataParallel.__init__ = functools.partialmethod(
        _refuse_method, name, advice=advice
    )


def _refuse_method(_: Any, name: str, *__: Any, advice: str, **___: Any) -> None:
    _refuse(name, advice=advice)


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
