"""Keeps a ledger of what should be equal on all ranks and what DDP does not keep so.

These are buffers that DDP does not send, and modules beside the model in DDP that no optimizer
trains: averaged copies, losses and memories with buffers; and numbers in the user's objects. They
are found among the variables at the first step, and sketches are taken at the sampled steps and
when such a module is evaluated. Steps between cost nothing.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ...model import Position
from ...model.torch_features import OWN_CALLS
from ...model.training import KeptSample, KeptState, PlainState
from .. import torch_private
from ..user_signals import let_through
from .fingerprints import choose, digest, shape_text, sketches
from .frames import scopes, user_line
from .objects import buffers, unwrap
from .plain_states import PlainStates

#: Modules, parts of a module, frames and objects that are searched, and samples of a module. They
#: bound the record and were chosen, not measured.
_MOST, _PARTS, _FRAMES, _OBJECTS, _MAX_SAMPLES = 16, 2000, 6, 64, 40
_MOST_TENSORS, _LEVELS = 1000, 3
#: Layers whose running statistics rules about normalisation judge.
_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


class _Kept:
    """The parameters and buffers of one module that nothing keeps equal."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        parameters: dict[str, nn.Parameter],
        *,
        wrapped: bool,
        steps: Callable[[], int],
    ) -> None:
        self.name, self.wrapped = name, wrapped
        self.module = weakref.ref(module)
        named = list(parameters)
        self.parameters = [named[at] for at in choose(len(named))]
        buffers = [
            f"{path}.{key}".lstrip(".")
            for path, part in islice(module.named_modules(), _PARTS)
            if not isinstance(part, _NORMS)
            for key, one in part.named_buffers(recurse=False)
            if one.is_floating_point() and one.numel() > 1
        ]
        self.buffers = [buffers[at] for at in choose(len(buffers))]
        self.statistics = [] if wrapped else _statistics(module)
        self.shapes = tuple(shape_text(_get(module, one)) for one in self.buffers)
        self.shapes_digest = digest([shape_text(one) for one in module.parameters()])
        self.trained = False
        #: Passes whose result needs gradients, and passes without gradients.
        self.graded = self.evaluated = 0
        #: Passes without gradients that update running statistics, and the line of the first.
        self.counting = 0
        self.counted_at: Position | None = None
        #: The passes without gradients of each line.
        self._lines: Counter[Position | None] = Counter()
        self.saved: Position | None = None
        self.samples: list[KeptSample] = []
        self._steps = steps

    @property
    def names(self) -> list[str]:
        """Names of all watched tensors."""
        return [*self.parameters, *self.buffers, *self.statistics]

    def tensors(self) -> list[torch.Tensor]:
        """The watched tensors as they are now: a program may put another one in the place."""
        module = self.module()
        return [] if module is None else [_get(module, name) for name in self.names]

    def sample(self, moment: str, number: int, where: Position | None = None) -> None:
        """Take sketches."""
        if len(self.samples) < _MAX_SAMPLES and (tensors := self.tensors()):
            values = tuple(sketches(tensors))
            self.samples.append(
                KeptSample(
                    moment=moment, number=number, step=self._steps(), where=where, values=values
                )
            )

    def passes(self, result: Any) -> None:
        """Note a pass through the module."""
        if torch.is_grad_enabled():
            self.graded += _needs_gradient(result)
            return
        self.evaluated += 1
        where = user_line(sys._getframe())
        self._lines[where] += 1
        number = self._lines[where]
        if not number & (number - 1):
            self.sample("evaluation", number, where)
        if self.statistics and (module := self.module()) is not None:
            if module.training:
                self.counting += 1
                self.counted_at = self.counted_at or where
            elif self.counting and not number & (number - 1):
                self.sample("counted", number, where)

    def observed(self) -> KeptState:
        """What was seen of it."""
        return KeptState(
            name=self.name,
            wrapped=self.wrapped,
            parameters=tuple(self.parameters),
            buffers=tuple(self.buffers),
            shapes=self.shapes,
            shapes_digest=self.shapes_digest,
            trained=self.trained,
            graded=self.graded,
            evaluated=self.evaluated,
            statistics=tuple(self.statistics),
            counting=self.counting,
            counted_at=self.counted_at,
            saved=self.saved,
            samples=tuple(self.samples),
        )


