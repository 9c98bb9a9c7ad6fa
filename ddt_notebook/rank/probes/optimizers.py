"""Records the steps of optimizers: it counts all of them, and examines a decreasing share."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import replace
from itertools import islice
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ...model import Position
from ...model.training import OptimizerTraining, Schedule, TrainingState
from .. import torch_private
from . import parameter_writes, simulated
from .fingerprints import choose, next_sampled, projection, shape_text, sketches
from .frames import local_variables, user_frames, user_line
from .objects import FLATTENING, Objects, find, is_dtensor, optimizer_settings, unwrap
from .replicas import ReplicaLog, members, watched_parameters
from .simulated import UNSIMULATED
from .watched import Watched

_MAX_RATES = 4
_MAX_CHANGES = 8
_MAX_LEFT_OUT = 20
_MAX_SETTINGS = 64
_FRAMES = 6
_MAX_PASSES = 16
#: Number of gradients for which the record shows how the ranks combine them.
_PROJECTED = 8


class OptimizerLog:
    """What one optimizer has done in this run."""

    def __init__(self, optimizer: Optimizer, made: Position | None) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.made = made
        #: The learning rates with which it was made; empty if this run did not see that.
        self.made_rates = _rates(optimizer) if made is not None else ()
        self.kind = type(optimizer).__name__
        self.run = -1
        self.begin_beside(-1)
        #: The result of `_writes` after its last step.
        self._written: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self.steps = 0
        self.place: Position | None = None
        self.name = ""
        #: Its settings and its model; the counts are added at the end.
        self.about = OptimizerTraining(name="")
        self.states: list[TrainingState] = []
        self.synchronised = 0
        self.changed_before: list[int] = []
        self.changed_at: list[Position | None] = []
        #: How many writes to any parameters were noted when they were looked at last.
        self._noted = parameter_writes.RECORD.noted
        #: Whether the log still searches for writes between steps.
        self._counts = False
        #: Whether its gradients were unscaled for the next step of the scaler.
        self.unscaled = False
        #: The next step before which sketches are taken.
        self._sampled_at = 0
        self.twin = ""
        self._model: weakref.ref[nn.Module] | None = None
        self.stale = 0
        self.left_out: list[str] = []
        self.replica: ReplicaLog | None = None
        self.sharded = False
        self._seen_forwards = 0
        self._watched_tensors: Watched | None = None
        #: Steps by the number of backward passes since the step before, or since the run began.
        self.passes: Counter[int] = Counter()
        self._seen_backwards = 0
        #: The step that was begun last, and the number of backward passes before it.
        self._entered = -1, -1
        #: How many backward passes there were before this run.
        self._backwards_before = 0
        #: Projections of gradients after the last backward pass, and before and after clipping.
        self._local: list[float] = []
        self._unclipped: list[float] = []
        self._clipped: list[float] = []
        #: Projections before the last backward pass, if something had changed the gradients.
        self._exchanged: list[float] = []
        self._added_at: Position | None = None
        #: Gradients that were reduced during the backward pass.
        self._early: set[int] = set()
        #: Operations of DDP's group at the first step; -1 if not known.
        self._operations = -1
        self._group_operations: int | None = None
        #: Projections of gradients as the backward pass computes them, before a hook reduces them.
        self._computed: dict[int, float] = {}
        self._hooks: list[Any] = []
        #: Parameter group of each watched parameter, and its index there.
        self._at: list[tuple[int, int]] = []
        self._others: list[tuple[str, weakref.ref[nn.Module]]] = []

    def begin_beside(self, run: int) -> None:
        """Begin to note its schedulers and its gradient scaler, which may come before a step."""
        self.run_beside = run
        #: By the ``id`` of the scheduler.
        self.schedules: dict[int, Schedule] = {}
        self.scaler_skipped = 0
        self.scaler_where: Position | None = None
        self.clipped_scaled = 0

    def begin(
        self, optimizer: Optimizer, run: int, replicas: Mapping[Any, ReplicaLog], backwards: int
    ) -> None:
        """Before the first step in a run, find the name and the model of its parameters.

        Parameters
        ----------
        run
            The number of the run.
        replicas
            The records of the known DDP models.
        backwards
            The number of backward passes before the run.
        """
        self.run = run
        self._forget()
        frame = sys._getframe()
        self.place = user_line(frame)
        parameters = _parameters(optimizer)
        found = visible(optimizer, frame)
        self.name = next((n for n, o in found.optimizers.items() if o is optimizer), "")
        model, wrapper = self._owner(parameters, found, replicas)
        names = found.parameter_names()
        ddp = self.replica.model() if self.replica is not None else None
        if ddp is not None:
            for name, parameter in ddp.module.named_parameters():
                names.setdefault(id(parameter), f"{model}.{name}")
        watched = choose(len(parameters))
        self.sharded = wrapper in FLATTENING or any(is_dtensor(p) for p in parameters)
        self.about = OptimizerTraining(
            name=self.name,
            kind=self.kind,
            settings=dict(list(optimizer_settings(optimizer))[:_MAX_SETTINGS]),
            parameters=len(parameters),
            trainable=sum(p.requires_grad for p in parameters),
            model=model,
            wrapper=wrapper,
            members=members(ddp) if ddp is not None else (),
            shapes=dict(Counter(map(shape_text, parameters))),
            watched=tuple(names.get(id(parameters[at]), f"parameter {at}") for at in watched),
            elements=tuple(parameters[at].numel() for at in watched),
        )
        if not self.sharded:
            self._watched_tensors = Watched(optimizer, [parameters[at] for at in watched])
        self._seen_backwards = self._backwards_before = backwards
        places = [
            (number, at)
            for number, group in enumerate(optimizer.param_groups)
            for at in range(len(group["params"]))
        ]
        self._at = [places[at] for at in watched]
        owned = set(map(id, parameters))
        self._others = [
            (name, weakref.ref(module))
            for name, module in found.modules.items()
            if not any(id(p) in owned for p in module.parameters())
        ]
        if self._was_changed(optimizer):
            self._note_change(optimizer)
        self._counts = not self.sharded
        self._operations = _operations(ddp)

    def _owner(
        self, parameters: list[Any], found: Objects, replicas: Mapping[Any, ReplicaLog]
    ) -> tuple[str, str]:
        """Name and wrapper of the model that holds the first trainable parameter."""
        first = next((p for p in parameters if p.requires_grad), None)
        if first is None:
            return "", ""
        name, wrapper = "", ""
        for root, module in found.modules.items():
            if any(p is first for p in module.parameters()):
                name, wrapper = root, unwrap(module)[1]
                self._model = weakref.ref(module)
        for model, log in replicas.items():
            if any(p is first for p in model.parameters()):
                self.replica = log
                self._seen_forwards = 0
                named = next((n for n, m in found.modules.items() if m is model), None)
                # a compiled model hides the one in DDP that it calls
                log.name = named or name or log.name
                return log.name, wrapper or "DDP"
        return name, wrapper

    def _was_changed(self, optimizer: Optimizer) -> bool:
        """Whether the parameters were written to since the last step, or since DDP copied them."""
        before, now = self._written, _writes(optimizer)
        log = self.replica
        if log is not None and log.built is not None:
            ddp, made = log.model(), log.built
            log.built = None
            if ddp is not None and before is None:
                return sketches(watched_parameters(ddp.module)) != made
        return _differ(before, now)

    def _was_noted(self, optimizer: Optimizer) -> bool:
        """Whether a write to the parameters is noted."""
        record = parameter_writes.RECORD
        self._noted = record.noted
        return record.holds(_parameters(optimizer))

    def _note_change(self, optimizer: Optimizer) -> None:
        self.changed_before.append(self.steps)
        owned = set(map(id, _parameters(optimizer)))
        self.changed_at.append(parameter_writes.RECORD.take(owned))

    def before_step(self, optimizer: Optimizer, backwards: int) -> bool:
        """Called before each step, with the number of all backward passes.

        Returns whether sketches were taken.
        """
        if self._entered == (self.steps, backwards):
            return self._enters_again(optimizer, backwards)
        self._entered = self.steps, backwards
        self.passes[backwards - self._seen_backwards] += 1
        self._seen_backwards = backwards
        if self.steps and self._counts:
            written = _writes(optimizer)
            changed = written != self._written and _differ(self._written, written)
            noted = self._noted != parameter_writes.RECORD.noted
            if changed or (noted and self._was_noted(optimizer)):
                self._note_change(optimizer)
                self._counts = len(self.changed_before) < _MAX_CHANGES
        replica = self.replica
        if replica is not None:
            forwards = replica.forwards
            if replica.averages and forwards > self._seen_forwards:
                self.synchronised += 1
            self._seen_forwards = forwards
        if self.steps == self._sampled_at:
            with UNSIMULATED:
                self._sample(optimizer, backwards - self._backwards_before)
            return True
        return False

    def _enters_again(self, optimizer: Optimizer, backwards: int) -> bool:
        """Called before a step inside of one of the same optimizer, as in that of Horovod.

        In between, the gradients may have been exchanged.
        """
        if self.steps != self._sampled_at or not self.states or self.states[-1].step != self.steps:
            return False
        outer = self.states.pop()
        self._local, self._exchanged = list(outer.local), list(outer.exchanged)
        self._unclipped, self._clipped = list(outer.unclipped), list(outer.clipped)
        with UNSIMULATED:
            self._sample(optimizer, backwards - self._backwards_before)
        return True

    def before_backward(self) -> None:
        """Called before each backward pass before a sampled step."""
        if self._local and self.replica is None:
            now = self._projections()
            self._exchanged = now if now != self._local and any(now) else []
            if self._exchanged:
                self._added_at = user_line(sys._getframe())

    def after_backward(self, backwards: int) -> None:
        """Called after each backward pass before a sampled step, with the number of all passes."""
        replica = self.replica
        if replica is None or (replica.averages and backwards - self._seen_backwards > 1):
            self._local, self._unclipped, self._clipped = self._projections(), [], []
            for at in self._early & self._computed.keys():
                self._local[at] = self._computed[at]
        self._early = set()
        self._unhook()

    def reduces(self, gradient: torch.Tensor, backwards: int) -> None:
        """Called before an ``all_reduce``, which may be in a hook of the backward pass."""
        optimizer = self.optimizer()
        if self.replica is not None or optimizer is None or self._local:
            return
        if backwards - self._seen_backwards != 1:
            return  # the gradient may hold those of other passes, which were reduced before
        for at, parameter in enumerate(self._watched(optimizer)[:_PROJECTED]):
            grad = parameter.grad
            if grad is not None and grad.data_ptr() == gradient.data_ptr():
                if grad.shape == gradient.shape:
                    self._early.add(at)
                return

    def _hook(self, optimizer: Optimizer) -> None:
        """Note the gradients of the next backward pass as they are computed."""
        for at, parameter in enumerate(self._watched(optimizer)[:_PROJECTED]):
            if parameter.requires_grad:
                noted = functools.partial(self._compute, at)
                self._hooks.append(parameter.register_hook(noted))

    def _compute(self, at: int, gradient: torch.Tensor) -> None:
        with contextlib.suppress(Exception), UNSIMULATED:  # it must not reach the user's code
            self._computed.setdefault(at, projection(gradient))

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._computed = [], {}

    def before_clip(self) -> None:
        """Called before gradients are clipped before a sampled step."""
        if self._local:
            now = self._projections()
            if now != self._clipped:  # else this clips further, or other parameters
                self._unclipped = now

    def after_clip(self) -> None:
        """Called after gradients were clipped before a sampled step."""
        if self._local:
            self._clipped = self._projections()

    def _projections(self) -> list[float]:
        optimizer = self.optimizer()
        watched = self._watched(optimizer) if optimizer is not None else []
        return [projection(p.grad) for p in watched[:_PROJECTED]]

    def _sample(self, optimizer: Optimizer, backwards: int) -> None:
        parameters = _parameters(optimizer)
        with_gradient = sum(p.grad is not None for p in parameters)
        watched = [] if self.sharded else self._watched(optimizer)
        state = TrainingState(
            step=self.steps,
            values=tuple(sketches(watched)),
            gradients=tuple(sketches([p.grad for p in watched])),
            with_gradient=with_gradient,
            rates=_rates(optimizer),
            local=tuple(self._local),
            unclipped=tuple(self._unclipped),
            clipped=tuple(self._clipped),
            used=tuple(self._projections()) if self._local else (),
            exchanged=tuple(self._exchanged),
            backwards=backwards,
        )
        self._exchanged = []
        self._local, self._unclipped, self._clipped = [], [], []
        self.states.append(state)
        if self.replica is not None:
            self.replica.look_at_gradients(self.steps)
            now = _operations(self.replica.model()) if self._operations >= 0 else -1
            self._group_operations = now - self._operations if now >= 0 else None
        self._unhook()
        if not with_gradient and not self.twin:
            self.twin = self._find_twin(parameters)
        self.stale, self.left_out = 0, []
        if with_gradient < len(parameters):
            self._look_for_stale(parameters)

    def after_step(self, optimizer: Optimizer) -> bool:
        """Called after each step; returns whether gradients are examined before the next one."""
        self.steps += 1
        if self.steps > self._sampled_at:
            self._sampled_at = next_sampled(self._sampled_at)
        if self.sharded:
            return False
        self._written = _writes(optimizer)
        samples = self.steps == self._sampled_at
        if samples and self.replica is None:
            with UNSIMULATED:
                self._hook(optimizer)
        return samples

    def _look_for_stale(self, parameters: list[Any]) -> None:
        """Search for parameters of a layer that the user has replaced in the model."""
        idle = [p for p in parameters if p.requires_grad and p.grad is None]
        model = self._model() if self._model is not None else None
        if not idle or model is None:
            return
        named = dict(unwrap(model)[0].named_parameters())
        part, held = set(map(id, named.values())), set(map(id, parameters))
        self.stale = sum(id(p) not in part for p in idle)
        if self.stale:
            left_out = (n for n, p in named.items() if p.grad is not None and id(p) not in held)
            self.left_out = list(islice(left_out, _MAX_LEFT_OUT))

    def _find_twin(self, parameters: list[Any]) -> str:
        """A model with parameters of the same shapes, which have gradients, unlike these."""
        form = [tuple(p.shape) for p in parameters if p.requires_grad]
        for name, reference in self._others:
            module = reference()
            # a compiled DDP model has no truth value
            parts = module.parameters() if module is not None else ()
            trained = [p for p in parts if p.requires_grad]
            same = bool(form) and [tuple(p.shape) for p in trained] == form
            if same and all(p.grad is not None for p in trained):
                return name
        return ""

    def _watched(self, optimizer: Optimizer) -> list[Any]:
        """The parameters to examine; none once a library exchanges them in each step.

        DeepSpeed's ZeRO-3 gives the optimizer a part of the parameters for each of its steps.
        """
        groups = optimizer.param_groups
        try:
            return [groups[number]["params"][at] for number, at in self._at]
        except IndexError:
            self.sharded, self._at, self._watched_tensors, self.states = True, [], None, []
            self.about = replace(self.about, watched=())
            return []

    def parameters(self) -> list[torch.Tensor]:
        """Its parameters; only the watched ones if the optimizer no longer exists."""
        optimizer = self.optimizer()
        if optimizer is not None:
            return list(_parameters(optimizer))
        return self._watched_tensors.tensors() if self._watched_tensors is not None else []

    def release(self) -> None:
        """Release the user's tensors."""
        self._unhook()
        if self._watched_tensors is not None:
            self._watched_tensors.release()

    def observed(self, names: Mapping[int, str], owned: Container[int]) -> OptimizerTraining:
        """What the optimizer did in this run.

        Parameters
        ----------
        names
            Names of variables, by the ``id`` of the optimizer that they hold.
        owned
            The ``id`` of each parameter of the models among the variables.
        """
        optimizer = self.optimizer()
        watched = self._watched_tensors
        last = TrainingState(
            step=self.steps,
            values=tuple(watched.values()) if watched is not None else (),
            rates=_rates(optimizer) if optimizer is not None else (),
        )
        beside = self.run_beside == self.run
        place = f"{self.place.file} line {self.place.line}" if self.place else ""
        unnamed = f"{self.kind} at {place}" if place else self.kind
        return replace(
            self.about,
            name=names.get(id(optimizer)) or self.name or unnamed,
            steps=self.steps,
            where=self.place,
            made=self.made,
            made_rates=self.made_rates,
            states=(*self.states, last),
            synchronised=self.synchronised,
            group_operations=self._group_operations,
            passes=dict(self.passes.most_common(_MAX_PASSES)),
            schedules=tuple(self.schedules.values()) if beside else (),
            scaler_skipped=self.scaler_skipped if beside else 0,
            scaler_where=self.scaler_where if beside else None,
            clipped_scaled=self.clipped_scaled if beside else 0,
            changed_before=tuple(self.changed_before),
            changed_at=tuple(self.changed_at),
            added_at=self._added_at,
            twin=self.twin,
            stale=self.stale,
            gone=not any(id(p) in owned for p in self.parameters()),
            left_out=tuple(f"{self.about.model}.{name}" for name in self.left_out),
        )


