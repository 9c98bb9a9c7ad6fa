"""Records the arguments with which a library trains, which all ranks must give alike."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...wire.records import CallRecord
from ..probes.frames import calling_package
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
    note = _Notes(calls, op, arguments, package)

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        note(self)
        return original(self, *args, **kwargs)

    setattr(owner, method, train)


def record_made(calls: CallLog, owner: Any, op: str, arguments: Any, package: str) -> None:
    """Have a class record what the user has made an object of it with.

    The parameters are those of `record_arguments`. Objects that another library makes are left
    out: it may well work without these arguments.
    """
    if owner is None:
        return  # another version
    original = owner.__init__
    note = _Notes(calls, op, arguments, package)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        original(self, *args, **kwargs)
        if not calling_package(sys._getframe()):
            note(self)

    owner.__init__ = init


class _Notes:
    """Records of the arguments of objects, numbered."""

    def __init__(self, calls: CallLog, op: str, arguments: Any, package: str) -> None:
        self._calls, self._op, self._arguments, self._package = calls, op, arguments, package
        self._number = 0

    def __call__(self, one: Any) -> None:
        __tracebackhide__ = True
        self._number += 1
        try:
            given = json.dumps(self._arguments(one))
        except Exception as error:  # noqa: BLE001  (another version)
            let_through(error)
            return
        record = CallRecord(op=self._op, kind="setup", number=self._number, detail=given)
        self._calls.record(record, lambda: None, self._package)
