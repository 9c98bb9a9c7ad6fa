"""Records the forward passes of DDP models, which adds a microsecond or two to each pass."""

from __future__ import annotations

import sys
import weakref
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...model import Position
from ...model.torch_features import UNUSED_PARAMETERS
from ...model.training import CutInputs, ModelTraining, Unregistered
from .. import torch_private
from . import held_data
from .fingerprints import choose, digest, joint_content, on_cpu, shape_text, sketches
from .frames import user_line
from .watched import Watched

_MAX_NAMES = 256
_MAX_MODULES = 2000
_MAX_ENTRIES = 64
_MAX_INPUTS = 4
_MAX_UNREGISTERED = 20
#: Inputs that hold no data.
_NO_DATA = (int, float, complex, str, type(None), torch.dtype, torch.device)
#: 32 watched parameters of this size are as much as `Watched` keeps.
_SMALL_BYTES = 1 << 15

#: Layers that draw random numbers while they train.
_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
#: Layers whose running statistics each rank computes from its own batches.
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class ReplicaLog:
    """The forward passes of one DDP model in this run."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.model = weakref.ref(model)
        self.name = type(model.module).__name__
        self.run = -1
        #: Whether the user has registered a communication hook.
        self.has_hook = False
        #: Sketches of its parameters just after DDP made them equal; None after its first step.
        self.built: list[int] | None = None
        #: The ``id`` of each parameter that required gradients then: DDP averages only these.
        self.averaged: frozenset[int] | None = None
        #: The line that put the model into DDP.
        self.made: Position | None = None
        #: The file of the installed library that did it for the user.
        self.made_by = ""
        #: The line that called ``no_sync()`` last.
        self.no_sync: Position | None = None
        self._forget()

    def _forget(self) -> None:
        self.forwards = self.unsynchronised = 0
        #: How often gradients were clipped before DDP averaged them, and where first.
        self.clipped_alone = 0
        self.first_clipped_alone: Position | None = None
        #: Whether DDP averages the gradients of the last pass, with those accumulated before.
        self.averages = False
        #: Whether the last pass was inside ``join()``: ranks that end early keep older gradients.
        self.joined = False
        self.searched = self.unused = 0
        #: Names of parameters with a gradient that DDP does not average.
        self.not_averaged: tuple[str, ...] = ()
        self.first: Position | None = None
        self.first_unsynchronised: Position | None = None
        #: The line that had entered ``no_sync()`` for that pass.
        self.first_no_sync: Position | None = None
        self.inputs: list[weakref.ref[torch.Tensor]] = []
        #: Sketches of the inputs of its first forward passes.
        self.first_inputs: list[int] = []
        #: The variable with the data of which an input is a part.
        self.taken_from = ""
        self._fresh = True
        #: The memory of which the inputs so far were parts, and the range of these; None after
        #: an input that was no part of it.
        self._cut: tuple[int, int, int] | None = (0, 0, 0)
        self._unregistered: list[tuple[weakref.ref[torch.Tensor], Unregistered]] = []
        #: Its settings; the counts are added at the end.
        self._about = ModelTraining(name="")
        self._watched: Watched | None = None
        #: Names of running statistics that DDP does not copy to all ranks, and the statistics.
        self._statistics: tuple[list[str], Watched] | None = None

    def begin(self, model: DistributedDataParallel, run: int) -> None:
        """Note the model's first forward pass in a run."""
        self.run = run
        self._forget()
        self.first = user_line(sys._getframe())
        self._about = _describe(model)
        self._watched = Watched(model, _small_parameters(model.module))
        if self._about.batch_norm and not self._about.broadcast_buffers:
            statistics = _statistics(model.module)
            self._statistics = list(statistics), Watched(model, statistics.values())
        self._unregistered = [
            (weakref.ref(tensor), Unregistered(name=name, shape=shape_text(tensor)))
            for name, tensor in islice(_unregistered(model.module), _MAX_UNREGISTERED)
        ]

    def passes(
        self, model: DistributedDataParallel, inputs: tuple[Any, ...], *, loaded: bool
    ) -> None:
        """Note a forward pass with gradients, and whether a loader has brought a batch before."""
        averages = self.averages = model.require_backward_grad_sync
        if averages:
            self.forwards += 1
        else:
            self.unsynchronised += 1
            if self.first_unsynchronised is None:
                self.first_unsynchronised = user_line(sys._getframe())
                self.first_no_sync = self.no_sync
        kept = self.inputs = []
        for one in inputs:
            if isinstance(one, torch.Tensor):
                kept.append(weakref.ref(one))
        if self._cut is not None:
            self._cut = _cut(self._cut, inputs[0] if inputs else None)
        if self._fresh:
            self._look_at_inputs(inputs, loaded=loaded)

    def clipped(self, where: Position | None) -> None:
        """Called when gradients were clipped and the last pass was inside ``no_sync()``."""
        self.clipped_alone += 1
        if self.first_clipped_alone is None:
            self.first_clipped_alone = where

    def _look_at_inputs(self, inputs: tuple[Any, ...], *, loaded: bool) -> None:
        tensors = on_cpu(inputs)
        # what is left out may be what differs; a single number may be that of the step
        whole = len(tensors) == sum(not isinstance(one, _NO_DATA) for one in inputs)
        data = [tensor for tensor in tensors if tensor.numel() > 1] if whole else []
        self.first_inputs += [joint_content(data)] if data else []
        self._fresh = len(self.first_inputs) < _MAX_INPUTS
        if data and not self._fresh and not loaded:
            self.taken_from = held_data.find(data[0], sys._getframe())

    def look_at_gradients(self, step: int) -> None:
        """Note unused parameters, and attributes that have gradients, before a sampled step.

        Names of parameters are looked up at a decreasing share of these steps.
        """
        model = self.model()
        if model is None:
            return
        for at, (reference, about) in enumerate(self._unregistered):
            tensor = reference()
            if tensor is not None and tensor.grad is not None:
                self._unregistered[at] = (reference, replace(about, trained=True))
        if self.averaged is not None and not self.not_averaged and not step & (step - 1):
            self.not_averaged = tuple(
                islice(
                    (
                        name
                        for name, one in model.module.named_parameters()
                        if one.grad is not None and id(one) not in self.averaged
                    ),
                    _MAX_UNREGISTERED,
                )
            )
        searches = model.find_unused_parameters and not model.static_graph
        if searches and torch_private.available(UNUSED_PARAMETERS):
            self.searched += 1
            self.unused += not bool(torch_private.used_map(model).all())

    def has_finite_inputs(self) -> bool | None:
        """Whether the last inputs are finite; None if they no longer exist."""
        tensors = [tensor for reference in self.inputs if (tensor := reference()) is not None]
        floating = [t for t in tensors if t.is_floating_point()]
        return all(bool(t.isfinite().all()) for t in floating) if floating else None

    def release(self) -> None:
        """Release the user's tensors."""
        for watched in (self._watched, self._statistics[1] if self._statistics else None):
            if watched is not None:
                watched.release()

    def _sketched_statistics(self) -> dict[str, int]:
        if self._statistics is None:
            return {}
        names, watched = self._statistics
        values = watched.values()
        return dict(zip(names, values, strict=True)) if values else {}

    def observed(self) -> ModelTraining:
        """What the model did in this run."""
        model, about = self.model(), self._about
        if model is not None:
            about = replace(
                about,
                communication_hook=self.has_hook,
                ignores_parameters=bool(model.parameters_to_ignore),
                buckets=len(torch_private.bucket_sizes(model)) or None,
            )
        return replace(
            about,
            name=self.name,
            where=self.first,
            made=self.made,
            made_by=self.made_by,
            unsynchronised_where=self.first_unsynchronised,
            no_sync_where=self.first_no_sync,
            forwards=self.forwards,
            unsynchronised=self.unsynchronised,
            clipped_alone=self.clipped_alone,
            clipped_where=self.first_clipped_alone,
            first_inputs=tuple(self.first_inputs),
            taken_from=self.taken_from,
            cut_inputs=CutInputs(
                storage_bytes=self._cut[0], begin_bytes=self._cut[1], end_bytes=self._cut[2]
            )
            if self._cut is not None and self._cut[0]
            else None,
            values=tuple(self._watched.values()) if self._watched is not None else (),
            statistics=self._sketched_statistics(),
            searched=self.searched,
            unused=self.unused,
            not_averaged=self.not_averaged,
            unregistered=tuple(about for _, about in self._unregistered),
        )