def taken_over_from(
    optimizer: Optimizer, known: Mapping[Optimizer, OptimizerLog]
) -> Position | None:
    """The line that made the optimizer whose groups another one has, as Horovod's makes it.

    The settings are those that were given there.
    """
    own = {id(group) for group in optimizer.param_groups}
    for other, log in known.items():
        if other is not optimizer and own & {id(group) for group in other.param_groups}:
            return log.made
    return None


def _operations(ddp: Any) -> int:
    """How many operations the group of a DDP model has been given; -1 if not known."""
    return torch_private.operation_count(ddp.process_group) if ddp is not None else -1


#: Looked up once, since each step reads it.
_version = torch_private.version


def _parameters(optimizer: Optimizer) -> list[Any]:
    groups = optimizer.param_groups
    if len(groups) == 1:  # no copy in the usual case, since this runs in every step
        return groups[0]["params"]  # type: ignore[no-any-return]
    return [p for group in groups for p in group["params"]]


def _writes(optimizer: Optimizer) -> tuple[int, int] | None:
    """Number of parameters, and how often they were written to in total; None if unknown."""
    groups = optimizer.param_groups  # another function would cost more in every step
    parameters = groups[0]["params"] if len(groups) == 1 else _parameters(optimizer)
    try:
        if simulated.active is None:
            return len(parameters), sum(map(_version, parameters))
        with torch_private.DisableTorchFunction():  # that is enough for it, and takes less time
            return len(parameters), sum(map(_version, parameters))
    except RuntimeError:
        return None


def _rates(optimizer: Optimizer) -> tuple[float, ...]:
    groups = optimizer.param_groups[:_MAX_RATES]
    return tuple(float(group["lr"]) for group in groups if "lr" in group)


def _differ(before: tuple[int, int] | None, now: tuple[int, int] | None) -> bool:
    """Whether parameters were written to in between; False if their number has changed."""
    if before is None or now is None or before[0] != now[0]:
        return False
    return before[1] != now[1]


def visible(optimizer: Optimizer, frame: FrameType) -> Objects:
    """Models and optimizers in variables of the user's frames, up to the optimizer's frame."""
    found = Objects()
    for user in list(user_frames(frame))[:_FRAMES]:
        local = local_variables(user)
        inside = local is not user.f_globals
        for variables in (local, user.f_globals) if inside else (local,):
            mine = {n: v for n, v in variables.items() if not n.startswith("_")}
            for name, module in (seen := find(mine)).modules.items():
                if not any(module is known for known in found.modules.values()):
                    found.modules.setdefault(name, module)
            for name, known in seen.optimizers.items():
                found.optimizers.setdefault(name, known)
            if any(known is optimizer for known in seen.optimizers.values()):
                return found
    return found
