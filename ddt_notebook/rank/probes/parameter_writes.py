"""Notes which line initialised or loaded parameters after a model was put into DDP.

Averages write through ``data``, which does not count up the version of a parameter, so that the
note alone shows the write.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ...model import Position
from ..after_import import AfterImport
from .frames import user_line

_MOST = 64
#: Classes that keep averages of parameters, and their methods that write parameters they are given.
_AVERAGES = {
    "diffusers.training_utils": "EMAModel",
    "torch_ema.ema": "ExponentialMovingAverage",
}
_COPIES = ("copy_to", "restore")


class ParameterWrites:
    """The latest writes, until they are asked for."""

    def __init__(self) -> None:
        #: Whether a model in DDP was made; what is written before is of no interest.
        self.watches = False
        #: How many writes were noted so far.
        self.noted = 0
        self._latest: deque[tuple[weakref.ref[torch.Tensor], Position]] = deque(maxlen=_MOST)

    def wraps(self, parameters: Iterable[torch.Tensor]) -> None:
        """A model with these parameters was put into DDP, which makes its copies equal."""
        self.watches = True
        if self._latest:
            self.take(set(map(id, parameters)))

    def note(self, tensor: Any) -> None:
        """Note that the caller's caller has written to a tensor."""
        if isinstance(tensor, torch.Tensor) and (where := user_line(sys._getframe(2))) is not None:
            self.noted += 1
            self._latest.append((weakref.ref(tensor), where))

    def holds(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Whether a write to one of these parameters is noted."""
        written = {id(tensor()) for tensor, _ in self._latest}
        return any(id(parameter) in written for parameter in parameters)

    def take(self, parameters: Collection[int]) -> Position | None:
        """The line of the first write to one of these parameters, given by ``id``.

        The writes to them are forgotten.
        """
        latest = [(tensor, where, id(tensor()) in parameters) for tensor, where in self._latest]
        self._latest = deque(((one, at) for one, at, held in latest if not held), maxlen=_MOST)
        return next((where for _, where, held in latest if held), None)


#: The record of this process.
RECORD = ParameterWrites()


def install() -> None:
    """Record ``torch.nn.init``, ``Module.load_state_dict`` and what averages copy to a model."""
    for module, name in _AVERAGES.items():
        AfterImport(module, functools.partial(_watch_average, name)).install()
    for name, function in list(vars(nn.init).items()):
        if name.endswith("_") and not name.startswith("_") and callable(function):
            setattr(nn.init, name, _noting(function))
    load = nn.Module.load_state_dict

    @functools.wraps(load)
    def load_state_dict(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = load(self, *args, **kwargs)
        if RECORD.watches:
            with suppress(Exception):  # it must not reach the user's code
                RECORD.note(next(self.parameters(), None))
        return result

    nn.Module.load_state_dict = load_state_dict  # type: ignore[method-assign]


def _watch_average(name: str, module: ModuleType) -> None:
    average = getattr(module, name, None)
    for method in _COPIES:
        if (original := getattr(average, method, None)) is not None:
            setattr(average, method, _copying(original))


def _copying(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def copy(self: Any, parameters: Any = None, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not RECORD.watches or parameters is None:
            return function(self, parameters, *args, **kwargs)
        known = list(parameters)  # it may be an iterator
        result = function(self, known, *args, **kwargs)
        with suppress(Exception):
            RECORD.note(known[0])
        return result

    return copy


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def init(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = function(*args, **kwargs)
        if RECORD.watches and not torch.compiler.is_dynamo_compiling():
            with suppress(Exception):
                RECORD.note(result)
        return result

    return init
