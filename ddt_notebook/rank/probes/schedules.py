"""Records the steps of learning-rate schedulers, and those that a gradient scaler leaves out."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import Any

import torch
from torch.optim import lr_scheduler

from ...model.training import Schedule
from . import exchanged, training
from .frames import user_line
from .optimizers import OptimizerLog

#: Attributes with the number of steps after which a schedule ends, by class. A linear schedule
#: that rises, or a constant one, is often a part of a longer one, such as a warm-up.
_ENDS = {"CosineAnnealingLR": "T_max", "OneCycleLR": "total_steps", "PolynomialLR": "total_iters"}
_MAX_SCHEDULES = 4


class _Running:
    """How many methods of schedulers are running: one may step others, and steps when made."""

    depth = 0


def install() -> None:
    """Record the schedulers and gradient scalers of this process."""
    for value in list(vars(lr_scheduler).values()):
        if isinstance(value, type) and issubclass(value, lr_scheduler.LRScheduler):
            for name in ("step", "__init__"):
                if name in vars(value):
                    setattr(value, name, _counted(getattr(value, name), name == "step"))
    scaler = torch.amp.GradScaler
    scaler.step = _scaled(scaler.step)  # type: ignore[method-assign]
    for kind in (scaler, *scaler.__subclasses__()):
        _record_unscale(kind)
    scaler.__init_subclass__ = classmethod(_made_scaler)  # type: ignore[assignment]


def _made_scaler(kind: type, /, **named: Any) -> None:
    super(torch.amp.GradScaler, kind).__init_subclass__(**named)
    _record_unscale(kind)


def _record_unscale(kind: Any) -> None:
    """Record a class of scalers; that of FSDP has an ``unscale_`` of its own."""
    if "unscale_" in vars(kind):
        kind.unscale_ = _unscaled(kind.unscale_)


def _counted(original: Any, steps: bool) -> Any:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if steps and not _Running.depth:
            _note(self)
            if isinstance(self, lr_scheduler.ReduceLROnPlateau):
                given = args[0] if args else kwargs.get("metrics")
                exchanged.RECORD.schedules(given, sys._getframe(1))
        _Running.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            _Running.depth -= 1

    return method


def _note(scheduler: Any) -> None:
    log = training.RECORD.log_beside(getattr(scheduler, "optimizer", None))
    if log is None:
        return
    known = log.schedules.get(id(scheduler))
    if known is not None:
        log.schedules[id(scheduler)] = replace(known, steps=known.steps + 1)
    elif len(log.schedules) < _MAX_SCHEDULES:
        kind = type(scheduler).__name__
        end = getattr(scheduler, _ENDS.get(kind, ""), None)
        if kind == "LinearLR" and scheduler.end_factor < scheduler.start_factor:
            end = scheduler.total_iters
        log.schedules[id(scheduler)] = Schedule(
            kind=kind,
            steps=1,
            end=end if isinstance(end, int) else None,
            where=user_line(sys._getframe()),
        )


def _scaled(original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        log = training.RECORD.log_beside(optimizer) if self.is_enabled() else None
        before = _steps(log)
        if log is not None and training.RECORD.take_clipped(optimizer) and not log.unscaled:
            log.clipped_scaled += 1
        result = original(self, optimizer, *args, **kwargs)  # it may unscale them itself
        if log is not None:
            log.unscaled = False
        if log is not None and _steps(log) == before:
            log.scaler_skipped += 1
            if log.scaler_where is None:
                log.scaler_where = user_line(sys._getframe())
        return result

    return step


def _unscaled(original: Any) -> Any:
    @functools.wraps(original)
    def unscale_(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        log = training.RECORD.log_beside(optimizer) if self.is_enabled() else None
        if log is not None:
            log.unscaled = True
        return original(self, optimizer, *args, **kwargs)

    return unscale_


def _steps(log: OptimizerLog | None) -> tuple[int, int] | None:
    return (log.run, log.steps) if log is not None else None
