"""The line or the callback that ends ``fit`` of Keras 3, which trains on torch."""

from __future__ import annotations

import functools
import sys
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.keras import STOPS
from ...model.user_code import is_user_code
from ...wire.records import CallRecord
from ..after_import import AfterImport
from ..probes.frames import local_variables
from .framework import Framework

if TYPE_CHECKING:
    from ..probes.calls import CallLog

_FLAG, _PACKAGE = "stop_training", "keras/"
#: Keras' and torch's classes assign attributes in methods of their own.
_ASSIGNS = "__setattr__"


class Keras(Framework):
    """Keras' ``fit``; what the user's ``train_step`` sends passes through ``torch.distributed``."""

    def watch(self, calls: CallLog) -> None:
        """Record who ends the loop of ``fit``, once Keras is imported."""
        watch = functools.partial(_watch, calls)
        AfterImport("keras.src.trainers.trainer", watch).install()


def _watch(calls: CallLog, module: ModuleType) -> None:
    """Record which line sets the flag that ends the loop, which no other rank may set."""
    trainer = getattr(module, "Trainer", None)
    if trainer is None or _FLAG in vars(trainer):
        return  # another version
    number = 0

    def assign(model: Any, value: Any) -> None:
        nonlocal number
        __tracebackhide__ = True
        before = vars(model).get(_FLAG)
        vars(model)[_FLAG] = value
        if value and not before:
            number += 1
            record = CallRecord(op=STOPS, kind="setup", number=number)
            record.detail = _library_class(sys._getframe(1))
            calls.record(record, lambda: None, _PACKAGE)

    trainer.stop_training = property(lambda model: vars(model).get(_FLAG, False), assign)


def _library_class(frame: FrameType | None) -> str | None:
    """The class of the library's object that assigns an attribute; None if the user's code does."""
    while frame is not None and frame.f_code.co_name == _ASSIGNS:
        frame = frame.f_back
    if frame is None or is_user_code(frame.f_code.co_filename):
        return None
    owner = local_variables(frame).get("self")
    return None if owner is None else type(owner).__name__
