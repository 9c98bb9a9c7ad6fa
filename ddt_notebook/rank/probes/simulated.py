"""Simulates GPUs: tensors report that they are on a GPU, and the CPU computes.

Every tensor is an ordinary CPU tensor, so values, autograd, DDP and gloo are real. Its storage
carries the name of a simulated device. All views share the name, and each operation passes it on to
its results. If an operation has inputs on several devices, PyTorch's own FakeTensorMode decides
whether a GPU would accept them, and raises the exception that a GPU would raise.

The cell does not run on fake tensors: they have no values, so ``loss.item()`` would fail, and a CPU
build of PyTorch aborts as soon as autograd uses a fake tensor on ``cuda``.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .. import torch_private

#: The type of the simulated devices.
GPU = "cuda"
CPU = torch.device("cpu")
_MARK = "ddt_simulated_device"
#: The lists of these operations may mix devices; each result is on the device of its input.
_LISTS = "_foreach_"
#: Operations that only move data between ranks.
_TRANSPORT = ("c10d", "_c10d_functional", "profiler")
#: Operations that get a Python number of the graph in place of a tensor.
_READS_NUMBER, _DETACHES_NUMBER = "aten::_local_scalar_dense", "aten::detach"
#: Collectives for which NCCL counts elements only; gloo wants shapes that fit each other.
_TAKES_ANY_SHAPE = ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_")
#: FakeTensorMode's message about inputs on several devices: of torch 2.13 and later, and of 2.12.
_APART = re.compile(r"two devices, (\S+) and (\S+?)!$|two different devices (\S+), (\S+)$")
_CONVOLUTION = "aten::convolution"
_INDEXING = ("aten::index", "aten::_index_put", "aten::_unsafe_index")
#: The simulated device of each generator of random numbers that the user made; None for the CPU.
generators: weakref.WeakKeyDictionary[Any, torch.device | None] = weakref.WeakKeyDictionary()
#: What the user should know about the simulation of the current cell.
_notes: list[str] = []
#: The GPUs of this process; None if it simulates none.
active: SimulatedGPUs | None = None
_NOTHING = contextlib.nullcontext()
#: Types of most arguments that are no tensors; torch's own search for tensors takes far longer.
_WITHOUT_TENSORS = frozenset(
    {
        *(type(None), bool, int, float, str, type, FunctionType),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
        torch.Generator,
    }
)


class _Unsimulated(threading.local):
    """A context in which torch computes on what tensors really are, past simulated GPUs.

    Probes enter it: each function of torch would otherwise pass the simulation, which takes far
    longer than what they read. Without simulated GPUs it does nothing.
    """

    def __init__(self) -> None:
        self._guards: list[Any] = []

    def __enter__(self) -> None:
        if active is not None:
            for kind in (torch_private.DisableTorchFunction, torch_private.DisableTorchDispatch):
                guard = kind()
                guard.__enter__()
                self._guards.append(guard)

    def __exit__(self, *_: object) -> None:
        if self._guards:
            self._guards.pop().__exit__(None, None, None)
            self._guards.pop().__exit__(None, None, None)


UNSIMULATED = _Unsimulated()


def simulated_gpus() -> int:
    """How many GPUs this process simulates."""
    return 0 if active is None else active.count


def note(text: str) -> None:
    """Let the report on the current cell show a note."""
    if text not in _notes:
        _notes.append(text)


def take_notes() -> list[str]:
    """The notes since the last call."""
    taken = _notes[:]
    _notes.clear()
    return taken


def device_of(tensor: torch.Tensor) -> torch.device | None:
    """The simulated device of a tensor; None if it is on the CPU."""
    with torch_private.DisableTorchFunction():
        try:
            return mark_of(tensor.untyped_storage())
        except (
            NotImplementedError,
            RuntimeError,
        ):  # a sparse tensor, or another one without storage
            return None


def mark(storage: Any, device: torch.device | None) -> None:
    """Put a storage, or a tensor without one, on a simulated device; with None on the CPU."""
    setattr(storage, _MARK, device)


def mark_of(storage: Any) -> torch.device | None:
    """The simulated device that `mark` set."""
    device: torch.device | None = getattr(storage, _MARK, None)
    return device


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    """Add the tensors in a value, of whatever kinds torch knows the parts."""
    kind = type(value)
    if kind is tuple or kind is list:
        for part in value:
            _collect(part, found)
    elif isinstance(value, torch.Tensor):
        found.append(value)
    elif kind is dict:
        for part in value.values():
            _collect(part, found)
    elif kind not in _WITHOUT_TENSORS:
        leaves = torch_private.tree_flatten(value)[0]
        found += [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _on_two_devices(func: Any, args: Any, kwargs: Any, one: str, other: str) -> str:
    """What PyTorch says on GPUs.

    Element-wise operations name the devices (``TensorIterator.cpp``). The others check their
    arguments in order and name the first one that is elsewhere (``torchgen``'s
    ``check_and_update_common_device``).
    """
    said = "Expected all tensors to be on the same device, but "
    first = None
    if torch.Tag.pointwise not in func.tags:
        given = dict(zip(torch_private.argument_names(func), args, strict=False)) | kwargs
        for name, value in given.items():
            device = device_of(value) or value.device if isinstance(value, torch.Tensor) else None
            first = first or device
            if device is not None and device != first:
                method = func.name().removeprefix("aten::").replace(".", "_")
                return (
                    f"{said}got {name} is on {device}, different from other tensors on {first} "
                    f"(when checking argument in method wrapper_CUDA_{method})"
                )
    return f"{said}found at least two devices, {one} and {other}!"


class SimulatedGPUs(torch_private.TorchDispatchMode):  # type: ignore[misc]
    """Puts the results of operations on the device of their inputs, in the thread that enters it.

    Parameters
    ----------
    count
        How many GPUs there are.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        #: Index of the current device, as ``torch.cuda.set_device`` sets it.
        self.current = 0
        #: The device on which a library currently creates its own tensors.
        self.ambient: torch.device | None = None
        #: The default generator of each GPU.
        self.generators: tuple[torch.Generator, ...] = ()
        self._unchecked = False
        self._rules = torch_private.FakeTensorMode(allow_non_fake_inputs=True)

    def resolve(self, device: Any) -> torch.device | None:
        """The simulated device that an argument names; None for any other device.

        Raises
        ------
        AcceleratorError
            If there are fewer GPUs, as with CUDA.
        """
        meant = torch.device(GPU, device) if isinstance(device, int) else torch.device(device)
        if meant.type != GPU:
            return None
        index = self.current if meant.index is None else meant.index
        if index >= self.count:
            raise torch.AcceleratorError(
                f"CUDA error: invalid device ordinal (cuda:{index}, but this session simulates "
                f"{self.count} GPU{'s' if self.count > 1 else ''}: cuda:0"
                + (f" to cuda:{self.count - 1})" if self.count > 1 else ")")
            )
        return torch.device(GPU, index)

    def start(self) -> None:
        """Simulate on the calling thread from now on."""
        global active  # noqa: PLW0603  (one per process)
        active = self
        self.__enter__()
        InsideCalls(self).__enter__()

    @contextlib.contextmanager
    def within(self, device: torch.device | None) -> Iterator[None]:
        """A context for libraries that work on tensors of this device and may mix devices."""
        before = self.ambient, self._unchecked
        self.ambient, self._unchecked = device, True
        try:
            yield
        finally:
            self.ambient, self._unchecked = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Compute on the CPU, and mark the results with the device that they would have."""
        kwargs = dict(kwargs or {})
        inputs = _tensors((args, kwargs))
        if kwargs.get("device") is None:
            device = self._meeting(func, inputs, args, kwargs)
        else:
            device = self.resolve(kwargs["device"])
            if device is not None:
                kwargs["device"] = CPU
            elif torch.device(kwargs["device"]) == CPU:
                device = self.ambient
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        name = func.name()
        if name in _TAKES_ANY_SHAPE:
            args = (*map(_flat, args[:2]), *args[2:])
        elif name == _READS_NUMBER and not inputs:
            return args[0]
        elif name == _DETACHES_NUMBER and not inputs:
            return torch.as_tensor(args[0], dtype=torch.result_type(0, args[0]))
        draws = torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None
        with self._drawing_from(device) if draws and device is not None else _NOTHING:
            result = func(*args, **kwargs)
        if device is not None:
            known = {torch_private.storage_identity(tensor) for tensor in inputs}
            outputs = _tensors(result)
            own = self._one_by_one(func, args, outputs)
            for at, tensor in enumerate(outputs):
                if torch_private.storage_identity(tensor) not in known | {None}:
                    mark(tensor.untyped_storage(), own[at] if own else device)
        return result

    @contextlib.contextmanager
    def _drawing_from(self, device: torch.device) -> Iterator[None]:
        """Let random numbers come from the state of a GPU.

        An operation without a generator draws from the state of the CPU, which is exchanged for the
        time of the operation.
        """
        own, cpu = self.generators[device.index], torch.default_generator
        kept = cpu.get_state()
        cpu.set_state(own.get_state())
        try:
            yield
        finally:
            own.set_state(cpu.get_state())
            cpu.set_state(kept)

    def _meeting(
        self, func: Any, inputs: list[torch.Tensor], args: Any, kwargs: Any
    ) -> torch.device | None:
        """The device of an operation's results; raises if a GPU would refuse the inputs."""
        devices = dict.fromkeys(map(device_of, inputs))
        first = next((device for device in devices if device is not None), None)
        if len(devices) < 2:
            return first
        name = func.name()
        if (
            self._unchecked
            or name.startswith(_TRANSPORT)
            or _LISTS in name
            # the forward pass has checked the devices already; DDP has its own buckets
            or torch_private.backward_pass() != -1
        ):
            return first
        if name.startswith(_INDEXING) and isinstance(args[1], (list, tuple)):
            _check_indices(args[0], args[1])
        elif name == _CONVOLUTION:
            _check_convolution(*args[:3])
        return self._as_on_gpu(func, args, kwargs, first)

    def _as_on_gpu(
        self, func: Any, args: Any, kwargs: Any, otherwise: torch.device | None
    ) -> torch.device | None:
        """Apply PyTorch's rules to tensors without values."""
        fake_args, fake_kwargs = torch_private.tree_map_only(
            torch.Tensor, self._fake, (args, kwargs)
        )
        try:
            with self._rules:
                outputs = _tensors(func(*fake_args, **fake_kwargs))
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            apart = _APART.search(str(error))
            if apart is None:
                # the operation needs values, or has another fault that its computation will show
                return otherwise
            one, other = filter(None, apart.groups())
            # CUDA raises this type of exception
            raise RuntimeError(_on_two_devices(func, args, kwargs, one, other)) from None
        if not outputs:
            return otherwise
        device = outputs[0].device
        return device if device.type == GPU else None

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        shape = torch.empty_strided(
            tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
        )
        return torch_private.FakeTensor(self._rules, shape, device_of(tensor) or CPU)

    @staticmethod
    def _one_by_one(
        func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]
    ) -> list[torch.device | None] | None:
        if _LISTS not in func.name() or not args or not isinstance(args[0], (list, tuple)):
            return None
        twins = [device_of(tensor) for tensor in _tensors(args[0])]
        return twins if len(twins) == len(outputs) else None