def _cut(known: tuple[int, int, int], one: Any) -> tuple[int, int, int] | None:
    """The range of a tensor that inputs were cut from, with one more; None if it is no part."""
    if type(one) is not torch.Tensor or not one.is_cpu or one.grad_fn is not None:
        return None
    whole, width = one.untyped_storage().nbytes(), one.element_size()
    size = one.numel() * width
    if whole <= size or known[0] not in (0, whole) or not one.is_contiguous():
        return None
    begin = one.storage_offset() * width
    if not known[0]:
        return whole, begin, begin + size
    return whole, min(known[1], begin), max(known[2], begin + size)


def _statistics(model: nn.Module) -> dict[str, torch.Tensor]:
    """Running statistics, by name, of which sketches are taken."""
    found = {
        f"{path}.{name}".lstrip("."): buffer
        for path, part in islice(model.named_modules(), _MAX_MODULES)
        if isinstance(part, _BATCH_NORM)
        for name, buffer in part.named_buffers(recurse=False)
        if name in ("running_mean", "running_var")
    }
    names = list(found)
    return {names[at]: found[names[at]] for at in choose(len(names))}


def watched_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of which sketches are taken."""
    parameters = list(model.parameters())
    return [parameters[at] for at in choose(len(parameters))]


def _small_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters whose values can be kept until the end of the cell; biases and norms are such."""
    small = [p for p in model.parameters() if p.numel() * p.element_size() <= _SMALL_BYTES]
    return [small[at] for at in choose(len(small))]


