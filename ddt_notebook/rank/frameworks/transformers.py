"""The arguments with which transformers' Trainer trains, which all ranks must give alike."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.transformers import ARGUMENTS, TRAIN
from ...wire.records import CallRecord
from ..after_import import AfterImport
from .framework import Framework

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


def read(owner: Any, names: Iterable[str]) -> dict[str, str]:
    """The attributes of an object that are there, as text."""
    values = ((name, getattr(owner, name, None)) for name in names)
    return {
        name: str(getattr(value, "value", value)) for name, value in values if value is not None
    }


def record_arguments(
    calls: CallLog, owner: Any, method: str, op: str, arguments: Any, package: str
) -> None:
    """Have a method of a class record what it trains with, before it does.

    Parameters
    ----------
    op
        The name of the record.
    arguments
        Returns the arguments of the object whose method was called.
    package
        See `CallLog.record`.
    """
    original = getattr(owner, method, None)
    if original is None:
        return  # another version
    trained = 0

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal trained
        __tracebackhide__ = True
        trained += 1
        record = CallRecord(op=op, kind="setup", number=trained)
        with contextlib.suppress(Exception):  # another version
            record.reduce_op = json.dumps(arguments(self))
            calls.record(record, lambda: None, package)
        return original(self, *args, **kwargs)

    setattr(owner, method, train)
