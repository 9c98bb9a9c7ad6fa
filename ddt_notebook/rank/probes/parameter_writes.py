"""Notes which line initialised or loaded parameters after a model was put into DDP."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from ...model import Position
from .frames import user_line

_MOST = 64


class ParameterWrites:
    """The latest writes, until they are asked for."""

    def __init__(self) -> None:
        #: Whether a model in DDP was made; what is written before is of no interest.
        self.watches = False
        self._latest: deque[tuple[weakref.ref[torch.Tensor], Position]] = deque(maxlen=_MOST)

    def wraps(self, parameters: Iterable[torch.Tensor]) -> None:
        """A model with these parameters was put into DDP, which makes its copies equal."""
        self.watches = True
        if self._latest:
            self.take(set(map(id, parameters)))

    def note(self, tensor: Any) -> None:
        """Note that the caller's caller has written to a tensor."""
        if isinstance(tensor, torch.Tensor) and (where := user_line(sys._getframe(2))) is not None:
            self._latest.append((weakref.ref(tensor), where))

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
    """Record the functions of ``torch.nn.init``, and ``Module.load_state_dict``."""
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
