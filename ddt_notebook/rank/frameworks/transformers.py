"""The arguments with which transformers' Trainer trains, which all ranks must give alike."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.accelerate import PROCESSES
from ...model.frameworks.transformers import ARGUMENTS, STOPS, TRAIN
from ...wire.records import CallRecord
from ..after_import import AfterImport
from .framework import Framework
from .trainer_arguments import read, record_arguments

if TYPE_CHECKING:
    from ..probes.calls import CallLog


class Transformers(Framework):
    """The Trainer; its calls pass through ``torch.distributed``."""

    def watch(self, calls: CallLog) -> None:
        """Record the arguments of each training, once transformers' Trainer is imported."""
        watch = functools.partial(_watch, calls)
        AfterImport("transformers.trainer", watch).install()
        watch = functools.partial(_watch_flags, calls)
        AfterImport("transformers.trainer_callback", watch).install()


def _watch(calls: CallLog, module: ModuleType) -> None:
    record_arguments(
        calls,
        getattr(module, "Trainer", None),
        "train",
        TRAIN,
        _arguments,
        "transformers/",
    )


def _arguments(trainer: Any) -> dict[str, str]:
    given = getattr(trainer, "args", None)
    counted = read(given, ("world_size",))  # so it calls what Accelerate counts
    count = {PROCESSES: counted["world_size"]} if counted else {}
    return read(given, ARGUMENTS) | count


def _watch_flags(calls: CallLog, module: ModuleType) -> None:
    """Record which line sets a flag that ends a loop, which no other rank may set."""
    control = getattr(module, "TrainerControl", None)
    if control is None:
        return  # another version
    original, number = control.__setattr__, 0

    def assign(self: Any, name: str, value: Any) -> None:
        nonlocal number
        __tracebackhide__ = True
        if name in STOPS and value and not getattr(self, name, True):
            number += 1
            record = CallRecord(op=STOPS[name], kind="setup", number=number)
            calls.record(record, lambda: None, "transformers/")
        original(self, name, value)

    control.__setattr__ = assign
