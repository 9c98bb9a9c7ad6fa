"""Records how a rank trains, always on, at a cost of some microseconds for each step.

Nothing is asked of other ranks, no collective is issued, and no random number is drawn.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .frames import user_line
from .objects import find
from .optimizers import OptimizerLog
from .replicas import ReplicaLog, built

#: Parameters are searched for what is no finite number up to this many elements.
_MAX_ELEMENTS = 50_000_000
_MAX_LOGS = 16

Plain = dict[str, Any]


class TrainingRecord:
    """How this process trains."""

    def __init__(self) -> None:
        #: Backward passes of this process; it only grows.
        self.backwards = 0
        #: What went wrong in the recording itself; it has ended then.
        self.problem = ""
        self._run = 0
        self._before = 0
        self._thread = threading.get_ident()
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, OptimizerLog] = (
            weakref.WeakKeyDictionary()
        )
        self._replicas: weakref.WeakKeyDictionary[DistributedDataParallel, ReplicaLog] = (
            weakref.WeakKeyDictionary()
        )
        self._stepped: list[OptimizerLog] = []
        self._passed: list[ReplicaLog] = []
        self._stepping: Optimizer | None = None
        self._not_finite: Plain | None = None
        self._last_is_finite = True

    def begin_run(self) -> None:
        """A cell begins."""
        self._run += 1
        self._before = self.backwards
        self._thread = threading.get_ident()
        self._stepped, self._passed = [], []
        self._stepping = None
        self._not_finite, self._last_is_finite = None, True

    @property
    def active(self) -> bool:
        """Whether something trained in this run."""
        return bool(self.backwards > self._before or self._stepped or self._passed)

    # -- what the hooks tell -------------------------------------------------------------------

    def wrapped(self, model: DistributedDataParallel) -> None:
        """DDP has been built, and has made the model equal on all ranks."""
        log = self._replicas[model] = ReplicaLog(model)
        log.built = built(model)

    def made(self, optimizer: Optimizer, frame: FrameType) -> None:
        """An optimizer has been built."""
        self._optimizers[optimizer] = OptimizerLog(optimizer, user_line(frame))

    def passes(self, model: DistributedDataParallel, inputs: list[Any], frame: FrameType) -> None:
        """A forward pass with gradients through DDP."""
        log = self._passed[-1] if self._passed else None
        if log is None or log.model() is not model:
            log = self._replicas.get(model)
        if log is None:
            log = self._replicas[model] = ReplicaLog(model)
        if log.run != self._run:
            log.begin(model, self._run, frame)
            self._passed = [*self._passed, log][-_MAX_LOGS:]
        log.passes(model, inputs, frame)

    def losses(self, loss: torch.Tensor, frame: FrameType) -> None:
        """A backward pass begins."""
        self.backwards += 1
        # asking a GPU for a number would make the rank wait for it
        if type(loss) is not torch.Tensor or not loss.is_cpu or loss.numel() != 1:
            return
        value = loss.item()
        self._last_is_finite = type(value) is complex or math.isfinite(value)
        if self._last_is_finite or self._not_finite is not None:
            return
        last = self._passed[-1] if self._passed else None
        model = last.model() if last is not None else None
        self._not_finite = {
            "backward": self.backwards - self._before,
            "value": str(value),
            "where": user_line(frame),
            "inputs": last.has_finite_inputs() if last is not None else None,
            "parameters": _are_finite(model) if model is not None else None,
        }

    def before_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """An optimizer is about to step."""
        if self._stepping is not None and self._stepping is not optimizer:
            return  # an optimizer inside another one, which holds a part of it
        self._stepping = optimizer
        log = self._log_of(optimizer)
        if log is None:
            log = self._optimizers[optimizer] = OptimizerLog(optimizer, None)
        if log.run != self._run:
            if len(self._stepped) == _MAX_LOGS:
                return
            log.begin(optimizer, self._run, self._replicas, frame)
            self._stepped.append(log)
        log.before_step(optimizer)

    def after_step(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        if self._stepping is not optimizer:
            return
        self._stepping = None
        log = self._log_of(optimizer)
        if log is not None and log.run == self._run:
            log.after_step(optimizer)

    def _log_of(self, optimizer: Optimizer) -> OptimizerLog | None:
        last = self._stepped[-1] if self._stepped else None  # mostly it is the only one
        if last is not None and last.optimizer() is optimizer:
            return last
        return self._optimizers.get(optimizer)

    def guarded(self, tell: Callable[..., None], *args: Any) -> None:
        """Record something; a mistake in it must not reach the user's code."""
        if self.problem or threading.get_ident() != self._thread:
            return
        try:
            tell(*args)
        except Exception as error:  # noqa: BLE001  (a model may answer in any way)
            self.problem = f"{type(error).__name__}: {error}"

    # -- what is told at the end ---------------------------------------------------------------

    def plain(self, namespace: Mapping[str, Any], names: list[str] | None) -> Plain:
        """A `RankTraining` as plain data, less the rank."""
        found = find(namespace, names)
        variables = {id(optimizer): name for name, optimizer in found.optimizers.items()}
        for name, module in found.modules.items():
            log = self._replicas.get(module) if _is_replica(module) else None
            if log is not None:
                log.name = name
        not_finite = self._not_finite
        return {
            "backwards": self.backwards - self._before,
            "optimizers": [log.plain(variables) for log in self._stepped],
            "models": [log.plain() for log in self._passed],
            "not_finite": not_finite and not_finite | {"lasting": not self._last_is_finite},
            "threads": torch.get_num_threads(),
            "processors": _processors(),
        }


