"""Notices modules outside DDP that are called between the first steps.

Such a module is a teacher, a target network, or a part that was not wrapped. A hook of torch for
all modules is on until the second step of a run has ended; later steps are not observed and cost
nothing. At the end of the run, sketches show whether the module was changed.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from ...model import Position
from ...model.torch_features import USED_MODULES
from ...model.training import UsedModule
from .. import torch_private
from ..user_signals import let_through
from .fingerprints import choose, shape_text
from .frames import user_line
from .watched import Watched

#: The step with whose end the hook is removed, and the most modules that are noted.
_STEPS, _MOST = 2, 16
_DDP_FILE = sys.modules[DistributedDataParallel.__module__].__file__


def _in_ddp(frame: FrameType | None) -> bool:
    """Whether DDP's own forward pass is under way."""
    while frame is not None:
        if frame.f_code.co_filename == _DDP_FILE:
            return True
        frame = frame.f_back
    return False


class _Used:
    """One module."""

    def __init__(self, module: nn.Module, where: Position | None) -> None:
        self.module = weakref.ref(module)
        self.kind = type(module).__name__
        self.name = ""
        self.where = where
        #: Whether it was called between the first and the second step of the run.
        self.between = False
        #: Whether an optimizer that has stepped holds a parameter of it.
        self.trained = False
        named = list(module.named_parameters())
        watched = [named[at] for at in choose(len(named))]
        self.names = tuple(name for name, _ in watched)
        self.shapes = dict(Counter(shape_text(parameter) for _, parameter in named))
        self._watched = Watched(module, [parameter for _, parameter in watched])
        self.first = tuple(self._watched.values())

    def holds(self, parameters: set[int]) -> bool:
        """Whether any of these parameters, given by ``id``, is one of the module's."""
        return any(id(one) in parameters for one in self._watched.tensors())

    def release(self) -> None:
        """Release the user's tensors."""
        self._watched.release()

    def observed(self) -> UsedModule:
        """What was seen of it."""
        return UsedModule(
            name=self.name or f"the {self.kind}",
            trained=self.trained,
            where=self.where,
            watched=self.names,
            shapes=self.shapes,
            first=self.first,
            last=tuple(self._watched.values()),
        )


class UsedModules:
    """The modules of one run."""

    def __init__(self) -> None:
        #: Whether calls are noted now.
        self.is_open = False
        self._remove: Callable[[], None] | None = None
        self._used: dict[int, _Used] = {}
        #: The ``id`` of modules that are parts of others, or of which nothing is to be known.
        self._known: set[int] = set()
        #: The ``id`` of parameters of models in DDP, and of optimizers that have stepped.
        self._wrapped: set[int] = set()
        self._optimized: set[int] = set()
        #: The ``id`` of the modules that are in DDP, and the line that first called one past it.
        self._inner: set[int] = set()
        self.past: Position | None = None
        self._steps = 0
        self._compiles = False

    @property
    def compiled(self) -> bool:
        """Whether the user has had something compiled."""
        return self._compiles

    def compiles(self) -> None:
        """The user has something compiled: the compiler refuses code with such a hook."""
        self._compiles = True
        self._close()

    def begin_run(self) -> None:
        """Begin a cell."""
        self._close()
        self._used, self._known, self._steps = {}, set(), 0
        self._wrapped, self._optimized = set(), set()
        self._inner, self.past = set(), None

    def begin(self, replica: nn.Module) -> None:
        """A model in DDP was made, or passes for the first time in this run."""
        self._inner.add(id(getattr(replica, "module", replica)))
        self._wrapped.update(map(id, replica.parameters()))
        self._used = {i: one for i, one in self._used.items() if not one.holds(self._wrapped)}
        if self._steps >= _STEPS:
            return
        self._known.update(map(id, replica.modules()))
        if self._remove is None and not self._compiles and torch_private.available(USED_MODULES):
            self._remove = register_module_forward_pre_hook(self._called).remove
            self.is_open = True

    def _called(self, module: nn.Module, inputs: Any) -> None:
        # what is computed here would become a part of a trace
        if torch.jit.is_tracing() or torch_private.is_in_dispatch_mode():
            return
        try:
            self._note(module)
        except Exception as error:  # noqa: BLE001  (a mode of torch, a class of the user)
            let_through(error)
            self._known.add(id(module))

    def _note(self, module: nn.Module) -> None:
        one = id(module)
        if one in self._known:
            used = self._used.get(one)
            if used is not None and self._steps:
                used.between = True
            if one in self._inner and self.past is None and torch.is_grad_enabled():
                frame = sys._getframe()
                self.past = None if _in_ddp(frame) else user_line(frame)
            return
        held = set(map(id, module.parameters()))
        if not held.isdisjoint(self._wrapped):  # it calls the model in DDP, and perhaps others
            self._known.add(one)
            return
        self._known.update(map(id, module.modules()))
        if held and len(self._used) < _MOST:
            used = _Used(module, user_line(sys._getframe()))
            self._used[one] = used
            used.between = self._steps > 0
            used.trained = not held.isdisjoint(self._optimized)

    def optimizes(self, parameters: Iterable[torch.Tensor]) -> None:
        """An optimizer with these parameters steps for the first time in this run."""
        held = set(map(id, parameters))
        self._optimized |= held
        for used in self._used.values():
            used.trained |= used.holds(held)

    def stepped(self, names: Callable[[], Mapping[str, nn.Module]]) -> None:
        """An optimizer's step has ended; ``names`` returns the modules among the variables."""
        self._steps += 1
        if self._steps < _STEPS:
            return
        self._close()
        if any(used.between for used in self._used.values()):
            found = {id(module): name for name, module in names().items()}
            for one, used in self._used.items():
                used.name = found.get(one, "")

    def _close(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove, self.is_open = None, False

    def release(self) -> None:
        """Release the user's tensors."""
        for used in self._used.values():
            used.release()

    def observed(self) -> tuple[UsedModule, ...]:
        """The modules that were called between the first two steps."""
        self._close()
        return tuple(used.observed() for used in self._used.values() if used.between)
