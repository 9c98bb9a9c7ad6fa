"""Records how a rank trains. It is always on and takes some microseconds per step.

It does not communicate with other ranks and draws no random numbers.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite, isinf
from threading import get_ident
from types import GeneratorType
from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ...model import Position
from ...model.training import Contrast, CountedLoss, LossGraph, NotFinite, RankTraining
from ..branch_recorder import BranchRecorder
from ..training_thread import CURRENT
from ..user_signals import let_through
from . import (
    contrasts,
    drawn,
    early_reads,
    evaluations,
    exchanged,
    given_values,
    held_data,
    kept_states,
    left_states,
    loss_graph,
    parameter_writes,
    replicated,
    seeds,
    simulated,
    summed_activations,
    unwritten_memory,
)
from .frames import calling_package, user_line
from .hand_updates import HandUpdates
from .kept_graphs import WATCHED, KeptGraphs
from .objects import find
from .optimizers import OptimizerLog, taken_over_from, visible
from .replicas import ReplicaLog, built
from .simulated import UNSIMULATED
from .used_modules import UsedModules

#: Models with more elements than this are not searched for NaN and infinity.
_MAX_ELEMENTS = 50_000_000
_MAX_LOGS = 16
_MAX_LOSSES = 4
_MAX_CLIPPED = 64
_TENSOR = torch.Tensor
#: Torch's own function; `shown` puts one in its place that records reads.
_item = torch.Tensor.item
_drawn = drawn.RECORD
_early = early_reads.RECORD
_evaluations = evaluations.RECORD
_exchanged = exchanged.RECORD
_given = given_values.RECORD
_left = left_states.RECORD
_unwritten = unwritten_memory.RECORD


class TrainingRecord:
    """The record of how this process trains.

    The code that runs in every step is short, with few functions and objects. Between two steps,
    the model's data replaces this code in the processor's caches, and most of its cost is to load
    it again. Rare cases are in separate functions.
    """

    def __init__(self) -> None:
        #: Backward passes of this process so far.
        self.backwards = 0
        #: Notes when passes begin and end; None while branch events are not observed.
        self.branches: BranchRecorder | None = None
        #: The error that ended the recording; empty if there was none.
        self.problem = ""
        #: The number of open contexts ``join()`` that allow uneven inputs.
        self.joining = 0
        #: Whether the last backward pass was one of the first ones of this run.
        self.is_early = False
        #: Whether a backward pass runs.
        self.in_backward = False
        #: The model whose compiled form has just counted its pass, which may run uncompiled.
        self.compiled: DistributedDataParallel | None = None
        self._run = 0
        self._before = 0
        #: The thread that runs cells, which alone is recorded; None when recording has ended.
        self.thread: int | None = get_ident()
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, OptimizerLog] = (
            weakref.WeakKeyDictionary()
        )
        self._replicas: weakref.WeakKeyDictionary[DistributedDataParallel, ReplicaLog] = (
            weakref.WeakKeyDictionary()
        )
        #: Contexts ``join()`` that allow uneven inputs.
        self._uneven: weakref.WeakSet[Join] = weakref.WeakSet()
        self._stepped: list[OptimizerLog] = []
        self._passed: list[ReplicaLog] = []
        #: The latest log of each kind in this run, usually the only one.
        self._last_stepped: OptimizerLog | None = None
        self._last_passed: ReplicaLog | None = None
        #: The optimizer that is stepping, and its log if one is kept.
        self._stepping: Optimizer | None = None
        self._stepping_log: OptimizerLog | None = None
        self._not_finite: NotFinite | None = None
        self._last_is_finite = True
        #: The line of the first backward pass in this run, and how its loss was computed.
        self._first_backward: Position | None = None
        self._seeded: tuple[int | None, Position | None] = (None, None)
        self._losses: list[float] = []
        self._contrasts: list[Contrast] = []
        self._counted: list[CountedLoss] = []
        self._loss: LossGraph | None = None
        #: The line of the first call in this run that clips gradients.
        self._first_clip: Position | None = None
        #: Of each call that clipped gradients, one parameter, until an optimizer steps it.
        self._clipped: list[weakref.ref[torch.Tensor]] = []
        #: Are called with the parameters whose gradients were clipped, and what the function
        #: returned, which is their norm, or None.
        self.clip_listeners: list[Callable[[list[torch.Tensor], object], None]] = []
        self._graphs = KeptGraphs()
        self._by_hand = HandUpdates()
        #: Modules that are called beside the trained ones.
        self.used = UsedModules()
        #: Optimizers before whose next step gradients are examined.
        self.sampling: list[OptimizerLog] = []
        #: A step at whose end something is to be done, and what; another thread sets it.
        self._at_end: tuple[int, Callable[[], None]] | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self._run += 1
        self._before = self.backwards
        self.joining = 0
        self.thread = None if self.problem else get_ident()
        self._stepped, self._passed = [], []
        self._last_stepped = self._last_passed = None
        self._stepping = self._stepping_log = self.compiled = None
        self._not_finite, self._last_is_finite = None, True
        self._first_backward = self._loss = self._first_clip = None
        self._seeded = (None, None)
        self._clipped = []
        self._losses = []
        self._contrasts = []
        self._counted = []
        _drawn.begin_run()
        self._graphs = KeptGraphs()
        self._by_hand = HandUpdates()
        self.used.begin_run()
        kept_states.RECORD.begin_run()
        _unwritten.begin_run()
        _given.begin_run()
        self.sampling = []

    def end_run(self) -> None:
        """End a cell whose record has been read, and release the user's tensors."""
        for log in (*self._stepped, *self._passed):
            log.release()
        self.used.release()
        kept_states.RECORD.release()
        self.sampling = []

    @property
    def active(self) -> bool:
        """Whether something trained in this run."""
        return bool(self.backwards > self._before or self._stepped or self._passed)

    @property
    def steps(self) -> int:
        """How many steps of optimizers have ended in this run."""
        return sum(log.steps for log in self._stepped)

    def known_optimizers(self) -> list[Optimizer]:
        """The optimizers that this process has made and that still exist."""
        return list(self._optimizers)

    def line_of(self, optimizer: Optimizer | None) -> Position | None:
        """The line of an optimizer's first step in this run; None if it took none."""
        log = self._optimizers.get(optimizer) if optimizer is not None else None
        return log.place if log is not None and log.run == self._run else None

    def steps_of(self, optimizer: Optimizer | None) -> int:
        """How many steps an optimizer has taken in this run; 0 if it no longer exists."""
        log = self._optimizers.get(optimizer) if optimizer is not None else None
        return log.steps if log is not None and log.run == self._run else 0

    @property
    def stepping(self) -> bool:
        """Whether an optimizer is inside its step."""
        return self._stepping is not None

    def at_end_of(self, step: int, act: Callable[[], None]) -> None:
        """Let the main thread act at the end of a step; no effect if the step has ended.

        ``act`` must not raise.
        """
        self._at_end = (step, act)

    def _reached(self, step: int, act: Callable[[], None]) -> None:
        if self.steps < step:
            return
        self._at_end = None
        if self.steps == step:
            act()

    def _end(self, error: Exception) -> None:
        """End the recording after an error in it; the error must not reach the user's code."""
        let_through(error)
        self.problem = f"{type(error).__name__}: {error}"
        self.thread = None

    def _follows(self) -> bool:
        """Whether training goes on in the current thread, which from here on is recorded."""
        return self.thread is not None and CURRENT.moves()

    # -- called by the hooks; none of these raises ---------------------------------------------

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing in this block, which undoes what it does."""
        thread, self.thread = self.thread, None
        try:
            yield
        finally:
            self.thread = thread

    def wrapped(self, model: DistributedDataParallel, *_: object, **__: object) -> None:
        """Called when DDP has been constructed and has made the model equal on all ranks."""
        if get_ident() != self.thread and not self._follows():
            return
        try:
            log = self._known(model)
            log.built, log.made = built(model), user_line(sys._getframe())
            log.averaged = frozenset(id(p) for p in model.parameters() if p.requires_grad)
            log.made_by = calling_package(sys._getframe())
            self.used.begin(model)
            parameter_writes.RECORD.wraps(model.parameters())
        except Exception as error:  # noqa: BLE001  (a model may raise anything)
            self._end(error)

    def made(self, optimizer: Optimizer, *_: object, **__: object) -> None:
        """Called when an optimizer has been constructed."""
        if get_ident() != self.thread and not self._follows():
            return
        try:
            made = taken_over_from(optimizer, self._optimizers) or user_line(sys._getframe())
            self._optimizers[optimizer] = OptimizerLog(optimizer, made)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def passes(
        self, model: DistributedDataParallel, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """Called for each forward pass with gradients through DDP."""
        if get_ident() != self.thread and not self._follows():
            return
        try:
            if _exchanged.gathered:  # for another loss than that of this pass
                _exchanged.gathered.clear()
            log = self._last_passed
            if log is None or log.model() is not model:
                log = self._last_passed = self._replica_log(model)
            seen = _evaluations
            seen.graded = True
            seen.exchanges_at_input = seen.exchanges
            given = (*inputs, *named.values()) if named else inputs
            log.passes(model, given, loaded=seen.loaded)
            if _drawn.entered:
                _drawn.passes(given)
            log.joined = self.joining > 0
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def evaluates(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Called for each forward pass without gradients through DDP."""
        if get_ident() != self.thread:
            return
        try:
            _evaluations.evaluates(inputs, named)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def entered_join(self, context: Join) -> None:
        """Called when a context ``join()`` has been entered."""
        if get_ident() == self.thread:
            self.joining += context in self._uneven

    def left_join(self, context: Join) -> None:
        """Called before a context ``join()`` is left."""
        if get_ident() == self.thread:
            self.joining = max(0, self.joining - (context in self._uneven))

    def made_join(
        self,
        context: Join,
        joinables: object,
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **_: object,
    ) -> None:
        """Called when a context ``join()`` has been constructed with these arguments."""
        if enable and not throw_on_early_termination:
            self._uneven.add(context)

    def hooked(self, model: DistributedDataParallel, *_: object, **__: object) -> None:
        """Called when the user has registered a communication hook."""
        if get_ident() != self.thread:
            return
        try:
            self._known(model).has_hook = True
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def enters_no_sync(self, model: DistributedDataParallel) -> None:
        """Called when ``no_sync()`` was called."""
        if get_ident() != self.thread:
            return
        try:
            self._known(model).no_sync = user_line(sys._getframe())
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def reduces(self, tensor: Any) -> None:
        """Called before an ``all_reduce`` if gradients are examined before the next step."""
        if get_ident() != self.thread or not isinstance(tensor, torch.Tensor):
            return
        try:
            for log in self.sampling:
                log.reduces(tensor, self.backwards)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def joined(self, module: Any) -> bool:
        """Whether the last pass through a module was inside ``join()``."""
        log = self._replicas.get(module) if _is_replica(module) else None
        return log is not None and log.joined

    def _known(self, model: DistributedDataParallel) -> ReplicaLog:
        log = self._replicas.get(model)
        if log is None:
            log = self._replicas[model] = ReplicaLog(model)
        return log

    def _replica_log(self, model: DistributedDataParallel) -> ReplicaLog:
        log = self._known(model)
        if log.run != self._run:
            log.begin(model, self._run)
            self.used.begin(model)
            kept_states.RECORD.begin(
                sys._getframe(),
                list(self._replicas),
                steps=lambda: self.steps,
                calls=not self.used.compiled,
            )
            self._passed = [*self._passed, log][-_MAX_LOGS:]
        return log

    def mark(self, *, ends: bool = False) -> None:
        """Called when a pass that may issue collectives begins or ends, with branches observed."""
        if self.branches is not None and get_ident() == self.thread:
            self.branches.mark(ends=ends)

    def losses(self, loss: torch.Tensor) -> None:
        """Called when a backward pass begins."""
        if get_ident() != self.thread:
            return
        try:
            self.backwards += 1
            self.compiled = None
            if _left.waits:
                _left.begins()
            number = self.backwards - self._before
            self.is_early = number <= drawn.PASSES
            if _drawn.entered:
                _drawn.ends()
            # later losses are described only if the first two compare samples
            if number <= 2 or (self._contrasts and not number & (number - 1)):
                self._describe(loss, number)
            if number <= WATCHED:
                self._graphs.add(loss)
            if _exchanged.gathered:
                _exchanged.loss(loss)
            if self.sampling or not self._passed:
                self._examine(loss)
            # the rank would have to wait for a number on a GPU
            if type(loss) is _TENSOR and loss.is_cpu and loss.numel() == 1:
                value = _item(loss)
                finite = self._last_is_finite = type(value) is complex or isfinite(value)
                _exchanged.last_loss = value
                if finite and _exchanged.open and type(value) is float:
                    _exchanged.finds_loss(value, self.backwards - 1)
                if not finite:
                    self._note_not_finite(value)
                elif len(self._losses) < _MAX_LOSSES and type(value) is float:
                    self._losses.append(value)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def _examine(self, loss: torch.Tensor) -> None:
        if self._by_hand.watches and not self._passed:
            self._by_hand.backward(loss, self._optimizers, self._stepped)
        for log in self.sampling:
            log.before_backward()

    def _describe(self, loss: torch.Tensor, number: int) -> None:
        where = user_line(sys._getframe())
        if self._first_backward is None:
            self._first_backward = where
            self._seeded = seeds.latest()
            self._loss = loss_graph.describe(loss)
        if number <= 2 and (counted := loss_graph.count(loss)):
            self._counted.append(CountedLoss(number=number, where=where, counted=counted))
        if len(self._contrasts) < contrasts.MOST and loss.grad_fn is not None:
            self._contrasts += contrasts.describe(loss, number, where)

    def after_backward(self) -> None:
        """Called after one of the first passes, and if gradients are examined before a step."""
        if get_ident() != self.thread:
            return
        try:
            for log in self.sampling:
                log.after_backward(self.backwards)
            if self.is_early and not self.used.compiled:
                _drawn.after_backward(self.backwards - self._before)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def clips(self) -> None:
        """Called before gradients are clipped."""
        if get_ident() != self.thread:
            return
        try:
            for optimizer in self.sampling:
                optimizer.before_clip()
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def clipped(self, parameters: list[torch.Tensor], norm: object = None) -> None:
        """Called when the gradients of some parameters have been clipped by their norm, if any."""
        if get_ident() != self.thread:
            return
        try:
            one = next((one for one in parameters if one.grad is not None), None)
            if one is not None and len(self._clipped) < _MAX_CLIPPED:
                self._clipped.append(weakref.ref(one))
            if self._first_clip is None:
                self._first_clip = user_line(sys._getframe())
            log = self._last_passed
            if log is not None and not log.averages:
                log.clipped(user_line(sys._getframe()) if not log.clipped_alone else None)
            for optimizer in self.sampling:
                optimizer.after_clip()
            for listener in self.clip_listeners:
                listener(parameters, norm)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def take_clipped(self, optimizer: Optimizer) -> bool:
        """Whether gradients of an optimizer were clipped since this was last asked for it."""
        left = [ref for ref in self._clipped if not _owns(optimizer, ref())]
        taken = len(left) < len(self._clipped)
        self._clipped = left
        return taken

    def _note_not_finite(self, value: object) -> None:
        if self._not_finite is not None:
            return
        last = self._passed[-1] if self._passed else None
        model = last.model() if last is not None else None
        self._not_finite = NotFinite(
            backward=self.backwards - self._before,
            value=str(value),
            where=user_line(sys._getframe()),
            inputs=last.has_finite_inputs() if last is not None else None,
            parameters=_are_finite(model) if model is not None else None,
        )

    def before_step(self, optimizer: Optimizer, *_: object) -> None:
        """Called before an optimizer steps."""
        if get_ident() != self.thread:
            return
        try:
            if self._stepping is not None and self._stepping is not optimizer:
                return  # an optimizer that another one calls for a part of its step
            self._stepping = optimizer
            if _unwritten.pending:
                _unwritten.steps(optimizer)
            if not _exchanged.stepped:
                _exchanged.steps()
            log = self._last_stepped
            if log is None or log.optimizer() is not optimizer:
                with UNSIMULATED:
                    log = self._optimizer_log(optimizer)
            self._stepping_log = log
            if log is not None and log.before_step(optimizer, self.backwards):
                self._sampled(log)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def _sampled(self, log: OptimizerLog) -> None:
        if self._stepped[0] is log:
            kept_states.RECORD.stepped(log.steps, self._optimizers)

    def after_step(self, optimizer: Optimizer, *_: object) -> None:
        """Called when an optimizer has stepped."""
        if self._stepping is not optimizer or get_ident() != self.thread:
            return
        try:
            self._stepping = None
            if self._clipped:
                self.take_clipped(optimizer)
            log = self._stepping_log
            if self.used.is_open:
                self._end_used(optimizer)
            if log is not None:
                if log.after_step(optimizer):
                    if log not in self.sampling:
                        self.sampling.append(log)
                elif self.sampling and log in self.sampling:
                    self.sampling.remove(log)
                if self._at_end is not None:
                    self._reached(*self._at_end)
        except Exception as error:  # noqa: BLE001
            self._end(error)

    def _end_used(self, optimizer: Optimizer) -> None:
        # the first optimizer's steps count
        if self._stepped and self._stepped[0].optimizer() is optimizer:
            frame = sys._getframe(1)
            self.used.stepped(lambda: visible(optimizer, frame).modules)

    def _log_of(self, optimizer: Optimizer) -> OptimizerLog:
        log = self._optimizers.get(optimizer)
        if log is None:
            log = self._optimizers[optimizer] = OptimizerLog(optimizer, None)
        return log

    def _optimizer_log(self, optimizer: Optimizer) -> OptimizerLog | None:
        log = self._log_of(optimizer)
        if log.run != self._run:
            self.used.optimizes(p for group in optimizer.param_groups for p in group["params"])
            if len(self._stepped) == _MAX_LOGS:
                return None
            log.begin(optimizer, self._run, self._replicas, self._before)
            self._stepped.append(log)
            kept_states.RECORD.begin_without_model(sys._getframe(), lambda: self.steps)
        self._last_stepped = log
        return log

    def log_beside(self, optimizer: Any) -> OptimizerLog | None:
        """The record of an optimizer for what happens beside its steps; None if not recorded."""
        if get_ident() != self.thread or not isinstance(optimizer, Optimizer):
            return None
        log = self._log_of(optimizer)
        if log.run_beside != self._run:
            log.begin_beside(self._run)
        return log

    # -- at the end of a cell ------------------------------------------------------------------

    def stepped_alone(self) -> set[int]:
        """The ``id`` of each parameter that was stepped in this run without a wrapper."""
        unwrapped = (log for log in self._stepped if not log.about.wrapper)
        return {id(parameter) for log in unwrapped for parameter in log.parameters()}

    def observed(
        self, rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
    ) -> RankTraining:
        """How this rank trained in this run."""
        found = find(namespace, names)
        variables = {id(optimizer): name for name, optimizer in found.optimizers.items()}
        # the optimizers know their models by the names of the lines that stepped first
        stepped = {id(one.replica) for one in self._stepped if one.replica is not None}
        for name, module in found.modules.items():
            log = self._replicas.get(module) if _is_replica(module) else None
            if log is not None and id(log) not in stepped:
                log.name = name
        owned = {id(p) for module in found.modules.values() for p in module.parameters()}
        lost, given = self._not_finite, _given.first
        return RankTraining(
            rank=rank,
            backwards=self.backwards - self._before,
            where=self._first_backward,
            seed=self._seeded[0],
            seeded_at=self._seeded[1],
            loss=self._loss,
            clips_at=self._first_clip,
            graphs_kept=self._graphs.most(),
            optimizers=tuple(log.observed(variables, owned) for log in self._stepped),
            models=tuple(log.observed() for log in self._passed),
            by_hand=None
            if self._passed
            else self._by_hand.observed(self._optimizers, self._stepped),
            not_finite=lost and replace(lost, lasting=not self._last_is_finite),
            given=given and replace(given, backwards=given.backwards - self._before),
            unwritten=_unwritten.observed(),
            replicated=tuple(replicated.RECORD.tensors),
            summed=tuple(summed_activations.RECORD.sums),
            used=self.used.observed(),
            called_past=self.used.past,
            kept=kept_states.RECORD.observed(),
            plain=kept_states.RECORD.observed_plain(),
            contrasts=tuple(self._contrasts),
            counted=tuple(self._counted),
            drawn=tuple(_drawn.draws),
            losses=tuple(self._losses),
            threads=torch.get_num_threads(),
            processors=_processors(),
        )


