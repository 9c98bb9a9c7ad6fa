"""Records tensors that are declared equal on the ranks of a tensor-parallel group.

``DTensor.from_local`` does not check that a tensor with the placement ``Replicate`` is equal on the
ranks; layers of tensor parallelism call it for their inputs.
"""

from __future__ import annotations

import functools
import sys
from threading import get_ident
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from ...model.training import ReplicatedTensor
from ..after_import import AfterImport
from .fingerprints import joint_content, on_cpu, shape_text
from .frames import model_call, user_line

#: The first tensors of a run suffice: inputs differ from the first step on.
_MAX_TENSORS = 32


class ReplicatedRecord:
    """The first tensors that this process declared equal to those of other ranks in this run."""

    def __init__(self) -> None:
        self.tensors: list[ReplicatedTensor] = []
        self.thread: int | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.tensors, self.thread = [], get_ident()

    def declares(self, tensor: Any, mesh: Any, placements: Any) -> None:
        """Note a tensor with the placement ``Replicate`` along a dimension of a mesh."""
        if len(self.tensors) >= _MAX_TENSORS or get_ident() != self.thread:
            return
        local = on_cpu([tensor])
        if not local or mesh is None:
            return
        for dimension in range(mesh.ndim):
            if placements is not None and not placements[dimension].is_replicate():
                continue
            members = tuple(dist.get_process_group_ranks(mesh.get_group(dimension)))
            if len(members) > 1:
                self.tensors.append(
                    ReplicatedTensor(
                        members=members,
                        shape=shape_text(local[0]),
                        content=joint_content(local),
                        where=user_line(sys._getframe()),
                        fed_at=model_call(sys._getframe()),
                    )
                )

    def stop(self) -> None:
        """Record nothing more in this run."""
        self.thread = None


#: The record of this process.
RECORD = ReplicatedRecord()


def install() -> None:
    """Record calls of ``DTensor.from_local``, as soon as the class has been imported."""
    AfterImport("torch.distributed.tensor._api", _wrap).install()


def _wrap(module: ModuleType) -> None:
    original = module.DTensor.from_local

    @functools.wraps(original)
    def from_local(
        local_tensor: Any, device_mesh: Any = None, placements: Any = None, **more: Any
    ) -> Any:
        __tracebackhide__ = True
        if not torch.compiler.is_dynamo_compiling() and not more.get("run_check"):
            try:
                RECORD.declares(local_tensor, device_mesh, placements)
            except Exception:  # noqa: BLE001  (a mesh or placement may be of any class)
                RECORD.stop()
        return original(local_tensor, device_mesh, placements, **more)

    module.DTensor.from_local = staticmethod(from_local)
