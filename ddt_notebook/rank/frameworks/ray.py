"""Lets a worker of Ray Train record the thread in which it trains, and where it meets the others.

Ray ends a worker's process from outside, after the training function has returned or raised.
``ray.train.report`` and Ray's own collectives wait in an actor until all workers have come there,
and so does a worker that asks for the first batch of its shard of a data set.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.ray import BARRIER, BATCHES, BROADCAST, GROUP, REPORT, group_of
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
#: The method of that class which gives a worker its shard of a data set, by the name that its
#: argument holds; the module and the class of a shard, and the method that all ways to iterate use.
_SHARD_OF, _SHARD_NAME = "get_dataset_shard", "dataset_name"
_SHARDS = "ray.data._internal.iterator.stream_split_iterator"
_SHARD_CLASS, _ITERATES = "StreamSplitDataIterator", "_iter_batches"
_END = object()
#: By which a collective of Ray's own names what the user called.
_NAMED_BY = "caller_method_name"
_PACKAGE = "ray/"


class RayTrain(Framework):
    """Ray Train."""

    def __init__(self) -> None:
        self._calls: CallLog | None = None
        self._members: tuple[int, ...] = ()
        #: The names of the data sets whose shards this worker was given.
        self._shards: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def watch(self, calls: CallLog) -> None:
        """Record the training function's thread, and where it waits for the other workers."""
        self._calls = calls
        AfterImport(_MODULE, _watch).install()
        AfterImport(_COLLECTIVES, self._watch_collectives).install()
        AfterImport(_CONTEXT, self._watch_context).install()
        AfterImport(_SHARDS, self._watch_shards).install()

    def _watch_collectives(self, module: ModuleType) -> None:
        for name, op in (("barrier", BARRIER), ("broadcast_from_rank_zero", BROADCAST)):
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, self._meeting(original, op))

    def _watch_context(self, module: ModuleType) -> None:
        context = getattr(module, _CONTEXT_CLASS, None)
        meets, gives = getattr(context, _MEETS, None), getattr(context, _SHARD_OF, None)
        if context is not None and meets is not None:
            setattr(context, _MEETS, self._meeting(meets, REPORT))
        if context is None or gives is None:
            return

        @functools.wraps(gives)
        def give(self_: Any, dataset_info: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            shard = gives(self_, dataset_info, *args, **kwargs)
            with left_out():  # another version of Ray
                self._shards[shard] = str(getattr(dataset_info, _SHARD_NAME, ""))
            return shard

        setattr(context, _SHARD_OF, give)

    def _watch_shards(self, module: ModuleType) -> None:
        shards = getattr(module, _SHARD_CLASS, None)
        original = getattr(shards, _ITERATES, None)
        if shards is None or original is None:
            return

        @functools.wraps(original)
        def iterate(self_: Any, *args: Any, **kwargs: Any) -> Any:
            batches = original(self_, *args, **kwargs)
            name = self._shards.get(self_)
            return batches if name is None else _Batches(batches, self, group_of(name))

        setattr(shards, _ITERATES, iterate)

    def _meeting(self, original: Any, op: str) -> Any:
        """A function in which all workers wait for each other, which records that."""

        @functools.wraps(original)
        def meet(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            made = functools.partial(original, *args, **kwargs)
            return self.meet(kwargs.get(_NAMED_BY, op), GROUP, made)

        return meet

    def meet(self, op: str, group: str, function: Callable[[], Any]) -> Any:
        """Call a function in which all workers wait for each other, and record it."""
        __tracebackhide__ = True
        members = self._workers() if CURRENT.is_current else ()
        if self._calls is None or not members:
            return function()
        record = CallRecord(op=op, group=Group(group, members))
        return self._calls.record(record, function, _PACKAGE)

    def _workers(self) -> tuple[int, ...]:
        """The ranks of the workers that train together; empty if that is not known."""
        if not self._members:
            with left_out():  # another version of Ray
                context = getattr(sys.modules[_CONTEXT], _CURRENT)()
                self._members = tuple(range(context.get_world_size()))
        return self._members


class _Batches:
    """The batches of a shard; all workers wait for each other before the first one of an epoch."""

    def __init__(self, batches: Iterable[Any], workers: RayTrain, group: str) -> None:
        self._batches, self._workers, self._group = batches, workers, group

    def __iter__(self) -> Iterator[Any]:
        __tracebackhide__ = True
        batches = iter(self._batches)
        first = self._workers.meet(BATCHES, self._group, functools.partial(next, batches, _END))
        if first is not _END:
            yield first
            del first
            yield from batches


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