class InsideCalls(TorchFunctionMode):
    """Lets functions of torch create their own tensors on the device of their arguments.

    Parameters
    ----------
    gpus
        The devices.
    """

    def __init__(self, gpus: SimulatedGPUs) -> None:
        super().__init__()
        self._gpus = gpus

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and set the device of tensors that it creates."""
        kwargs = kwargs or {}
        args, kwargs = _with_named_devices(func, args, kwargs)
        if kwargs.get("generator") is not None:
            self._check_generator(args, kwargs)
        gpus, before = self._gpus, self._gpus.ambient
        if "device" not in kwargs:
            found = map(device_of, _tensors((args, kwargs)))
            gpus.ambient = next((device for device in found if device is not None), before)
        try:
            # it takes lengths on the CPU, and makes a tensor of them
            if getattr(func, "__name__", "") == "ctc_loss":
                with gpus.within(gpus.ambient):
                    return func(*args, **kwargs)
            return func(*args, **kwargs)
        finally:
            gpus.ambient = before

    @staticmethod
    def _check_generator(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a generator of another kind of device, as CUDA does."""
        where = kwargs.get("device")
        if where is None:
            where = next(map(device_of, _tensors((args, kwargs))), None) or CPU
        kind, own = torch.device(where).type, generators.get(kwargs["generator"])
        found = kwargs["generator"].device.type if own is None else own.type
        if kind != found:
            raise RuntimeError(f"Expected a '{kind}' device type for generator but found '{found}'")