#: The record of this process.
RECORD = TrainingRecord()


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankTraining:
    """How this rank trained in the run that has just ended."""
    return RECORD.observed(rank, namespace, names)


def install() -> None:
    """Record the optimizers, DDP models and backward passes of this process."""
    parameter_writes.install()
    held_data.install()
    _then(Optimizer, "__init__", RECORD.made)
    unwritten_memory.install()
    _then(DistributedDataParallel, "__init__", RECORD.wrapped)
    _then(DistributedDataParallel, "register_comm_hook", RECORD.hooked)
    _then(DistributedDataParallel, "no_sync", RECORD.enters_no_sync)
    _record_joins()
    original_forward = DistributedDataParallel.forward
    is_grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_dynamo_compiling

    @functools.wraps(original_forward)
    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if is_compiling():
            return original_forward(self, *inputs, **kwargs)
        if is_grad_enabled():
            if RECORD.compiled is not self:
                RECORD.passes(self, inputs, kwargs)
            RECORD.compiled = None
        else:
            RECORD.evaluates(inputs, kwargs)
        if RECORD.branches is None:
            return original_forward(self, *inputs, **kwargs)
        RECORD.mark()
        result = original_forward(self, *inputs, **kwargs)
        RECORD.mark(ends=True)
        return result

    DistributedDataParallel.forward = forward
    _record_backward()
    _record_compilation()
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _record_clipping(name)
    register_optimizer_step_pre_hook(RECORD.before_step)
    register_optimizer_step_post_hook(RECORD.after_step)


