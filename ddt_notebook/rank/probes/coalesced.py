"""Records collectives that are issued as one: within the context, torch only collects them."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

import torch.distributed as dist

from ...wire.records import CallRecord
from .. import torch_private

#: What torch collects; it issues any other call at once.
_COLLECTED = frozenset(
    {
        *("all_reduce", "all_gather_into_tensor", "all_gather_single"),
        *("reduce_scatter_tensor", "reduce_scatter_single"),
    }
)  #: Of torch's context manager.
_PARAMETERS = ("group", "device", "async_ops")


class Log(Protocol):
    """What is used here of a `calls.CallLog`."""

    def recording(self) -> bool:
        """Whether a call that is made now is recorded."""

    def make(
        self, function: Any, args: Any, kwargs: Any, record: CallRecord, process_group: Any
    ) -> Any:
        """Make a call, and record it."""


class Coalesced:
    """The collectives that are being collected, by their groups.

    Parameters
    ----------
    log
        Records the call that issues them.
    most_tensors
        Of how many tensors a record has the shapes.
    """

    def __init__(self, log: Log, most_tensors: int) -> None:
        self.log, self.most_tensors = log, most_tensors
        self.collected: dict[Any, list[CallRecord]] = {}

    def install(self) -> None:
        """Take the place of torch's context manager."""
        original = torch_private.coalescing_manager
        if original is None:
            return

        @functools.wraps(original)
        def manager(*args: Any, **kwargs: Any) -> _Manager:
            group, _, asynchronous = (*args, *map(kwargs.get, _PARAMETERS[len(args) :]))
            return _Manager(self, original(*args, **kwargs), group, bool(asynchronous))

        torch_private.replace_coalescing_manager(manager)

    def collects(self, process_group: Any, record: CallRecord) -> bool:
        """Whether torch only collects a call; then its record is kept until the context ends."""
        collected = self.collected.get(process_group)
        if collected is None or record.op not in _COLLECTED:
            return False
        collected.append(record)
        return True


class _Manager:
    def __init__(self, coalesced: Coalesced, inner: Any, group: Any, asynchronous: bool) -> None:
        self._coalesced, self._inner, self._asynchronous = coalesced, inner, asynchronous
        self._group = dist.group.WORLD if group is None else group
        self._handles: Any = None

    def __enter__(self) -> Any:
        self._handles = self._inner.__enter__()
        self._coalesced.collected[self._group] = []
        return self._handles

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        level: TracebackType | None,
    ) -> Any:
        __tracebackhide__ = True
        records = self._coalesced.collected.pop(self._group, [])
        log = self._coalesced.log
        if error is not None or not records or not log.recording():
            return self._inner.__exit__(kind, error, level)

        def issue() -> Any:
            self._inner.__exit__(None, None, None)
            return self._handles.works[-1] if self._asynchronous else None

        log.make(issue, (), {}, self._as_one(records), self._group)
        return None

    def _as_one(self, records: list[CallRecord]) -> CallRecord:
        most = self._coalesced.most_tensors
        return replace(
            records[0],
            shapes=tuple(shape for one in records for shape in one.shapes)[:most],
            dtypes=tuple(dtype for one in records for dtype in one.dtypes)[:most],
            output_shapes=tuple(s for one in records for s in one.output_shapes)[:most],
            asynchronous=self._asynchronous,
        )