class KeptStatesRecord:
    """The ledger of one run."""

    def __init__(self) -> None:
        #: The error that ended the record; empty if there was none.
        self.problem = ""
        self._kept: dict[int, _Kept] = {}
        self._plain: PlainStates | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.release()
        self.problem = ""
        self._kept, self._plain = {}, None

    def release(self) -> None:
        """Observe the modules no longer."""
        for one in self._kept.values():
            module = one.module()
            if module is not None:
                torch_private.observe_calls(module, None)

    def begin(
        self,
        frame: Any,
        models: Iterable[DistributedDataParallel],
        *,
        steps: Callable[[], int],
        calls: bool,
    ) -> None:
        """Find what is to be kept equal, before a model's first pass in a run.

        Parameters
        ----------
        frame
            A frame below that of the pass.
        models
            The models in DDP.
        steps
            Returns how many steps of optimizers have ended in this run.
        calls
            Whether passes through modules may be observed: the compiler refuses that.
        """
        if self.problem:
            return
        try:
            self._begin_plain(frame, steps)
            models = list(models)
            in_ddp = {id(part) for model in models for part in model.modules()}
            shared = {id(p) for model in models for p in model.parameters()}
            for name, module in _modules(frame):
                if len(self._kept) == _MOST or id(module) in self._kept:
                    continue
                if isinstance(module, DistributedDataParallel):
                    if any(module is model for model in models) and not module.broadcast_buffers:
                        self._add(_Kept(name, module.module, {}, wrapped=True, steps=steps))
                elif id(module) not in in_ddp and unwrap(module)[1] == "":
                    own = dict(module.named_parameters())
                    if any(id(part) in in_ddp for part in islice(module.modules(), _PARTS)):
                        continue
                    if not any(id(one) in shared for one in own.values()):
                        kept = _Kept(name, module, own, wrapped=False, steps=steps)
                        self._add(kept, calls=calls)
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            self._stop(error)

    def begin_without_model(self, frame: Any, steps: Callable[[], int]) -> None:
        """Find what objects of the user hold, before the first step, if no model in DDP passed."""
        if self.problem or self._plain is not None:
            return
        try:
            self._begin_plain(frame, steps)
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def _begin_plain(self, frame: Any, steps: Callable[[], int]) -> None:
        if self._plain is None:
            self._plain = PlainStates(steps)
        self._plain.begin(frame)

    def _add(self, one: _Kept, *, calls: bool = False) -> None:
        module = one.module()
        if module is None or not one.names or not _is_plain(one.tensors()):
            return
        self._kept[id(module)] = one
        if calls and torch_private.available(OWN_CALLS):
            torch_private.observe_calls(module, self._observer(one))
        one.sample("begin", 0)

    def _observer(self, one: _Kept) -> Callable[[Any], None]:
        def passed(result: Any) -> None:
            try:
                one.passes(result)
            except Exception as error:  # noqa: BLE001
                self._stop(error)

        return passed

    def stepped(self, step: int, optimizers: Iterable[Optimizer]) -> None:
        """The optimizer that steps first has reached a sampled step; all optimizers are given."""
        try:
            if step <= 1 and any(one.parameters for one in self._kept.values()):
                held = {
                    id(p) for one in list(optimizers) for g in one.param_groups for p in g["params"]
                }
                for one in self._kept.values():
                    one.trained |= any(id(tensor) in held for tensor in one.tensors())
            for one in self._kept.values():
                one.sample("step", step)
            if self._plain is not None:
                self._plain.sample("step", step)
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def saves(self, saved: Any, where: Position | None) -> None:
        """Note what the program saves."""
        try:
            if self._plain is not None or any(one.saved is None for one in self._kept.values()):
                memory = _memory(saved)
                if self._plain is not None:
                    self._plain.saves(memory, where)
                for one in self._kept.values():
                    if one.saved is None and any(t.data_ptr() in memory for t in one.tensors()):
                        one.saved = where
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        let_through(error)
        self.release()
        self.problem = f"{type(error).__name__}: {error}"
        self._kept, self._plain = {}, None

    def observed(self) -> tuple[KeptState, ...]:
        """What was observed in this run."""
        try:
            for one in self._kept.values():
                one.sample("end", 0)
        except Exception as error:  # noqa: BLE001
            self._stop(error)
        return tuple(one.observed() for one in self._kept.values())

    def observed_plain(self) -> tuple[PlainState, ...]:
        """What objects of the user have changed in this run."""
        try:
            if self._plain is None:
                return ()
            self._plain.sample("end", 0)
            return self._plain.observed()
        except Exception as error:  # noqa: BLE001
            self._stop(error)
            return ()


