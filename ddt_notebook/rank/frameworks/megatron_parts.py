"""The parts of parameters that ranks of a tensor-parallel group hold, which have to differ.

A part that a collective has written over is an ordinary tensor: nothing raises, and the model
computes with one part several times.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from ...model import Position
from ..probes.fingerprints import fingerprint
from ..probes.frames import local_variables, model_call, user_line
from ..probes.objects import local, local_bytes
from .megatron_groups import Mesh, ranks_of

#: Layers of a run whose parts are compared, the bytes of all of them, and broadcasts before which
#: the memory of all parts is looked up. They bound the time and were chosen, not measured.
_MOST_LAYERS, _MOST_BYTES, _MOST_LOOKUPS = 64, 1 << 30, 256
#: What marks a parameter of which each rank holds a part.
_MARKS = "set_tensor_model_parallel_attributes"
#: Torch's function in which a module is called.
_CALLS_MODULE = "_call_impl"


@dataclass(frozen=True, slots=True)
class Part:
    """What a rank holds of a parameter.

    Attributes
    ----------
    name
        The parameter's name in the outermost module that is called.
    value
        The fingerprint of the part.
    among
        The ranks of the tensor-parallel group.
    where
        The line that wrote over it, if one was seen, else the line that calls the model.
    """

    name: str
    value: str
    among: tuple[int, ...]
    where: Position | None


def is_divided(parameter: Any) -> bool:
    """Whether the ranks of a tensor-parallel group hold parts of a parameter."""
    return bool(getattr(parameter, "tensor_model_parallel", False))


class Parts:
    """The parts that this rank holds, and the lines that broadcast one of them.

    Parameters
    ----------
    mesh
        The rank's groups.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        #: All parts of this process, and those whose memory was looked up last, by its address.
        self._marked: list[weakref.ref[torch.Tensor]] = []
        self._by_address: dict[int, weakref.ref[torch.Tensor]] = {}
        self._written: dict[int, tuple[weakref.ref[torch.Tensor], Position | None]] = {}
        self._entered: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._lookups = self._bytes = 0

    def begin_run(self) -> None:
        """Begin to observe another run."""
        self._entered.clear()
        self._lookups = self._bytes = 0
        self._marked = [one for one in self._marked if one() is not None]
        self._written = {at: one for at, one in self._written.items() if one[0]() is not None}

    def watch(self, layers: ModuleType) -> None:
        """Learn which parameters are divided."""
        original = getattr(layers, _MARKS, None)
        if original is None:  # another version of Megatron-core
            return

        @functools.wraps(original)
        def mark(tensor: Any, is_parallel: Any, *args: Any, **kwargs: Any) -> Any:
            if is_parallel and isinstance(tensor, torch.Tensor):
                self._marked.append(weakref.ref(tensor))
            return original(tensor, is_parallel, *args, **kwargs)

        setattr(layers, _MARKS, mark)

    def broadcasts(self, tensor: Any, members: tuple[int, ...]) -> None:
        """Note the line of a broadcast that writes over the parts of other ranks."""
        tensors = self._mesh.members("tensor")
        if len({*tensors} & {*members}) < 2 or not isinstance(tensor, torch.Tensor):
            return
        part = tensor if is_divided(tensor) else self._at_address(tensor)
        if part is not None:
            self._written[id(part)] = weakref.ref(part), user_line(sys._getframe(2))

    def _at_address(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The part whose memory a tensor shares, as ``parameter.data`` does."""
        if not self._marked or tensor.numel() == 0:
            return None
        address = tensor.data_ptr()
        found = self._held(address)
        if found is None and self._lookups < _MOST_LOOKUPS:
            self._lookups += 1
            held = ((one, one()) for one in self._marked)
            self._by_address = {part.data_ptr(): one for one, part in held if part is not None}
            found = self._held(address)
        return found if found is not None and found.numel() == tensor.numel() else None

    def _held(self, address: int) -> torch.Tensor | None:
        known = self._by_address.get(address)
        part = known() if known is not None else None
        return part if part is not None and part.data_ptr() == address else None

    def expects(self, layer: Any) -> bool:
        """Whether the part that a layer holds was not read in this run so far."""
        return len(self._entered) < _MOST_LAYERS and layer not in self._entered

    def enters(self, layer: Any, frame: FrameType) -> Part | None:
        """The part that a layer holds, which is called for the first time in a run."""
        self._entered.add(layer)
        weight = getattr(layer, "weight", None)
        among = ranks_of(getattr(layer, "tp_group", None)) or self._mesh.members("tensor")
        if len(among) < 2 or not is_divided(weight) or getattr(layer, "is_expert", False):
            return None
        self._bytes += local_bytes([weight])
        if self._bytes > _MOST_BYTES or weight.untyped_storage().device.type != "cpu":
            return None
        held = local(weight)
        if held.numel() == 0 or bool((held == held.flatten()[0]).all()):
            return None  # as constants begin, such as zeros
        _, written = self._written.get(id(weight), (None, None))
        where = written or model_call(frame) or user_line(frame)
        return Part(_name(layer, frame), f"{fingerprint(held):016x}", among, where)


def _name(layer: nn.Module, frame: FrameType) -> str:
    """The name of a layer's weight in the outermost module that is called."""
    for module in reversed([*_called(frame)]):
        for name, inner in module.named_modules():
            if inner is layer:
                return f"{name}.weight".removeprefix("module.").removeprefix(".")
    return f"{type(layer).__name__}.weight"


def _called(frame: FrameType | None) -> Iterator[nn.Module]:
    """The modules that are being called, innermost first."""
    while frame is not None:
        if frame.f_code.co_name == _CALLS_MODULE:
            module = local_variables(frame).get("self")
            if isinstance(module, nn.Module):
                yield module
        frame = frame.f_back
