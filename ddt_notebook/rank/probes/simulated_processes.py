"""Process groups and processes that scripts start for GPUs, where the GPUs are simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from .simulated import device_of, note

#: Names of backends that carry tensors on GPUs only.
_ONLY_GPUS = ("nccl", "cuda:nccl", "cuda:gloo")


def show_nccl() -> None:
    """Make NCCL look available."""
    distributed: Any = dist
    distributed.is_nccl_available = lambda: True


def spawn_on_ranks(rank: int, world_size: int) -> None:
    """Let ``spawn`` use the ranks that are there."""

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

    processes: Any = torch.multiprocessing
    processes.spawn = spawn


class MappedBackends:
    """Lets gloo carry the groups that a script asks NCCL for.

    A group with NCCL alone takes no tensor on the CPU; here it refuses such a tensor, too.
    """

    def __init__(self) -> None:
        #: Names of the groups with NCCL alone; see `refuse_on_cpu`.
        self.only_gpus: set[str] = set()
        self._forms_only_gpus = False

    def choose(self, op: str, options: dict[str, Any]) -> None:
        """Change the arguments of a call that forms a group.

        Parameters
        ----------
        op
            ``init_process_group`` or ``new_group``. A new group without a backend has that of the
            default group.
        options
            The arguments of the call, by name.
        """
        asked = str(options.get("backend") or "").lower()
        inherits = op == "new_group" and not asked and dist.group.WORLD is not None
        self._forms_only_gpus = asked in _ONLY_GPUS or (
            inherits and dist.group.WORLD.group_name in self.only_gpus
        )
        if "nccl" in asked:
            options["backend"] = "gloo"
            note("nccl is mapped to gloo, because the GPUs are simulated")
        options.pop("device_id", None)  # gloo would look for a real GPU

    def formed(self, group: Any) -> None:
        """Note the group that the call formed; groups of another generation have the same names."""
        name = getattr(group, "group_name", None)  # None on a rank that is not a member
        if name is not None:
            (self.only_gpus.add if self._forms_only_gpus else self.only_gpus.discard)(name)

    @staticmethod
    def refuse_on_cpu(tensors: Iterable[torch.Tensor]) -> None:
        """Raise the error of PyTorch for a group with NCCL alone if a tensor is on the CPU.

        Raises
        ------
        RuntimeError
            If one of them is.
        """
        if any(device_of(tensor) is None for tensor in tensors):
            raise RuntimeError("No backend type associated with device type cpu")
