"""What DeepSpeed's engines use, hold and are given, where ranks that train together must agree.

DeepSpeed makes parameters equal as it makes an engine, and neither buffers nor settings. Each rank
notes its own; the diagnosis compares them.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from math import isclose
from typing import Any

import torch

from ...model.frameworks.deepspeed import (
    ENGINE_GIVEN,
    ENGINE_HOLDS,
    ENGINE_TAKES,
    ENGINE_TRAINS,
    ENGINE_USES,
    LOSS_DIVIDED,
    STAGE_READS,
    StageData,
)
from ..probes import evaluations, loss_graph
from ..probes.fingerprints import choose, joint_content, on_cpu, shape_text, sketches
from ..probes.objects import optimizer_settings
from ..user_signals import left_out
from .repeated_inputs import RepeatedInputs

#: Settings and modules of an engine that are looked at, and the longest name of a buffer.
_MOST_SETTINGS, _MOST_MODULES, _LONGEST = 24, 2000, 80
#: An engine's settings are noted at its first steps, and at a decreasing share of these.
_LAST_NOTED = 64
#: Micro-batches of a pipeline, and passes of an engine, that are looked at.
_MICRO_BATCHES, _PASSES = 4, 2
#: The stage of ZeRO from which on a rank holds only parts of the parameters.
_PARTITIONED = 3
#: Arguments of a pass that are looked at, the longest one that is kept whole, and how often changes
#: of them are noted.
_ARGUMENTS, _LONGEST_ARGUMENT, _MOST_CHANGES = 6, 40, 256
#: Elements of a tensor of which it is looked whether they differ.
_ELEMENTS = 4096

Note = Callable[[str, str], None]


@dataclass(slots=True)
class _Engine:
    number: int  #: ranks make their engines in one order
    group: int  #: a digest of the ranks that average its gradients; 0 if it is alone
    #: Fingerprints of its buffers as it was made, until its first step.
    buffers: dict[str, int] | None = None
    steps: int = 0
    #: Parameters that have to be equal, by name; none if ranks have their own.
    parameters: dict[str, torch.nn.Parameter] = field(default_factory=dict)
    looked_before: int = -1  #: the step before which that was done last
    given: list[str] = field(default_factory=list)  #: texts and switches of its last pass
    changes: int = 0  #: how often these were noted
    micro_batches: int = 0
    divided: list[bool] = field(default_factory=list)
    #: Its inputs, while it is not known whether they are samples that come again.
    inputs: RepeatedInputs | None = field(default_factory=RepeatedInputs)


class EngineValues:
    """The values of the engines of a process.

    Parameters
    ----------
    note
        Records what was seen, with its text.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._made = 0
        #: By the engine's id, which a later engine may have again.
        self._engines: dict[int, _Engine] = {}

    def number_anew(self) -> None:
        """Number the engines from 1, as on a rank that was replaced; the former train no more."""
        self._made = 0

    def made(self, engine: Any, members: list[int]) -> None:
        """Look at an engine that was made."""
        self._made += 1
        group = zlib.crc32(repr(members).encode()) if len(members) > 1 else 0
        known = self._engines[id(engine)] = _Engine(self._made, group)
        # experts are others on each rank
        if group and not getattr(engine, "has_moe_layers", False):
            with left_out():  # another version of DeepSpeed
                known.buffers = _buffers(engine.module)
                if engine.zero_optimization_stage() < _PARTITIONED:
                    known.parameters = _chosen_parameters(engine.module)

    def steps(self, engine: Any) -> None:
        """Note, before some of an engine's steps, the parameters with which it has computed."""
        known = self._engines.get(id(engine))
        if known is None or not known.parameters:
            return
        step = getattr(engine, "global_steps", 0) + 1
        if step == known.looked_before or step > _LAST_NOTED or step & (step - 1):
            return
        known.looked_before = step
        with left_out():
            held = dict(zip(known.parameters, sketches(known.parameters.values()), strict=True))
            self._write(ENGINE_TRAINS, known, step=step, parameters=held)

    def stepped(self, engine: Any, settings: Callable[[], dict[str, Any]]) -> None:
        """Note what an engine has used in a step, and which buffers it holds since it was made.

        Parameters
        ----------
        settings
            Returns those of its configuration.
        """
        known = self._engines.get(id(engine))
        if known is None or not known.group:
            return
        steps = getattr(engine, "global_steps", 0)
        if steps == known.steps or steps > _LAST_NOTED or steps & (steps - 1):
            return
        known.steps = steps
        with left_out():  # another version of DeepSpeed
            used = settings() | dict(islice(optimizer_settings(engine.optimizer), _MOST_SETTINGS))
            self._write(ENGINE_USES, known, step=steps, settings=used)
        if known.buffers:
            with left_out():
                now = _buffers(engine.module)
                kept = {name: one for name, one in known.buffers.items() if now.get(name) == one}
                self._write(ENGINE_HOLDS, known, buffers=kept)
        known.buffers = None

    def given(self, engine: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note texts and switches with which a pass is asked for, if they are not the last ones."""
        known = self._engines.get(id(engine))
        if known is None or not known.group or known.changes == _MOST_CHANGES:
            return
        plain = [
            str(one)[:_LONGEST_ARGUMENT]
            for one in (*inputs[:_ARGUMENTS], *islice(named.values(), _ARGUMENTS))
            if type(one) in (str, bool)
        ]
        if plain != known.given:
            known.given = plain
            known.changes += 1
            self._write(ENGINE_GIVEN, known, given=plain)

    def takes(self, engine: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note samples of data that are the inputs of passes, unless a loader brought them.

        What loaders bring is recorded by its samples.
        """
        known = self._engines.get(id(engine))
        log = known.inputs if known is not None and known.group else None
        if known is None or log is None or not torch.is_grad_enabled():
            return
        if evaluations.RECORD.loaded:
            known.inputs = None
        elif engine.module.training:
            with left_out():
                if log.passes((*inputs, *named.values())):
                    self._write(ENGINE_TAKES, known, inputs=log.first, taken_from=log.taken_from)
            if log.done:
                known.inputs = None

    def passes_back(self, engine: Any, loss: Any, accumulates: int) -> None:
        """Note a loss that is divided already by what an engine divides it by."""
        known = self._engines.get(id(engine))
        if known is None or len(known.divided) == _PASSES or not isinstance(loss, torch.Tensor):
            return
        graph = loss_graph.describe(loss)
        factor = graph.factor if graph is not None else None
        known.divided.append(factor is not None and isclose(factor, 1 / accumulates, rel_tol=1e-6))
        if len(known.divided) == _PASSES and all(known.divided):
            self._note(LOSS_DIVIDED, str(accumulates))

    def random_state(self, engine: Any) -> torch.Tensor | None:
        """Torch's random state before a micro-batch is read; None if it is not looked at."""
        known = self._engines.get(id(engine))
        looked_at = known is not None and known.micro_batches < _MICRO_BATCHES
        return torch.get_rng_state() if looked_at else None

    def reads(self, engine: Any, batch: Any, before: torch.Tensor | None) -> None:
        """Note the micro-batch that a stage of a pipeline has read.

        Parameters
        ----------
        before
            The random state before: what changes it may have made the batch up.
        """
        known = self._engines.get(id(engine))
        if known is None or before is None:
            return
        known.micro_batches += 1
        with left_out():  # it may not be a pair
            inputs, labels = (_data(part) for part in batch[:2])
            ranks_of = sys.modules["deepspeed.comm.comm"].get_all_ranks_from_group
            noted = {
                "engine": known.number,
                "ranks": list(ranks_of(engine.grid.get_pipe_parallel_group())),
                "read": (inputs, labels),
                "drawn": not torch.equal(before, torch.get_rng_state()),
            }
            self._note(STAGE_READS, json.dumps(noted))

    def _write(self, what: str, known: _Engine, **values: Any) -> None:
        about = {"engine": known.number, "group": known.group}
        self._note(what, json.dumps(about | values))


def _buffers(model: torch.nn.Module) -> dict[str, int]:
    """Fingerprints of some of a model's buffers of several elements, by name."""
    found = {
        f"{path}.{name}".lstrip(".")[-_LONGEST:]: buffer
        for path, part in islice(model.named_modules(), _MOST_MODULES)
        for name, buffer in part.named_buffers(recurse=False)
        if buffer.numel() > 1
    }
    names = list(found)
    chosen = {names[at]: on_cpu([found[names[at]]]) for at in choose(len(names))}
    return {name: joint_content(tensors) for name, tensors in chosen.items() if tensors}


def _chosen_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Some of a model's parameters by name."""
    named = list(islice(model.named_parameters(), _MOST_MODULES))
    return {named[at][0][-_LONGEST:]: named[at][1] for at in choose(len(named))}


def _data(part: Any) -> StageData | None:
    """What stands in the inputs or the labels of a micro-batch; None if it is no tensor."""
    tensors = on_cpu(part if isinstance(part, (tuple, list)) else [part])
    if not tensors:
        return None
    flat = [tensor.reshape(-1)[:_ELEMENTS] for tensor in tensors]
    return StageData(
        shapes=", ".join(map(shape_text, tensors)),
        content=joint_content(tensors),
        varied=any(bool((one != one[:1]).any()) for one in flat),
    )
