"""Process groups and processes that scripts start for GPUs, where the GPUs are simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from .simulated import note


def install(rank: int, world_size: int) -> None:
    """Make NCCL look available, and let ``spawn`` use the ranks that are there."""

    def spawn(
        fn: Callable[..., object],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> None:
        if nprocs != world_size or not join:
            how = f"nprocs={nprocs}" if join else "join=False"
            raise RuntimeError(
                f"torch.multiprocessing.spawn with {how} cannot be simulated: new processes have "
                f"no simulated GPUs, and this session has {world_size} ranks"
            )
        note("torch.multiprocessing.spawn ran its function on the ranks of this session")
        fn(rank, *args)

    distributed: Any = dist
    distributed.is_nccl_available = lambda: True
    processes: Any = torch.multiprocessing
    processes.spawn = spawn


def use_gloo(options: dict[str, Any]) -> None:
    """Change the arguments of a call that forms a group: gloo moves the tensors of the CPU."""
    if "nccl" in str(options.get("backend") or "").lower():
        options["backend"] = "gloo"
        note("nccl is mapped to gloo, because the GPUs are simulated")
    options.pop("device_id", None)  # gloo would look for a real GPU