def members(model: DistributedDataParallel) -> tuple[int, ...]:
    """The ranks among which a model averages gradients; empty if its group was destroyed."""
    try:
        return tuple(dist.get_process_group_ranks(model.process_group))
    except (KeyError, ValueError, RuntimeError):
        return ()


def built(model: DistributedDataParallel) -> list[int]:
    """Sketches of a model that DDP has just made equal on all ranks."""
    return sketches(watched_parameters(model.module))


def _describe(model: DistributedDataParallel) -> ModelTraining:
    named = list(model.module.named_parameters())
    parts = list(islice(model.module.modules(), _MAX_MODULES))
    state = torch.get_rng_state()
    limit = model.bucket_bytes_cap
    return ModelTraining(
        name="",
        members=members(model),
        devices=tuple(sorted({str(p.device) for _, p in named})),
        moves_to=tuple(f"{model.device_type}:{index}" for index in model.device_ids or ()),
        parameters=tuple(name for name, _ in named[:_MAX_NAMES]),
        names_digest=digest([name for name, _ in named]),
        shapes_digest=digest([shape_text(p) for _, p in named]),
        find_unused_parameters=bool(model.find_unused_parameters),
        static_graph=bool(model.static_graph),
        broadcast_buffers=bool(model.broadcast_buffers),
        bucket_cap_mb=limit / (1 << 20),
        dropout=any(isinstance(m, _DROPOUT) and m.training and m.p > 0 for m in parts),
        batch_norm=any(
            isinstance(m, _BATCH_NORM) and m.training and m.track_running_stats for m in parts
        ),
        random_state=zlib.crc32(state.numpy().tobytes()),
    )


def _unregistered(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Trainable tensors in attributes that are not registered as parameters."""
    known = {id(parameter) for parameter in module.parameters()}
    for path, part in islice(module.named_modules(), _MAX_MODULES):
        for key, value in list(vars(part).items()):
            if key.startswith("_"):
                continue
            for suffix, tensor in _tensors(value):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) not in known:
                    known.add(id(tensor))
                    yield f"{path}.{key}{suffix}".lstrip("."), tensor


def _tensors(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an attribute, and the parameters of modules in a list or dict."""
    entries: list[tuple[str, Any]] = [("", value)]
    if isinstance(value, (list, tuple)):
        entries = [(f"[{at}]", item) for at, item in enumerate(value[:_MAX_ENTRIES])]
    elif isinstance(value, Mapping):
        entries = [(f"[{key!r}]", value[key]) for key in list(value)[:_MAX_ENTRIES]]
    for suffix, item in entries:
        if isinstance(item, torch.Tensor):
            yield suffix, item
        elif isinstance(item, nn.Module) and suffix:
            for name, parameter in item.named_parameters():
                yield f"{suffix}.{name}", parameter
