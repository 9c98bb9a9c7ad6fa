"""Fingerprints of a few tensors, cheap enough to be taken while a model trains.

A tensor is read at up to `_RUNS` places that are spread over it. Ranks that part do so in most
elements; what is missed here, the whole fingerprints at the end of the run still show.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

from ...model.training import NO_GRADIENT
from .objects import is_dtensor

_WATCHED = 32
#: What is read of a tensor: short runs, since every place that is touched costs a cache miss.
_RUNS, _RUN = 128, 8
_EVERY_STEP_UNTIL = 8


def next_sampled(step: int) -> int:
    """The step after this one before which fingerprints are taken again: ever more rarely."""
    return step + 1 if step < _EVERY_STEP_UNTIL else 1 << step.bit_length()


def choose(count: int) -> list[int]:
    """Which of so many tensors are watched: the first, the last and some between them."""
    if count <= _WATCHED:
        return list(range(count))
    return sorted({round(at * (count - 1) / (_WATCHED - 1)) for at in range(_WATCHED)})


def is_readable(tensor: Any) -> bool:
    """Whether the tensor has dense content of its own on this rank."""
    return (
        not is_dtensor(tensor)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
    )


def sketch(tensor: torch.Tensor | None) -> int:
    """A fingerprint of what the tensor holds at some places, `NO_GRADIENT` for none."""
    if tensor is None:
        return NO_GRADIENT
    if not is_readable(tensor):
        return 0
    count = tensor.numel()
    if not count:
        return 1
    part = tensor.detach()
    every = count // _RUNS
    if part.is_cpu and part.dtype is torch.float32 and part.is_contiguous():
        values = part.numpy().reshape(-1)  # mostly so, and NumPy's views are cheaper than torch's
        if every > _RUN:
            values = values[: _RUNS * every].reshape(_RUNS, every)[:, :_RUN]
        return zlib.crc32(values.tobytes())
    if every > _RUN or not part.is_contiguous():
        if part.stride() and min(part.stride()) < 1:  # an expanded tensor repeats its elements
            part = part.contiguous()
        # in the order in which it lies in memory
        runs = ((_RUNS, _RUN), (every, 1)) if every > _RUN else ((count,), (1,))
        part = part.as_strided(*runs, part.storage_offset())
    if not part.is_cpu:
        part = part.cpu()
    if part.dtype is not torch.float32:
        part = part.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(part.numpy().tobytes())


def sketches(tensors: Sequence[torch.Tensor | None]) -> list[int]:
    """The fingerprint of each."""
    return [sketch(tensor) for tensor in tensors]


def digest(texts: Sequence[str]) -> int:
    """One number for a list of names."""
    return zlib.crc32("\n".join(texts).encode())


def shape_text(tensor: torch.Tensor) -> str:
    """``"10×20"``, ``"scalar"``."""
    return "×".join(map(str, tensor.shape)) or "scalar"
