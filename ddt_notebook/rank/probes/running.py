"""Answers questions about the user's objects while the user's code runs.

The monitor's thread looks at devices, shapes, sizes and data loaders. It reads no content of a
tensor and asks nothing of a GPU, since both may have to wait for the GPU: a hung job would wait
forever. Parameters change while a rank trains, so the main thread reads them, at the end of an
optimizer step that all ranks are asked for; the monitor reads them only in a job that stands still.
Nothing here communicates with other ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch

from ...model import Observation
from ...wire.messages import AskRunning, RunningAnswer
from ..frameworks import registered as frameworks
from ..training_thread import CURRENT
from . import memory, parity, partition, placement, training
from .frames import local_variables, user_frames

#: Frames of the user's code whose variables are searched, and variables of each.
_FRAMES, _VARIABLES = 16, 500


class RunningProbes:
    """The questions that this process answers while it trains."""

    def __init__(self) -> None:
        self._taken: tuple[int, RunningAnswer] | None = None  # and at the end of which step

    def answer(self, rank: int, request: AskRunning) -> RunningAnswer:
        """Run probes; called by a monitor's thread."""
        record = training.RECORD
        failed: dict[str, str] = {}
        observed: dict[str, Any] = {}
        if request.at_step is not None:
            if self._taken is not None and self._taken[0] == request.at_step:
                return self._taken[1]
            record.at_end_of(request.at_step, self._take(rank, request.at_step))
        elif request.probes:
            names = variables(CURRENT.frame())
            for name in request.probes:
                try:
                    observed[name] = _PROBES[name](rank, names)
                except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
                    failed[name] = f"{type(error).__name__}: {error}"
            observed["agreements"] = frameworks.given(rank)
        return RunningAnswer(
            observed=Observation(rank=rank, **observed) if observed else None,
            failed=failed,
            steps=record.steps,
            stepping=record.stepping,
        )

    def _take(self, rank: int, step: int) -> Callable[[], None]:
        def take() -> None:
            try:
                names = variables(sys._getframe())
                seen = Observation(
                    rank=rank,
                    parity=parity.observe(rank, names, sampled=True),
                    memory=memory.of_gpu(memory.observe_running(rank, names)),
                )
                self._taken = step, RunningAnswer(observed=seen, steps=step)
            except Exception as error:  # noqa: BLE001
                failed = {"parity": f"{type(error).__name__}: {error}"}
                self._taken = step, RunningAnswer(failed=failed, steps=step)

        return take


_PROBES: Mapping[str, Callable[[int, Mapping[str, Any]], object]] = {
    "placement": placement.observe,
    "memory": memory.observe_running,
    "partition": partition.observe,
    "parity": lambda rank, names: parity.observe(rank, names, sampled=True),
}


def variables(frame: FrameType | None) -> dict[str, Any]:
    """The user's variables on a stack, those of the outermost frame first.

    A name that an inner frame uses for another object follows the name of its function. Results of
    computations are left out: a reference to one would keep its whole graph in memory.
    """
    found: dict[str, Any] = {}
    main = vars(sys.modules["__main__"])
    _add(found, "", main)
    for user in list(user_frames(frame))[:_FRAMES][::-1]:
        if user.f_globals is not main:
            _add(found, f"{user.f_globals.get('__name__', '')}.", user.f_globals)
        local = local_variables(user)
        if local is not user.f_globals:
            _add(found, f"{user.f_code.co_name}.", local)
    return found


def _add(found: dict[str, Any], prefix: str, names: Mapping[str, Any]) -> None:
    for name, value in list(names.items())[:_VARIABLES]:
        if name.startswith("_") or (isinstance(value, torch.Tensor) and not value.is_leaf):
            continue
        if name not in found:
            found[name] = value
        elif found[name] is not value and prefix:
            found.setdefault(f"{prefix}{name}", value)