#: Of this process.
RECORD = TrainingRecord()


def observe(namespace: Mapping[str, Any], names: list[str] | None = None) -> Plain:
    """A `RankTraining` as plain data, less the rank: of the run that has just ended."""
    return RECORD.plain(namespace, names)


def install() -> None:
    """Hook into the optimizers, DDP models and backward passes of this process."""
    original_init = DistributedDataParallel.__init__
    original_forward = DistributedDataParallel.forward
    original_backward = torch.Tensor.backward
    original_make = Optimizer.__init__

    @functools.wraps(original_make)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        original_make(self, *args, **kwargs)
        RECORD.guarded(RECORD.made, self, sys._getframe(1))

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        original_init(self, *args, **kwargs)
        RECORD.guarded(RECORD.wrapped, self)

    @functools.wraps(original_forward)
    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            RECORD.guarded(RECORD.passes, self, [*inputs, *kwargs.values()], sys._getframe(1))
        return original_forward(self, *inputs, **kwargs)

    @functools.wraps(original_backward)
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if not torch.compiler.is_compiling():
            RECORD.guarded(RECORD.losses, self, sys._getframe(1))
        return original_backward(self, *args, **kwargs)

    def before_step(optimizer: Optimizer, *_: Any) -> None:
        RECORD.guarded(RECORD.before_step, optimizer, sys._getframe(1))

    def after_step(optimizer: Optimizer, *_: Any) -> None:
        RECORD.guarded(RECORD.after_step, optimizer)

    DistributedDataParallel.__init__ = init
    DistributedDataParallel.forward = forward
    torch.Tensor.backward = backward
    Optimizer.__init__ = make
    register_optimizer_step_pre_hook(before_step)
    register_optimizer_step_post_hook(after_step)


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 0


def _is_replica(module: Any) -> bool:
    return isinstance(module, DistributedDataParallel)


def _are_finite(model: torch.nn.Module) -> bool | None:
    left = _MAX_ELEMENTS
    for parameter in model.parameters():
        left -= parameter.numel()
        if left < 0:
            return None
        if not bool(parameter.detach().isfinite().all()):
            return False
    return True