def _record_joins() -> None:
    """Record when contexts ``join()`` are made, entered and left."""
    _then(Join, "__init__", RECORD.made_join)
    _then(Join, "__enter__", RECORD.entered_join)
    original_exit = Join.__exit__

    @functools.wraps(original_exit)
    def leave(self: Any, *raised: Any) -> Any:
        __tracebackhide__ = True
        RECORD.left_join(self)
        return original_exit(self, *raised)

    Join.__exit__ = leave


def _record_backward() -> None:
    """Record the backward passes of tensors."""
    original_backward = torch.Tensor.backward
    is_compiling = torch.compiler.is_dynamo_compiling

    @functools.wraps(original_backward)
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        # in a function mode, as of simulated GPUs, torch calls this function once more
        if is_compiling() or RECORD.in_backward:
            return original_backward(self, *args, **kwargs)
        if simulated.active is None:
            RECORD.losses(self)
        else:
            with UNSIMULATED:
                RECORD.losses(self)
        if _early.entered:
            _early.leave()
        RECORD.in_backward = True
        try:
            if RECORD.branches is None:
                result = original_backward(self, *args, **kwargs)
            else:
                RECORD.mark()
                result = original_backward(self, *args, **kwargs)
                RECORD.mark(ends=True)
        finally:
            RECORD.in_backward = False
        if RECORD.sampling or RECORD.is_early:
            with UNSIMULATED:
                RECORD.after_backward()
        return result

    torch.Tensor.backward = backward


