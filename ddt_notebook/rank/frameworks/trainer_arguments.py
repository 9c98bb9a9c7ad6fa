"""Records the arguments with which a library trains, which all ranks must give alike."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...wire.records import CallRecord
from ..user_signals import let_through

if TYPE_CHECKING:
    from ..probes.calls import CallLog


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
        try:
            given = json.dumps(arguments(self))
        except Exception as error:  # noqa: BLE001  (another version)
            let_through(error)
        else:
            record = CallRecord(op=op, kind="setup", number=trained, reduce_op=given)
            calls.record(record, lambda: None, package)
        return original(self, *args, **kwargs)

    setattr(owner, method, train)
