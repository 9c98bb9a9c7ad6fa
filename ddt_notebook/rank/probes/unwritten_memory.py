"""Notes parameters that `Module.to_empty` has given memory, and to which nobody wrote.

Such memory holds what was in it before. That an optimizer steps such a parameter shows that nobody
initialised it: a write changes either the version of a tensor or, if it went through ``.data`` or
came from another process, its content.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ...model import Position
from ...model.training import UnwrittenMemory
from ..user_signals import let_through
from .frames import user_line
from .simulated import UNSIMULATED

#: So many elements of each parameter are compared.
_SAMPLE = 512
_MOST_PARAMETERS, _MOST_NAMES, _MOST_FOUND = 8192, 8, 8


@dataclass(eq=False, slots=True)
class _Filled:
    """A parameter that was given memory without values."""

    tensor: weakref.ref[torch.Tensor]
    name: str
    module: str
    where: Position | None
    is_matrix: bool
    version: int = -1
    sample: torch.Tensor | None = None

    def looks(self) -> bool:
        """Note how the tensor looks now; whether it looked so before."""
        tensor = self.tensor()
        if tensor is None:
            return False
        version, sample = tensor._version, _sampled(tensor)
        same = self.version == version and self.sample is not None
        same = same and torch.equal(sample, self.sample)  # type: ignore[arg-type]
        self.version, self.sample = version, sample
        return same


class EmptyParameters:
    """The parameters that have no values yet, and those that were trained without."""

    def __init__(self) -> None:
        #: By the ``id`` of each parameter.
        self.pending: dict[int, _Filled] = {}
        self._seen: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._found: list[UnwrittenMemory] = []

    def begin_run(self) -> None:
        """Begin a cell."""
        self._found = []

    def empties(self, module: nn.Module) -> None:
        """The parameters of a module have been given memory."""
        where, kind = user_line(sys._getframe()), type(module).__name__
        for name, tensor in module.named_parameters():
            if len(self.pending) == _MOST_PARAMETERS:
                self.pending = {key: one for key, one in self.pending.items() if one.tensor()}
                if len(self.pending) == _MOST_PARAMETERS:
                    return
            one = _Filled(weakref.ref(tensor), name, kind, where, tensor.dim() > 1)
            one.looks()
            self.pending[id(tensor)] = one

    def without_values(self, parameters: Iterable[torch.Tensor]) -> list[_Filled]:
        """Those of these parameters that nobody has written to so far."""
        return [one for one in self._of(parameters) if one.looks()]

    def copied(self, without: list[_Filled]) -> None:
        """DDP has copied these parameters from this rank, as they are: that initialises nothing."""
        for one in without:
            one.looks()

    def received(self, parameters: Iterable[torch.Tensor]) -> None:
        """DDP has copied these parameters from another rank, which may have initialised them."""
        for parameter in parameters:
            self.pending.pop(id(parameter), None)

    def steps(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step."""
        if optimizer in self._seen:
            return
        self._seen.add(optimizer)
        held = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        with _harmless():
            self._note([(one, one.looks()) for one in self._of(held)])
        for parameter in held:
            self.pending.pop(id(parameter), None)

    def _of(self, parameters: Iterable[torch.Tensor]) -> list[_Filled]:
        known = ((self.pending.get(id(one)), one) for one in parameters)
        return [one for one, tensor in known if one is not None and one.tensor() is tensor]

    def _note(self, looked: list[tuple[_Filled, bool]]) -> None:
        of_line: dict[tuple[Position | None, str], list[tuple[_Filled, bool]]] = {}
        for one, same in looked:
            of_line.setdefault((one.where, one.module), []).append((one, same))
        for (where, module), those in of_line.items():
            unwritten = [one for one, same in those if same and one.sample is not None]
            some = [one for one in unwritten if bool(one.sample.any())]  # type: ignore[union-attr]
            matrices = [one for one, _ in those if one.is_matrix]
            # zeros may have been written over zeros, but not in all matrices of a model
            blank = bool(matrices) and all(one in unwritten for one in matrices)
            named = unwritten if blank else some
            if named and len(self._found) < _MOST_FOUND:
                self._found.append(
                    UnwrittenMemory(
                        where=where,
                        module=module,
                        names=tuple(one.name for one in named[:_MOST_NAMES]),
                        unwritten=len(named),
                        parameters=len(those),
                        finite=all(_is_finite(one) for one in named),
                        zero=not some,
                    )
                )

    def observed(self) -> tuple[UnwrittenMemory, ...]:
        """What was found in this run."""
        return tuple(self._found)


@contextmanager
def _harmless() -> Iterator[None]:
    """Compute something that must neither fail nor count in the user's program."""
    try:
        with torch.no_grad(), UNSIMULATED:
            yield
    except Exception as error:  # noqa: BLE001  (a tensor of another class may raise anything)
        let_through(error)


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of some elements; of a tensor that is divided among ranks, those of its part."""
    local: Any = tensor.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    flat = local.reshape(-1)
    part = flat[:: max(1, flat.numel() // _SAMPLE)].cpu().contiguous()
    return part.view(torch.uint8).clone()


def _is_finite(one: _Filled) -> bool:
    tensor = one.tensor()
    if tensor is None or not tensor.is_floating_point():
        return True
    local: Any = tensor.detach()
    return bool((local.to_local() if hasattr(local, "to_local") else local).isfinite().all())


#: The record of this process.
RECORD = EmptyParameters()


def install() -> None:
    """Record `Module.to_empty`, and what DDP does to its parameters."""
    to_empty = nn.Module.to_empty

    @functools.wraps(to_empty)
    def emptied(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = to_empty(self, *args, **kwargs)
        if not torch.compiler.is_dynamo_compiling():
            with _harmless():
                RECORD.empties(self)
        return result

    nn.Module.to_empty = emptied  # type: ignore[method-assign]
    constructor = DistributedDataParallel.__init__

    @functools.wraps(constructor)
    def construct(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        if not RECORD.pending or not isinstance(module, nn.Module):
            constructor(self, module, *args, **kwargs)
            return
        without: list[_Filled] = []
        with _harmless():
            without = RECORD.without_values(module.parameters())
        constructor(self, module, *args, **kwargs)
        with _harmless():
            if dist.get_rank(self.process_group):
                RECORD.received(module.parameters())
            else:
                RECORD.copied(without)

    DistributedDataParallel.__init__ = construct
