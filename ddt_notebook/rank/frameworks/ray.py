"""Lets a worker of Ray Train record the thread in which it trains, and where it meets the others.

Ray ends a worker's process from outside, after the training function has returned or raised.
``ray.train.report`` and Ray's own collectives wait in an actor until all workers have come there.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.ray import BARRIER, BROADCAST, GROUP, REPORT
from ...wire.records import CallRecord, Group
from ..after_import import AfterImport
from ..tracebacks import hide_own_frames
from ..training_thread import CURRENT
from ..user_signals import left_out
from .framework import Framework

if TYPE_CHECKING:
    from ..probes.calls import CallLog

#: The module that starts the thread, the class in it whose ``run`` is given the function, and what
#: leaves out Ray's frames of an exception, which it counts.
_MODULE, _CLASS = "ray.train.v2._internal.execution.worker_group.thread_runner", "ThreadRunner"
_SHOWS = "construct_user_exception_with_traceback"
#: The module with Ray's own collectives; the one with the class of which a method is called for
#: each report, in which the workers agree on a checkpoint's name; and what returns its instance.
_COLLECTIVES, _CONTEXT = (
    f"ray.train.v2._internal.execution.{name}" for name in ("collective_impl", "context")
)
_CONTEXT_CLASS, _MEETS, _CURRENT = (
    "TrainContext",
    "_sync_checkpoint_dir_name_across_ranks",
    "get_train_context",
)
#: By which a collective of Ray's own names what the user called.
_NAMED_BY = "caller_method_name"
_PACKAGE = "ray/"


class RayTrain(Framework):
    """Ray Train."""

    def __init__(self) -> None:
        self._calls: CallLog | None = None
        self._members: tuple[int, ...] = ()

    def watch(self, calls: CallLog) -> None:
        """Record the training function's thread, and where it waits for the other workers."""
        self._calls = calls
        AfterImport(_MODULE, _watch).install()
        AfterImport(_COLLECTIVES, self._watch_collectives).install()
        AfterImport(_CONTEXT, self._watch_reports).install()

    def _watch_collectives(self, module: ModuleType) -> None:
        for name, op in (("barrier", BARRIER), ("broadcast_from_rank_zero", BROADCAST)):
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, self._meeting(original, op))

    def _watch_reports(self, module: ModuleType) -> None:
        context = getattr(module, _CONTEXT_CLASS, None)
        original = getattr(context, _MEETS, None)
        if context is not None and original is not None:
            setattr(context, _MEETS, self._meeting(original, REPORT))

    def _meeting(self, original: Any, op: str) -> Any:
        """A function in which all workers wait for each other, which records that."""

        @functools.wraps(original)
        def meet(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            members = self._workers() if CURRENT.is_current else ()
            if self._calls is None or not members:
                return original(*args, **kwargs)
            record = CallRecord(op=kwargs.get(_NAMED_BY, op), group=Group(GROUP, members))
            return self._calls.record(record, lambda: original(*args, **kwargs), _PACKAGE)

        return meet

    def _workers(self) -> tuple[int, ...]:
        """The ranks of the workers that train together; empty if that is not known."""
        if not self._members:
            with left_out():  # another version of Ray
                context = getattr(sys.modules[_CONTEXT], _CURRENT)()
                self._members = tuple(range(context.get_world_size()))
        return self._members


def _watch(module: ModuleType) -> None:
    runner, shows = getattr(module, _CLASS, None), getattr(module, _SHOWS, None)
    run = getattr(runner, "run", None)
    if runner is None or run is None or shows is None:
        return  # another version of Ray

    @functools.wraps(run)
    def run_recorded(self: Any, target: Any) -> Any:
        return run(self, functools.wraps(target)(functools.partial(CURRENT.run, target)))

    @functools.wraps(shows)
    def show(error: BaseException, *args: Any, **kwargs: Any) -> Any:
        with left_out():  # an exception of the user's own kind
            hide_own_frames(error)
        return shows(error, *args, **kwargs)

    runner.run = run_recorded
    setattr(module, _SHOWS, show)
