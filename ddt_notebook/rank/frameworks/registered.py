"""The frameworks that ranks know."""

from __future__ import annotations

from ..probes.calls import CallLog
from .accelerate import Accelerate
from .deepspeed import DeepSpeed
from .framework import Framework
from .tensorflow import TensorFlow

FRAMEWORKS: tuple[Framework, ...] = (Accelerate(), DeepSpeed())
#: Those for which a session prepares its ranks, by their names in `model.frameworks`.
PREPARED: dict[str, type[Framework]] = {"tensorflow": TensorFlow}


def install(calls: CallLog) -> None:
    """Prepare for an import of each framework; see `Framework.install`."""
    for framework in FRAMEWORKS:
        framework.install(calls)


def begin_script() -> None:
    """Forget what an earlier script has left in this process."""
    for framework in FRAMEWORKS:
        framework.begin_script()


def forget_groups() -> list[str]:
    """Forget the groups that have ended; returns notes for the user."""
    return [note for framework in FRAMEWORKS for note in framework.forget_groups()]


def take_notes() -> list[str]:
    """Notes for the user since the last call."""
    return [note for framework in FRAMEWORKS for note in framework.take_notes()]
