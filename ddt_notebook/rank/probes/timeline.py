"""Records what a rank does over time, and the parts of its memory meanwhile."""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules import module as nn_module
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from ... import system_memory
from ...model import Observation
from ...model.memory import RankMemory
from ...model.timeline import BACKWARD, WAIT, RankTimeline
from ...model.torch_features import TIMELINE
from .. import torch_private
from . import memory, process_memory
from .objects import buffers, find

#: The trace ends after this many steps or seconds, since its events are kept in memory.
_MAX_STEPS, _MAX_S = 200, 120.0
_MAX_SPANS = 40_000
_MAX_STEPS_NOTED = 20_000
#: Nodes of a backward pass that are this close to each other count as one span.
_GAP_NS = 50_000
#: The parts of memory are measured in the first steps; gradients and states exist from then on.
_STEPS_LOOKED_AT = 2

#: Classes and modules, and the names of their functions that wait for a handle; a framework with
#: handles of its own adds one.
WAITERS: list[tuple[Any, str]] = [(dist.Work, "wait")]

Columns = list[tuple[str, int, int]]  # name, start and end in nanoseconds of the monotonic clock


class Tracer:
    """Traces this process from `start` to `stop`; call both from the main thread.

    The profiler records only ranges that users and libraries marked, and the nodes of the backward
    pass. A timeline needs no more, and the cost is very low.

    Parameters
    ----------
    rank
        Global rank.
    variables
        Returns the rank's variables as they are now.
    """

    def __init__(self, rank: int, variables: Callable[[], Mapping[str, Any]]) -> None:
        self._rank = rank
        self._variables = variables
        self._undo: list[Callable[[], None]] = []
        self._steps: list[int] = []
        self._waits: Columns = []
        self._spans: Columns = []
        self._profiling = False
        self._traced_until_s: float | None = None
        self._depth = 0
        self._forwards = 0
        self._activations = 0
        #: What models and optimizers held when it was measured last.
        self._of_models: RankMemory | None = None
        self._roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def start(self) -> None:
        """Begin to record."""
        self._peak_known = process_memory.forget_peak()
        self._limits = (
            process_memory.limits()
        )  # the cell's limits, since the rank may allocate more later to report
        if process_memory.uses_gpu():
            torch.cuda.reset_peak_memory_stats()
        self._sampler = process_memory.MemorySampler(capped="rank" in self._limits)
        self._sampler.start()
        self._undo.append(register_optimizer_step_post_hook(self._on_step).remove)
        self._watch_forwards()
        self._time_waits()
        self._started_s = time.monotonic()
        self._start_profiler()

    def stop(self) -> Observation:
        """End the trace; returns the timeline and the memory of the cell."""
        ended_s = time.monotonic()
        self._end_profile()
        for undo in self._undo:
            undo()
        return Observation(
            rank=self._rank,
            timeline=self._timeline(ended_s),
            memory=self._sampler.stop(self._memory()),
        )

    # -- time ----------------------------------------------------------------------------------

    def _start_profiler(self) -> None:
        if not torch_private.available(TIMELINE):
            return
        if torch_private.profiler_enabled():  # the user's own, from an earlier cell
            self._traced_until_s = self._started_s
            return
        os.environ.setdefault(
            "KINETO_LOG_LEVEL", "99"
        )  # otherwise it writes into the cell's output
        try:
            torch_private.enable_profiler()
        except (TypeError, AttributeError) as error:  # the names exist but have another meaning
            torch_private.give_up(TIMELINE, str(error))
            return
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self._profiling = True
        # There can be only one profiler: the user's own replaces this one.
        self._undo.append(torch_private.BeforeUsersProfiler(self._end_profile).remove)

    def _end_profile(self) -> None:
        if not self._profiling:
            return
        self._profiling = False
        self._traced_until_s = time.monotonic()
        events = torch_private.disable_profiler().events()
        backward: list[list[int]] = []
        for event in events:
            start = event.start_ns() - self._wall_offset_ns
            end = start + event.duration_ns()
            scope = torch_private.scope_of(event)
            if scope == "backward":
                if backward and start - backward[-1][1] < _GAP_NS:
                    backward[-1][1] = max(backward[-1][1], end)
                else:
                    backward.append([start, end])
            elif scope == "user":
                self._spans.append((event.name()[:200], start, end))
        self._spans += [(BACKWARD, start, end) for start, end in backward]

    def _time_waits(self) -> None:
        for owner, name in WAITERS:
            original = getattr(owner, name)
            setattr(owner, name, self._timed(original))
            self._undo.append(functools.partial(setattr, owner, name, original))

    def _timed(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        waits, main = self._waits, threading.get_ident()

        @functools.wraps(wait)
        def timed(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            start = time.monotonic_ns()
            try:
                return wait(*args, **kwargs)
            finally:
                if len(waits) < _MAX_SPANS and threading.get_ident() == main:
                    waits.append((WAIT, start, time.monotonic_ns()))

        return timed

    def _timeline(self, ended_s: float) -> RankTimeline:
        begun = round(self._started_s * 1e9)
        spans = sorted(self._spans + self._waits, key=lambda span: span[1])
        kept = spans[:_MAX_SPANS]
        names = {name: at for at, name in enumerate(dict.fromkeys(span[0] for span in kept))}
        return RankTimeline(
            rank=self._rank,
            started_s=self._started_s,
            ended_s=ended_s,
            traced_until_s=self._traced_until_s,
            names=tuple(names),
            name=tuple(names[name] for name, _, _ in kept),
            start_us=tuple((start - begun) // 1000 for _, start, _ in kept),
            duration_us=tuple((end - start) // 1000 for _, start, end in kept),
            steps_us=tuple((at - begun) // 1000 for at in self._steps),
            buckets=tuple(
                tuple(sizes)
                for ddp in memory.ddp_modules(self._all_roots())
                if (sizes := torch_private.bucket_sizes(ddp))
            ),
            spans_left_out=len(spans) - len(kept),
        )

    def _all_roots(self) -> list[nn.Module]:
        found = find(self._variables()).modules.values()
        inner = {id(part) for root in self._roots for part in root.modules()}
        return [*self._roots, *(module for module in found if id(module) not in inner)]

    # -- memory --------------------------------------------------------------------------------

    def _on_step(self, optimizer: Optimizer, *_: Any) -> None:
        if len(self._steps) < _MAX_STEPS_NOTED:
            self._steps.append(time.monotonic_ns())
        steps = len(self._steps)
        if steps <= _STEPS_LOOKED_AT:
            self._optimizers.add(optimizer)
            self._sampler.count(self._measure_models(f"step {steps}").parts)
        if steps >= _MAX_STEPS or time.monotonic() - self._started_s > _MAX_S:
            self._end_profile()

    def _measure_models(self, when: str) -> RankMemory:
        measured = memory.of_models(self._rank, self._roots, self._optimizers)
        self._of_models = replace(measured, measured=when)
        return self._of_models

    def _watch_forwards(self) -> None:
        """Measure what the first forward passes keep for the backward pass."""
        # the hooks are not the user's; that they also run for a compiled model changes nothing
        hooks = r"Using `torch\.compile\(module\)` when there are global hooks"
        warnings.filterwarnings("ignore", message=hooks)
        before = nn_module.register_module_forward_pre_hook(self._on_forward_begin)
        after = nn_module.register_module_forward_hook(self._on_forward_end, always_call=True)
        self._forward_hooks = (before, after)
        self._undo += [before.remove, after.remove]

    def _on_forward_begin(self, module: nn.Module, _: Any) -> None:
        self._depth += 1

    def _on_forward_end(self, module: nn.Module, _: Any, output: Any) -> None:
        self._depth -= 1
        if self._depth or not any(t.requires_grad for t in memory.tensors_in(output)):
            return
        self._roots.add(module)
        self._forwards += 1
        found = find(self._variables())
        others = [*module.parameters(), *buffers(module), *found.tensors.values()]
        kept = memory.kept_for_backward(output, others)
        self._activations = max(self._activations, kept)
        held = memory.of_models(self._rank, self._roots, self._optimizers)
        self._sampler.count(memory.with_parts(held, activations=kept).parts)
        if self._forwards >= _STEPS_LOOKED_AT:
            for hook in self._forward_hooks:
                hook.remove()

    def _memory(self) -> RankMemory:
        found = find(self._variables())
        self._optimizers.update(found.optimizers.values())
        measured = self._of_models
        if measured is None:
            self._roots.update(self._all_roots())
            measured = self._measure_models("end")
        tensors = memory.variable_bytes(found)
        held = memory.of_models(self._rank, self._roots, self._optimizers)
        self._sampler.count(memory.with_parts(held, tensors=tensors).parts)
        parted = memory.with_parts(measured, activations=self._activations, tensors=tensors)
        peak = system_memory.peak_bytes() if self._peak_known else None
        return replace(memory.of_process(parted), limits=self._limits, peak_bytes=peak)
