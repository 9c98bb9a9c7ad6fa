"""Lets a worker of Ray Train record the thread in which it trains, and when that has ended.

Ray ends a worker's process from outside, after the training function has returned or raised.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


class RayTrain(Framework):
    """Ray Train."""

    def watch(self, calls: CallLog) -> None:
        """Record the training function's thread."""
        AfterImport(_MODULE, _watch).install()


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
