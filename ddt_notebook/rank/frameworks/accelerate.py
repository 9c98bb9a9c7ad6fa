"""How Accelerate finds the ranks of a session, what it keeps, and its launchers of notebooks."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.accelerate import ARGUMENTS, MADE, PROCESSES
from ..after_import import AfterImport
from ..forked_ranks import REFUSED
from .framework import Framework
from .trainer_arguments import read, record_made

if TYPE_CHECKING:
    from ..probes.calls import CallLog

#: Functions that fork ranks. They take a port first, which on several ranks one of them gets, and
#: the others raise errors of their own.
_LAUNCHERS = ("notebook_launcher", "debug_launcher")


#: With it, ``accelerate launch --cpu`` has processes train together that have no GPU. Without it,
#: each of them trains as if it were the only one, unless its program asks for the CPU.
_USE_CPU = "ACCELERATE_USE_CPU"


class Accelerate(Framework):
    """Hugging Face Accelerate."""

    def watch(self, calls: CallLog) -> None:
        """Record the arguments of each Accelerator that the user makes."""
        AfterImport("accelerate.accelerator", functools.partial(_watch, calls)).install()

    def install(self) -> None:
        """Have ranks without GPUs train together, and refuse launchers in the same words."""
        AfterImport("accelerate.state", _train_on_cpus).install()
        AfterImport("accelerate.launchers", _refuse).install()
        AfterImport("accelerate.data_loader", _follow_loops).install()

    def begin_script(self) -> None:
        """Forget how Accelerate found this process launched: that group ended with its script.

        Accelerate keeps this for the life of a process, in a dictionary on each of its state
        classes.
        """
        state = sys.modules.get("accelerate.state")
        for name in ("PartialState", "AcceleratorState", "GradientState"):
            kept = getattr(getattr(state, name, None), "_shared_state", None)
            if isinstance(kept, dict):
                kept.clear()


def _train_on_cpus(_module: ModuleType) -> None:
    torch = sys.modules["torch"]  # Accelerate has imported it
    if not torch.cuda.is_available():  # simulated ones are available, too
        os.environ.setdefault(_USE_CPU, "true")


def _watch(calls: CallLog, module: ModuleType) -> None:
    made = getattr(module, "Accelerator", None)
    record_made(calls, made, MADE, lambda one: read(one, (*ARGUMENTS, PROCESSES)), "accelerate/")


def _follow_loops(module: ModuleType) -> None:
    """Note when the program has used a batch: Accelerate's loader reads one batch ahead of it."""
    from ..probes import loaders  # imports torch, as Accelerate has done

    loader = getattr(module, "DataLoaderShard", None)
    original = getattr(loader, "__iter__", None)
    if loader is None or original is None:
        return  # another version

    @functools.wraps(original)
    def iterate(self: Any) -> Iterator[Any]:
        __tracebackhide__ = True
        record, current, given = loaders.RECORD, None, 0
        batches = iter(original(self))
        while True:
            if current is not None:
                current.uses(sys._getframe(1))
            record.reading_ahead = True
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                record.reading_ahead = False
            given += 1
            if current is None:
                current = record.latest
            if current is not None:
                current.hands_on(given)
            yield batch

    loader.__iter__ = iterate


def _refuse(module: ModuleType) -> None:
    for name in _LAUNCHERS:
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _refusing(original))


def _refusing(launch: Any) -> Any:
    @functools.wraps(launch)
    def refuse_several(
        function: Any, args: Any = (), num_processes: Any = None, **more: Any
    ) -> Any:
        __tracebackhide__ = True
        if num_processes == 1:  # the function is called in this process
            return launch(function, args, num_processes, **more)
        raise RuntimeError(REFUSED)

    return refuse_several
