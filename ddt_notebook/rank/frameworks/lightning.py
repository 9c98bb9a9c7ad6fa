"""The arguments with which Lightning's Trainer trains, which all ranks must give alike."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.lightning import ARGUMENTS, FIT
from ..after_import import AfterImport
from .framework import Framework
from .transformers import read, record_arguments

if TYPE_CHECKING:
    from ..probes.calls import CallLog


class Lightning(Framework):
    """Lightning's Trainer; its calls pass through ``torch.distributed``."""

    def watch(self, calls: CallLog) -> None:
        """Record the arguments of each training, once Lightning's Trainer is imported."""
        for name in ("lightning/pytorch", "pytorch_lightning"):
            watch = functools.partial(_watch, calls, f"{name}/")
            AfterImport(f"{name.replace('/', '.')}.trainer.trainer", watch).install()


def _watch(calls: CallLog, package: str, module: ModuleType) -> None:
    trainer = getattr(module, "Trainer", None)
    record_arguments(calls, trainer, "fit", FIT, _arguments, package)


def _arguments(trainer: Any) -> dict[str, str]:
    return read(trainer, ARGUMENTS)