def _with_named_devices(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with ``cuda:1`` for a device that is given as the number 1.

    A CPU build of PyTorch refuses such a number.
    """
    if _is_number(kwargs.get("device")):
        kwargs = {**kwargs, "device": torch.device(GPU, kwargs["device"])}
    takes_device_first = func is torch.device or getattr(func, "__name__", "") == "_parse_to"
    if takes_device_first and args and _is_number(args[0]):
        first = f"{GPU}:{args[0]}" if func is torch.device else torch.device(GPU, args[0])
        args = (first, *args[1:])
    return args, kwargs


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1) if tensor.is_contiguous() else tensor


def _is_number(device: object) -> bool:
    return isinstance(device, int) and not isinstance(device, bool)


def _check_indices(tensor: torch.Tensor, indices: Any) -> None:
    """Check the devices of indices, which CUDA checks and FakeTensorMode does not."""
    own = device_of(tensor)
    if any(device_of(index) not in (None, own) for index in _tensors(indices)):
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({own or CPU})"
        )


def _check_convolution(
    tensor: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> None:
    """Check the devices of a convolution, as PyTorch does and FakeTensorMode does not."""
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is None or device_of(parameter) == device_of(tensor):
            continue
        kinds = tensor.type(), parameter.type()
        if kinds[0] != kinds[1]:
            raise RuntimeError(
                f"Input type ({kinds[0]}) and {name} type ({kinds[1]}) should be the same"
            )
        raise RuntimeError(
            f"Expected tensor for argument #1 'input' to have the same device as tensor for "
            f"argument #2 '{name}'; but device {tensor.device.index} does not equal "
            f"{parameter.device.index} (while checking arguments for cudnn_convolution)"
        )
