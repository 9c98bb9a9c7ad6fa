"""Records what a model was given whose forward pass adds up activations over ranks.

Tensor parallelism that is written by hand does so: each rank multiplies by its part of a weight,
and ``all_reduce`` adds up the partial results. The sum is one of the batch only if all ranks were
given the same batch.
"""

from __future__ import annotations

from threading import get_ident
from types import FrameType
from typing import Any

import torch

from ...model.training import SummedForward
from .fingerprints import joint_content, on_cpu, shape_text
from .frames import local_variables, path_in_torch, user_line

#: The first sums of a run suffice: inputs differ from the first step on. Programs that reduce
#: gradients call ``all_reduce`` outside of modules, and soon cost nothing.
_MAX_RECORDED, _MAX_EXAMINED = 16, 64


class SummedRecord:
    """The first sums of activations in this run."""

    def __init__(self) -> None:
        self.sums: list[SummedForward] = []
        #: Whether more sums are recorded.
        self.watches = False
        self._left = 0
        self.thread: int | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.sums, self._left, self.thread = [], _MAX_EXAMINED, get_ident()
        self.watches = True

    def reduces(self, tensor: Any, members: tuple[int, ...], frame: FrameType) -> None:
        """Note a sum over the members of a group, if a module in training makes it."""
        if get_ident() != self.thread or type(tensor) is not torch.Tensor or tensor.dim() < 2:
            return
        self._left -= 1
        self.watches = self._left > 0
        outermost = None
        inner: FrameType | None = frame
        while inner is not None:
            code = inner.f_code
            if code.co_name == "_call_impl" and path_in_torch(code.co_filename) == _MODULE:
                outermost = inner
            inner = inner.f_back
        if outermost is None or len(members) < 2:
            return
        given = local_variables(outermost)
        module = given.get("self")
        values = (*given.get("args", ()), *given.get("kwargs", {}).values())
        inputs = on_cpu(values[:1])
        if not isinstance(module, torch.nn.Module) or not module.training or not inputs:
            return
        # other sums, such as those of statistics, do not mix samples
        batch = inputs[0].shape[:1]
        if tensor.shape[:1] != batch or batch.numel() < 2:
            return
        whole = inputs[0].untyped_storage().nbytes()
        self.sums.append(
            SummedForward(
                members=members,
                shape=shape_text(inputs[0]),
                content=joint_content(inputs),
                part=whole > inputs[0].numel() * inputs[0].element_size(),
                where=user_line(outermost),
                summed_at=user_line(frame),
            )
        )
        self.watches = self._left > 0 and len(self.sums) < _MAX_RECORDED


_MODULE = "nn/modules/module.py"

#: The record of this process.
RECORD = SummedRecord()
