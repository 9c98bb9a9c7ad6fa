"""Lets a script run as one rank of a job, without the others: a record answers its calls."""

from __future__ import annotations

import builtins
import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType, TracebackType
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ..model.replay import Departure, Difference, InputCall, ReplayEnd, ReplayOutcome
from ..model.user_code import is_user_code
from ..wire.objects import unpack_from_rank
from ..wire.rank_inputs import InputsFile, KeptCall, RandomStates
from . import torch_private
from .interception import GivenCall, Interception

_BACKEND = "ddt_replay"
#: Exceptions that are raised again as themselves; others become a `RuntimeError`.
_ERRORS = ("RuntimeError", "ValueError", "TypeError", "NotImplementedError", "IndexError")
#: How many names of variables the outcome lists.
_MOST_NAMES = 40


class ReplayStopped(BaseException):
    """The replay cannot go on at this line. Code that catches `Exception` does not catch it."""


class Replay:
    """Answers the calls of a script from a record.

    Parameters
    ----------
    path
        The file with the inputs of the rank.
    """

    def __init__(self, path: Path) -> None:
        self._file = InputsFile(path)
        self.begun = self._file.begun
        self._interception = Interception()
        self._served = 0
        self._end: ReplayEnd = "script"
        self._at: InputCall | None = None
        self._departure: Departure | None = None
        self._unequal: dict[Difference, Departure] = {}
        self._reason = ""
        self._names: tuple[str, ...] = ()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Answer the calls of ``torch.distributed`` that are made inside of this context."""
        begun = self.begun
        before = Path.cwd(), torch.get_num_threads(), sys.path[:]
        interception = self._interception
        interception.install()
        interception.handler = self
        interception.replace("init_process_group", self._forming_default_group)
        interception.replace("new_group", self._forming_group)
        interception.replace("get_backend", lambda _: lambda group=None: begun.backend)
        restore = torch_private.replace_store_barrier()
        if _BACKEND not in dist.Backend.backend_list:
            dist.Backend.register_backend(
                _BACKEND, torch_private.lonely_backend(), extended_api=True, devices=["cpu", "cuda"]
            )
        os.chdir(begun.directory)
        torch.set_num_threads(begun.threads)
        sys.path += [entry for entry in begun.sys_path if entry and entry not in sys.path]
        if begun.random is not None:
            _restore(begun.random)
        try:
            yield
        finally:
            interception.remove()
            restore()
            os.chdir(before[0])
            torch.set_num_threads(before[1])
            sys.path[:] = before[2]

    def outcome(self) -> ReplayOutcome:
        """How far it got; to be asked when the script has ended."""
        calls = self._file.calls
        if self._end == "script" and self._served < len(calls):
            departure = Departure(
                number=self._served + 1,
                what="end",
                recorded=calls[self._served].call,
                replayed=None,
            )
            self._departure = departure
        return ReplayOutcome(
            rank=self.begun.rank,
            world_size=self.begun.world_size,
            served=self._served,
            recorded=len(calls),
            end=self._end,
            at=self._at,
            departure=self._departure,
            unequal=tuple(self._unequal.values()),
            reason=self._reason,
            names=self._names,
        )

    def alive(self, main: dict[str, Any], level: TracebackType | None) -> dict[str, Any]:
        """The variables of the script, and those of its functions in which an exception began.

        Those of an inner function hide those of an outer one.
        """
        found = {name: value for name, value in main.items() if not name.startswith("__")}
        while level is not None:
            frame = level.tb_frame
            if is_user_code(frame.f_code.co_filename) and frame.f_locals is not main:
                found |= frame.f_locals
            level = level.tb_next
        code = (ModuleType, FunctionType, BuiltinFunctionType, type)
        shown = [name for name, value in found.items() if not isinstance(value, code)]
        self._names = tuple(shown[-_MOST_NAMES:])
        return found

    # -- groups --------------------------------------------------------------------------------

    def _forming_default_group(self, function: Any) -> Any:
        original = _of_torch(function)

        def form(*args: Any, **kwargs: Any) -> None:
            original(
                _BACKEND,
                rank=self.begun.rank,
                world_size=self.begun.world_size,
                store=dist.HashStore(),
            )

        return form

    def _forming_group(self, function: Any) -> Any:
        original = _of_torch(function)

        def form(ranks: Any = None, *_: Any, **kwargs: Any) -> Any:
            kept = ("use_local_synchronization", "group_desc")
            chosen = {name: kwargs[name] for name in kept if name in kwargs}
            return original(ranks, backend=_BACKEND, **chosen)

        return form

    # -- calls ---------------------------------------------------------------------------------

    def call(self, given: GivenCall, perform: Callable[[], Any]) -> Any:
        """Answer a call of the script or of a library."""
        __tracebackhide__ = True
        kept = self._next(given)
        ended = kept.ended
        if ended is None:
            if self._file.why_ended:
                self._stop("limit", kept.call, self._file.why_ended)
            # DDP waits in C++, which asks the handle for more than a Python class can have
            if given.asynchronous and not given.call.ddp:
                self._served += 1
                return _NeverDone(self, kept.call)
            self._stand(kept.call)
        if ended.not_kept:
            self._stop("not kept", kept.call, ended.not_kept)
        self._served += 1
        if ended.error and not ended.handle:
            raise _error(ended.error, ended.message)
        future: torch.futures.Future[Any] = torch.futures.Future()
        if ended.error:
            future.set_exception(_error(ended.error, ended.message))
        else:
            self._give(given, kept)
            future.set_result(given.received)
        if ended.handle:
            return torch_private.work_of_future(future)
        return ended.returned

    def ddp_call(self, given: GivenCall, perform: Callable[[], Any]) -> Any:
        """Answer a call of DDP."""
        return self.call(given, perform)

    def elsewhere(self, op: str) -> None:
        """Refuse the call of another thread, whose order is not known."""
        raise RuntimeError(f"{op} of another thread cannot be replayed")

    def _next(self, given: GivenCall) -> KeptCall:
        """The recorded call that a call repeats; stops if it is another one."""
        __tracebackhide__ = True
        call, calls = given.call, self._file.calls
        if self._served >= len(calls):
            if self._file.why_ended:
                self._stop("limit", call, self._file.why_ended)
            self._depart("end", None, call)
        kept = calls[self._served]
        what = _difference(kept.call, call)
        if what is not None:
            self._depart(what, kept.call, call)
        number = self._served + 1
        if kept.call.sent != call.sent:
            unequal = Departure(number=number, what="values", recorded=kept.call, replayed=call)
            self._unequal.setdefault("values", unequal)
        states, own = kept.call.random or {}, call.random or {}
        differ = tuple(name for name, value in states.items() if own.get(name, value) != value)
        if differ:
            unequal = Departure(
                number=number,
                what="random states",
                recorded=kept.call,
                replayed=call,
                libraries=differ,
            )
            self._unequal.setdefault("random states", unequal)
        return kept

    def _give(self, given: GivenCall, kept: KeptCall) -> None:
        """Copy what the rank received to where the script expects it."""
        assert kept.ended is not None
        data = self._file.payload(kept)
        if given.objects is not None:
            values = unpack_from_rank(data)
            assert isinstance(values, list)
            given.objects[: len(values)] = values
            return
        at = 0
        described = zip(given.received, kept.ended.dtypes, kept.ended.shapes, strict=True)
        for tensor, name, shape in described:
            dtype = getattr(torch, name)
            count = 1
            for length in shape:
                count *= length
            size = count * dtype.itemsize
            if count:
                part = torch.frombuffer(bytearray(data[at : at + size]), dtype=dtype)
                tensor.data.copy_(part.reshape(shape))  # without a new version, as a backend does
            at += size

    def _depart(self, what: Difference, recorded: InputCall | None, call: InputCall) -> NoReturn:
        __tracebackhide__ = True
        self._departure = Departure(
            number=self._served + 1, what=what, recorded=recorded, replayed=call
        )
        self._stop("departure", call)

    def _stand(self, call: InputCall) -> NoReturn:
        """Stop in the call in which the recorded rank stood when its process ended."""
        __tracebackhide__ = True
        self._stop("stood", call)

    def _stop(self, end: ReplayEnd, call: InputCall, reason: str = "") -> NoReturn:
        __tracebackhide__ = True
        self._end, self._at, self._reason = end, call, reason
        self._interception.handler = None  # what still runs, such as `finally`, gets torch's errors
        raise ReplayStopped(f"call {self._served + 1} is not in the record as it is here")


class _NeverDone(dist.Work):
    """The handle of a collective that had not ended when the recorded process did."""

    def __init__(self, replay: Replay, call: InputCall) -> None:
        super().__init__()
        self._replay, self._call = replay, call

    def wait(self, *_: Any, **__: Any) -> bool:
        """Stop here, as the recorded rank did."""
        self._replay._stand(self._call)

    def is_completed(self) -> bool:
        """It never was."""
        return False


def _of_torch(function: Any) -> Any:
    """A function of torch without what this package has put around it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _difference(recorded: InputCall, call: InputCall) -> Difference | None:
    if (recorded.op, recorded.ddp) != (call.op, call.ddp):
        return "operation"
    if recorded.members != call.members:
        return "group"
    if (recorded.shapes, recorded.output_shapes) != (call.shapes, call.output_shapes):
        return "shapes"
    if recorded.dtypes != call.dtypes:
        return "dtypes"
    return "details" if (recorded.details or {}) != (call.details or {}) else None


def _error(name: str, message: str) -> Exception:
    kind = getattr(dist, name, None)
    if name in _ERRORS:
        kind = getattr(builtins, name)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = RuntimeError
    return kind(message)


def _restore(states: RandomStates) -> None:
    """Set the random generators to recorded states."""
    torch.set_rng_state(torch.tensor(list(bytes.fromhex(states.torch)), dtype=torch.uint8))
    random.setstate((3, states.python, states.python_gauss))
    if states.numpy:
        import numpy

        gauss = states.numpy_gauss
        keys = numpy.array(states.numpy, dtype=numpy.uint32)
        rest = states.numpy_position, int(gauss is not None), gauss or 0.0
        numpy.random.set_state(("MT19937", keys, *rest))
