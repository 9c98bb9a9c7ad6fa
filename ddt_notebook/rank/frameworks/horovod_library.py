"""What is used of Horovod's library for torch, and how its functions are replaced.

All functions of ``horovod.torch`` pass through its library ``mpi_lib_v2``. There, a call only
begins an operation, and a rank waits by its handle.

Checked with Horovod 0.28.1. Names of its library stand here only.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ...model.frameworks.horovod import SETTINGS
from ...model.user_code import is_user_code
from ..probes import timeline, training

_PROCESS_SETS = "_get_process_set_ids_and_ranks"
_REDUCTIONS = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


class Library:
    """What is used of Horovod, whose version decides where it is."""

    def __init__(
        self, operations: Any, join: Callable[..., int], poll: Callable[[int], int]
    ) -> None:
        self._operations, self._basics = operations, operations._basics
        self._join = join
        # each call asks: Horovod's own method takes four times as long
        library = getattr(self._basics, "MPI_LIB_CTYPES", None)
        #: Whether ``hvd.init()`` was called.
        self.is_initialised: Callable[[], Any] = getattr(
            library, "horovod_is_initialized", self._basics.is_initialized
        )
        #: Whether an operation is complete, by its handle.
        self.is_complete = poll
        names = {getattr(self._basics, name): name.upper() for name in _REDUCTIONS}
        self.reduction: Callable[[int], str | None] = names.get

    def initialise(self) -> None:
        self._operations.init()

    def shut_down(self) -> None:
        self._operations.shutdown()

    def begin_join(self) -> int:
        """Take part in ``hvd.join()`` without a record; returns the handle."""
        return self._join(torch.tensor(-1, dtype=torch.int), -1)

    def place(self) -> tuple[int, int]:
        """The number of this rank, and how many ranks there are."""
        return self._operations.rank(), self._operations.size()

    def process_sets(self) -> dict[int, list[int]]:
        """Ranks of each process set, by its number."""
        return dict(getattr(self._basics, _PROCESS_SETS)())


class Rank(Protocol):
    """What records the calls of the library; see `Horovod`."""

    def begun(self, op: str, function: Callable[..., int], args: Sequence[Any]) -> int: ...

    def polled(self, handle: int, complete: int) -> int: ...

    def waited(
        self, handle: int, poll: Callable[[int], int], wait: Callable[[int], Any]
    ) -> Any: ...

    def initialised(
        self, members: Sequence[int], function: Callable[[], Any], plain: bool
    ) -> Any: ...

    def shut_down(self, function: Callable[[], Any]) -> Any: ...

    def made_optimizer(self, settings: dict[str, str]) -> None: ...


def install(rank: Rank) -> Library:
    """Replace the functions of Horovod's library for torch, and its initialisation."""
    import horovod.torch as package
    from horovod.torch import functions, mpi_ops

    library, basics = mpi_ops.mpi_lib, mpi_ops._basics
    poll, wait = library.horovod_torch_poll, library.horovod_torch_wait_and_clear
    init, join, before = basics.init, library.horovod_torch_join, "horovod_torch_"
    shutdown = basics.shutdown

    def begins(op: str, original: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(original)
        def call(*args: Any) -> int:
            __tracebackhide__ = True
            return rank.begun(op, original, args)

        return call

    for name in dir(library):
        op, found, _ = name.removeprefix(before).partition("_async_")
        if name.startswith(before) and (found or op in ("join", "barrier")):
            setattr(library, name, begins(op, getattr(library, name)))

    @functools.wraps(wait)
    def waits(handle: int) -> Any:
        __tracebackhide__ = True
        return rank.waited(handle, poll, wait)

    @functools.wraps(poll)
    def polls(handle: int) -> int:
        return rank.polled(handle, poll(handle))

    @functools.wraps(init)
    def initialises(comm: Any = None, process_sets: Any = None) -> Any:
        __tracebackhide__ = True
        members = comm if isinstance(comm, list) else ()
        plain = comm is None and process_sets is None
        return rank.initialised(members, lambda: init(comm, process_sets), plain)

    @functools.wraps(shutdown)
    def ends(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        # Horovod's elastic loop begins anew on all ranks, and so does a session
        if is_user_code(sys._getframe(2).f_code.co_filename):
            return rank.shut_down(lambda: shutdown(*args, **kwargs))
        return shutdown(*args, **kwargs)

    known = Library(mpi_ops, join, poll)
    _watch_optimizers(rank, known)
    broadcast_state = functions.broadcast_optimizer_state

    @functools.wraps(broadcast_state)
    def broadcasts_state(*args: Any, **kwargs: Any) -> Any:
        with training.RECORD.paused():  # it makes a step, to get a state, and takes it back
            return broadcast_state(*args, **kwargs)

    functions.broadcast_optimizer_state = broadcasts_state
    package.broadcast_optimizer_state = broadcasts_state
    library.horovod_torch_wait_and_clear = waits
    timeline.WAITERS.append((library, "horovod_torch_wait_and_clear"))
    library.horovod_torch_poll = polls
    basics.init, basics.shutdown = initialises, ends
    return known


def _watch_optimizers(rank: Rank, library: Library) -> None:
    """Note the settings of each ``DistributedOptimizer``."""
    modules = [sys.modules.get(name) for name in ("horovod.torch", "horovod.torch.optimizer")]
    makes = getattr(modules[0], "DistributedOptimizer", None)
    if makes is None:
        return

    @functools.wraps(makes)
    def makes_optimizer(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        made = makes(*args, **kwargs)
        # the ranks of a process set may well have settings of their own
        if getattr(getattr(made, "process_set", None), "process_set_id", 0) == 0:
            rank.made_optimizer(_settings(made, library))
        return made

    for module in modules:
        if module is not None:
            module.DistributedOptimizer = makes_optimizer  # type: ignore[attr-defined]


def _settings(made: Any, library: Library) -> dict[str, str]:
    """What all ranks have to give a distributed optimizer alike, as text."""
    settings = {name: getattr(made, name, None) for name in SETTINGS}
    compression = vars(made).get("_compression")
    settings["compression"] = getattr(compression, "__name__", None)
    if settings["op"] is not None:
        settings["op"] = library.reduction(settings["op"])
    return {name: str(value) for name, value in settings.items() if value is not None}
