"""Records which tensors a rank reads before it waits for the call that fills them.

While a handle that the user's code holds is open, a function mode of torch shows the arguments of
each function of torch. Of the calls of one line, the first, second, fourth, eighth and so on are
watched. A rank may read what it has polled for, so a handle that is done is no longer watched.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...model import Position
from ...model.exchanged import EarlyRead
from ...model.operations import Operation
from ...model.user_code import is_user_code
from ...wire.records import CallRecord
from .. import torch_private
from ..user_signals import let_through
from .frames import user_line

#: Lines, handles that are open at once, and tensors of one call.
_MAX_LINES, _MAX_OPEN, _MAX_TENSORS = 64, 64, 64
#: Functions that describe a tensor or make a view of it, and do not read its elements.
_HARMLESS = frozenset(
    """__get__ __set__ __delete__ __len__ __hash__ __getitem__ as_strided chunk contiguous data_ptr
    detach detach_ dim element_size expand expand_as flatten get_device has_names is_complex
    is_contiguous is_floating_point is_leaf is_pinned is_same_size narrow ndimension nelement numel
    permute pin_memory record_stream register_hook requires_grad_ reshape reshape_as select size
    split split_with_sizes squeeze storage storage_offset stride t tensor_split transpose type
    unbind unfold unflatten unsqueeze untyped_storage view view_as movedim swapaxes""".split()
)
#: Functions that only write to their first argument.
_WRITES = frozenset({"zero_", "fill_", "copy_", "__setitem__", "normal_", "uniform_", "resize_"})
#: Collectives whose result only the root has.
_TO_ROOT = frozenset({"reduce"})


@dataclass(slots=True)
class _Open:
    """A call whose handle is open."""

    op: str
    where: Position
    #: Where its result is in memory: first byte, and the one behind the last.
    ranges: list[tuple[int, int]]
    handle: weakref.ref[Any]


class EarlyReadRecord:
    """The reads of this run."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self._mode = _Watching(self)
        #: Whether the mode is active.
        self.entered = False
        self._open: dict[int, _Open] = {}
        self.begin_run()
        self.thread = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.leave()
        self.thread, self.problem = get_ident(), ""
        self.reads: dict[tuple[Position, Position], EarlyRead] = {}
        self._calls: dict[Position, int] = {}

    def issued(
        self,
        record: CallRecord,
        operation: Operation,
        given: Mapping[str, Any],
        handle: Any,
        rank: int,
    ) -> None:
        """Note that an asynchronous call has returned a handle."""
        if get_ident() != self.thread or operation.result is None or record.file is None:
            return
        if operation.root is not None and (record.root == rank) != (record.op in _TO_ROOT):
            return  # the root's own tensor is complete, and others have no result
        try:
            self._begin(record, given.get(operation.result), handle)
        except Exception as error:  # noqa: BLE001  (a tensor may be of any class)
            self._stop(error)

    def _begin(self, record: CallRecord, result: Any, handle: Any) -> None:
        if record.library is not None or not is_user_code(record.file or ""):
            return
        where = Position(
            file=record.file or "", line=record.line or 1, function=record.function or ""
        )
        number = self._calls.get(where, 0) + 1
        if number == 1 and len(self._calls) == _MAX_LINES:
            return
        self._calls[where] = number
        if number & (number - 1) or len(self._open) == _MAX_OPEN:
            return
        ranges = [one for one in map(_range, _tensors(result)) if one is not None]
        if ranges and self._enter():
            self._open[id(handle)] = _Open(record.op, where, ranges, weakref.ref(handle))

    def settled(self, handle: Any) -> None:
        """Note that the user's code has waited for a handle, or knows that it is done."""
        if self.entered:
            self._open.pop(id(handle), None)
            if not self._open:
                self.leave()

    def leave(self) -> None:
        """Watch nothing more, until the next call."""
        self._open.clear()
        if self.entered and torch_private.function_modes() == 1:  # else another one is on top
            self.entered = False
            self._mode.__exit__(None, None, None)

    def _enter(self) -> bool:
        """Whether the mode is active; never on top of another one, which may be left before it."""
        modes = torch_private.function_modes()
        if not self.entered and modes == 0:
            self.entered = True
            self._mode.__enter__()
        return self.entered

    def _stop(self, error: Exception) -> None:
        let_through(error)
        self.leave()
        self.thread, self.problem = None, f"{type(error).__name__}: {error}"

    def calls(self, function: Any, arguments: Iterable[Any]) -> None:
        """Note the arguments of a function of torch that is about to be called."""
        if not self._open or get_ident() != self.thread:
            return
        name = getattr(function, "__name__", "")
        if name in _HARMLESS:
            return
        try:
            read = list(arguments)
            if name in _WRITES:
                del read[:1]
            ranges = [one for one in map(_range, _tensors(read)) if one is not None]
            for key, one in list(self._open.items()):
                found = any(a < end and begin < b for a, b in ranges for begin, end in one.ranges)
                if found and one.handle() is not None:
                    self._note(one)
                if found or one.handle() is None:
                    del self._open[key]  # the mode is left later: it is active now
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def _note(self, one: _Open) -> None:
        where = user_line(sys._getframe())
        if where is not None:
            known = self.reads.get((one.where, where))
            times = known.times + 1 if known is not None else 1
            self.reads[one.where, where] = EarlyRead(
                op=one.op, where=one.where, read_at=where, times=times
            )


class _Watching(TorchFunctionMode):
    """Shows a record what functions of torch are given."""

    def __init__(self, record: EarlyReadRecord) -> None:
        super().__init__()
        self._record = record

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Show the arguments, and call the function."""
        __tracebackhide__ = True
        kwargs = kwargs or {}
        self._record.calls(func, (*args, *kwargs.values()))
        return func(*args, **kwargs)


def _range(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Where the elements of a contiguous tensor on the CPU are in memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.is_cpu:
        return None
    if tensor.layout is not torch.strided or not tensor.is_contiguous() or not tensor.numel():
        return None
    begin = tensor.data_ptr()
    return begin, begin + tensor.numel() * tensor.element_size()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument, or in a list of arguments."""
    waiting, left = [value], _MAX_TENSORS
    while waiting and left:
        one = waiting.pop()
        left -= 1
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            waiting += one[:_MAX_TENSORS]


#: The record of this process.
RECORD = EarlyReadRecord()
