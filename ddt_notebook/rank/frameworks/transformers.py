"""The arguments with which transformers' Trainer trains, which all ranks must give alike."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING

from ...model.frameworks.transformers import ARGUMENTS, TRAIN
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


def _watch(calls: CallLog, module: ModuleType) -> None:
    record_arguments(
        calls,
        getattr(module, "Trainer", None),
        "train",
        TRAIN,
        lambda trainer: read(getattr(trainer, "args", None), ARGUMENTS),
        "transformers/",
    )