def _statistics(module: nn.Module) -> list[str]:
    named = [
        f"{path}.{key}".lstrip(".")
        for path, part in islice(module.named_modules(), _PARTS)
        if isinstance(part, _NORMS)
        for key, one in part.named_buffers(recurse=False)
        if one.is_floating_point()
    ]
    return [named[at] for at in choose(len(named))]


def _get(module: nn.Module, name: str) -> torch.Tensor:
    path, _, last = name.rpartition(".")
    found: torch.Tensor = getattr(module.get_submodule(path), last)
    return found


def _is_plain(tensors: list[torch.Tensor]) -> bool:
    return all(type(one) in (torch.Tensor, nn.Parameter) and one.is_cpu for one in tensors)


def _needs_gradient(result: Any) -> bool:
    parts = result if isinstance(result, (list, tuple)) else (result,)
    return any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts)


def _modules(frame: Any) -> list[tuple[str, nn.Module]]:
    """Modules in the variables of the user's frames, in their objects and in those of these.

    A module that is a part of another one found is left out.
    """
    found: dict[int, tuple[str, nn.Module]] = {}
    for variables in scopes(frame, _FRAMES):
        for name, value in list(variables.items()):
            if not name.startswith("__"):
                _search(found, name, value, 2)
    inside = {
        id(part)
        for _, module in found.values()
        if not isinstance(module, DistributedDataParallel)
        for part in islice(module.modules(), _PARTS)
        if part is not module
    }
    return [(name, one) for name, one in found.values() if id(one) not in inside]


def _search(found: dict[int, tuple[str, nn.Module]], name: str, value: Any, levels: int) -> None:
    if type(value) in weakref.ProxyTypes:
        return  # it looks like the module to which it refers, and Fabric keeps some
    if isinstance(value, nn.Module):
        found.setdefault(id(value), (name, value))
    elif levels and type(value).__module__ not in _LIBRARIES and not isinstance(value, type):
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            for key, item in list(islice(held.items(), _OBJECTS)):
                _search(found, f"{name}.{key}", item, levels - 1)


#: Types of such modules hold no models of the user.
_LIBRARIES = frozenset({"builtins", "argparse", "logging", "types", "numpy", "torch", "random"})


def _memory(saved: Any) -> set[int]:
    """The memory of the tensors in an object that is saved."""
    found: set[int] = set()
    waiting: list[tuple[Any, int]] = [(saved, _LEVELS)]
    while waiting and len(found) < _MOST_TENSORS:
        value, levels = waiting.pop()
        if isinstance(value, torch.Tensor):
            found.add(value.data_ptr())
        elif isinstance(value, nn.Module):
            waiting += [(one, 0) for one in (*value.parameters(), *buffers(value))]
        elif levels and isinstance(value, Mapping):
            waiting += [(one, levels - 1) for one in islice(value.values(), _MOST_TENSORS)]
        elif levels and isinstance(value, (list, tuple)):
            waiting += [(one, levels - 1) for one in islice(value, _MOST_TENSORS)]
    return found


#: The record of this process.
RECORD = KeptStatesRecord()
