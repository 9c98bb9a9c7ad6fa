"""Notes the first value that is not finite and that the user's own call gave to other ranks.

From there on, all ranks have it: their losses do not show any more on which one it began. Calls
that a framework makes for the user, such as those of an optimizer, are left out: what they send
follows from the rank's own loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from types import FrameType

import torch

from ...model import Position
from ...model.training import GivenNotFinite
from ...model.user_code import is_user_code, package_file
from ...wire.records import CallRecord

#: A tensor with more elements is not looked at. The sum of so many takes 3 µs.
_MOST_ELEMENTS = 10_000
#: Frames between the user's line and a framework's library.
_MOST_FRAMES = 16
#: Torch's own functions; `shown` puts one in the place of ``item`` that records reads.
_item, _sum = torch.Tensor.item, torch.Tensor.sum


class GivenValues:
    """What this rank's own calls gave in this run."""

    def __init__(self) -> None:
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a cell."""
        self.first: GivenNotFinite | None = None

    def gives(
        self, tensors: Sequence[torch.Tensor], record: CallRecord, backwards: int, index: int
    ) -> None:
        """Look at what a call is given.

        Parameters
        ----------
        backwards, index
            The number of backward passes before it, and that of its record.
        """
        if self.first is not None:
            return
        for tensor in tensors:
            if tensor.is_cpu and tensor.numel() <= _MOST_ELEMENTS and not _is_finite(tensor):
                self.first = GivenNotFinite(
                    op=record.op,
                    where=Position(file=record.file, line=record.line, function=record.function),
                    backwards=backwards,
                    call=index,
                )


#: The record of this process.
RECORD = GivenValues()


def is_direct(frame: FrameType | None, package: str) -> bool:
    """Whether the user's code calls an operation of a framework itself.

    Then one file of the framework is between them, with all of its operations.
    """
    library = frame and frame.f_code.co_filename
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        file = frame.f_code.co_filename
        if is_user_code(file):
            return True
        if file != library and (package_file(file) or "").startswith(package):
            return False
        frame = frame.f_back
    return False


def _is_finite(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point():
        return True
    values = tensor.detach()
    # a finite sum takes less time to find, and that of large numbers may be infinite
    return isfinite(_item(_sum(values))) or bool(values.isfinite().all())