def _record_compilation() -> None:
    """Record the passes of models that ``torch.compile`` compiles."""
    original_compile = torch.compile

    @functools.wraps(original_compile)
    def compiled(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        RECORD.used.compiles()
        result = original_compile(model, *args, **kwargs)
        if _is_replica(model) and isinstance(result, torch.nn.Module):
            # the wrapper of its forward above is compiled, too, and records nothing
            result.register_forward_pre_hook(_compiled_pass(model), with_kwargs=True)
        return result

    torch.compile = compiled


def _compiled_pass(model: DistributedDataParallel) -> Callable[[Any, Any, Any], None]:
    reference = weakref.ref(model)

    def record(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        replica = reference()
        if replica is not None and torch.is_grad_enabled():
            RECORD.passes(replica, inputs, named)
            RECORD.compiled = replica

    return record


def _record_clipping(name: str) -> None:
    """Record the calls of a function that clips gradients."""
    original = getattr(clip_grad, name)

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value"))
        # with an infinite limit, the call only measures the norm
        if torch.compiler.is_dynamo_compiling() or (isinstance(limit, float) and isinf(limit)):
            return original(parameters, *args, **kwargs)
        if isinstance(parameters, torch.Tensor):
            given = [parameters]
        else:
            given = list(parameters)
            # the function warns of a generator without parameters
            is_generator = isinstance(parameters, GeneratorType)
            parameters = (one for one in given) if is_generator else given
        with UNSIMULATED:
            RECORD.clips()
        result = original(parameters, *args, **kwargs)
        with UNSIMULATED:
            RECORD.clipped(given, result)
        return result

    setattr(clip_grad, name, clip)
    setattr(torch.nn.utils, name, clip)


def _owns(optimizer: Optimizer, parameter: torch.Tensor | None) -> bool:
    return any(one is parameter for group in optimizer.param_groups for one in group["params"])


def _then(owner: Any, name: str, record: Callable[..., None]) -> None:
    """Make a function of a class or a module call ``record`` with the same arguments at its end."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = original(*args, **kwargs)
        if not torch.compiler.is_dynamo_compiling():
            record(*args, **kwargs)
        return result

    setattr(owner, name, function)


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
