"""Notes that a rank spawns further ranks, and refuses to fork them.

Forked ones would wait for each other for ever. Spawned ones work if the ranks do not use one port.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import torch.multiprocessing

from .probes.frames import user_line

REFUSED = (
    "this cell already runs on every rank, and a rank cannot start further ranks: call the "
    'function itself; in Lightning, use strategy="ddp"'
)
#: What to tell about the processes that were spawned in this run.
_spawned: list[str] = []


def take_notes() -> tuple[str, ...]:
    """The notes since the last call; each rank has the same ones."""
    notes = tuple(dict.fromkeys(_spawned))
    _spawned.clear()
    return notes


def refuse(world_size: int) -> None:
    """Have ``start_processes`` raise an error when a rank of several would fork its function.

    Lightning's ``strategy="ddp_notebook"`` calls it, to make ranks of a notebook's own process. The
    forked processes would find a rank's number, and a port that is taken, in their environment.
    """
    if world_size == 1:
        return
    # as an attribute of its package, this module is hidden by the function of the same name
    spawn = importlib.import_module("torch.multiprocessing.spawn")
    original = spawn.start_processes

    @functools.wraps(original)
    def start_processes(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        # fn, args, nprocs, join, daemon, start_method
        method = kwargs.get("start_method", args[5] if len(args) > 5 else "spawn")
        if method == "fork":
            raise RuntimeError(REFUSED)
        nprocs = kwargs.get("nprocs", args[2] if len(args) > 2 else 1)
        where = user_line(sys._getframe())
        if where is not None and nprocs > 1:
            _spawned.append(
                f"{where.label} runs on each of the {world_size} ranks, and each spawns "
                f"{nprocs} processes there, {world_size * nprocs} in all: call the function "
                "itself, or run such a script on one rank only"
            )
        return original(*args, **kwargs)

    for module in (torch.multiprocessing, spawn):
        setattr(module, "start_processes", start_processes)  # noqa: B010
