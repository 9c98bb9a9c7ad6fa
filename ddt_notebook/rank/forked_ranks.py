"""Refuses to fork further ranks out of a rank, where they would wait for each other for ever."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch.multiprocessing


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
            raise RuntimeError(
                "this cell already runs on every rank, and a rank cannot be forked into further "
                'ranks: call the function itself; in Lightning, use strategy="ddp"'
            )
        return original(*args, **kwargs)

    for module in (torch.multiprocessing, spawn):
        setattr(module, "start_processes", start_processes)  # noqa: B010
