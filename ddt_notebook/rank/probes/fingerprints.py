"""Computes numbers that are equal for equal tensors, so that ranks compare them without sending.

`sketch` reads a tensor at a few places in microseconds, so it can be taken while a model trains.
`fingerprint` reads every bit at the speed of memory, so it is taken at the end of a run.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from ...model.training import NO_GRADIENT
from .simulated import UNSIMULATED

#: The most tensors of a model of which sketches are taken.
_WATCHED = 32
#: A sketch reads this many runs of this many elements, since each separate place is a cache miss.
_RUNS, _RUN = 128, 8
_EVERY_STEP_UNTIL = 8
#: Bytes of a sample or a batch that are read in full: crc32 takes 10 to 20 µs for them.
_READ_WHOLE_BYTES = 1 << 16
#: Words that a fingerprint reads at once: 256 KiB stay in a processor's cache.
_BLOCK = 1 << 15
_MASK = (1 << 64) - 1
#: 2**64 divided by the golden ratio, a common multiplier in hashes.
_MULTIPLIER = 0x9E3779B97F4A7C15
#: Blocks taken at once on a GPU, where each step costs a round trip.
_GPU_BLOCKS = 512

#: NumPy's own generator, so that the user's random numbers stay as they are.
_PROJECTION = np.random.default_rng(64).standard_normal(1024, dtype=np.float32)

_NO_DISPATCH = torch.Tensor.__torch_dispatch__
#: Torch's own: what tensors on simulated GPUs say of themselves in their place is another thing.
_numpy: Any = torch.Tensor.numpy
_is_on_cpu: Any = torch.Tensor.is_cpu.__get__
_weights: dict[torch.device, torch.Tensor] = {}


def has_content(tensor: Any) -> bool:
    """Whether this rank holds all of the tensor's elements, in a dense form."""
    return (
        # a subclass that handles operations itself, such as a fake tensor, holds others or none
        type(tensor).__torch_dispatch__ is _NO_DISPATCH
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        # FSDP frees the memory of a gathered parameter, which a graph may still refer to
        and (tensor.untyped_storage().nbytes() > 0 or tensor.numel() == 0)
    )


def on_cpu(values: Iterable[Any]) -> list[torch.Tensor]:
    """The plain tensors among some values that can be read without waiting for a device."""
    tensors = (value for value in values if type(value) is torch.Tensor and value.is_cpu)
    return [tensor.detach() for tensor in tensors if has_content(tensor)]


# -- sketches --------------------------------------------------------------------------------------


def next_sampled(step: int) -> int:
    """The next step before which sketches are taken; the distances grow."""
    return step + 1 if step < _EVERY_STEP_UNTIL else 1 << step.bit_length()


def choose(count: int) -> list[int]:
    """Which of ``count`` tensors are watched: the first, the last and some between them."""
    if count <= _WATCHED:
        return list(range(count))
    return sorted({round(at * (count - 1) / (_WATCHED - 1)) for at in range(_WATCHED)})


def sketch(tensor: torch.Tensor | None) -> int:
    """A number for the content of the tensor at up to 128 places; `NO_GRADIENT` for None.

    Tensors that training moves apart differ in most of their elements, and so also at some of these
    places. A tensor without its own content gives 0.
    """
    if tensor is None:
        return NO_GRADIENT
    if not has_content(tensor):
        return 0
    count = tensor.numel()
    if not count:
        return 1
    part = tensor.detach()
    every = count // _RUNS
    if _is_on_cpu(part) and part.dtype is torch.float32 and part.is_contiguous():
        values = _numpy(part).reshape(-1)  # the usual case; NumPy's views cost less than torch's
        if every > _RUN:
            values = values[: _RUNS * every].reshape(_RUNS, every)[:, :_RUN]
        return zlib.crc32(values.tobytes())
    if every > _RUN or not part.is_contiguous():
        if part.stride() and min(part.stride()) < 1:  # an expanded tensor repeats its elements
            part = part.contiguous()
        # in the order in which the elements lie in memory
        runs = ((_RUNS, _RUN), (every, 1)) if every > _RUN else ((count,), (1,))
        part = part.as_strided(*runs, part.storage_offset())
    if not _is_on_cpu(part):
        part = part.cpu()
    if part.dtype is not torch.float32:
        part = part.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(_numpy(part).tobytes())


def sketches(tensors: Iterable[torch.Tensor | None]) -> list[int]:
    """The sketch of each tensor."""
    with UNSIMULATED:
        return [sketch(tensor) for tensor in tensors]


def projection(tensor: torch.Tensor | None) -> float:
    """The dot product of the first elements with fixed random weights; 0 without content.

    Unlike a sketch it is linear: the projections of the ranks' gradients add up to that of their
    sum.
    """
    if tensor is None or not has_content(tensor) or not tensor.is_floating_point():
        return 0.0
    part = tensor.detach().reshape(-1)[: len(_PROJECTION)].float()
    values = _numpy(part if _is_on_cpu(part) else part.cpu())
    found = float(values @ _PROJECTION[: len(values)])
    return found if math.isfinite(found) else 0.0


def joint_content(tensors: Iterable[torch.Tensor]) -> int:
    """One number for several tensors on the CPU, such as the parts of a sample.

    Unlike a sketch it reads the first 64 KiB of each tensor whole: samples, unlike parameters that
    train apart, may differ in a single element, as one-hot vectors do. The rest enters as a sketch.
    """
    value = 0
    for tensor in tensors:
        flat = tensor.resolve_conj().resolve_neg().reshape(-1)
        first = flat[: _READ_WHOLE_BYTES // max(1, tensor.element_size())]
        value = zlib.crc32(first.contiguous().view(torch.uint8).numpy(), value)
        if first.numel() < flat.numel():
            value = zlib.crc32(str(sketch(flat)).encode(), value)
    return value


def digest(texts: Iterable[str]) -> int:
    """One number for a list of names."""
    return zlib.crc32("\n".join(texts).encode())


def shape_text(tensor: torch.Tensor) -> str:
    """``"10×20"``, ``"scalar"``."""
    return "×".join(map(str, tensor.shape)) or "scalar"


# -- fingerprints ----------------------------------------------------------------------------------


def fingerprint(tensor: torch.Tensor) -> int:
    """64 bits for all bits of a dense tensor; equal bits on any device give equal numbers.

    The bits are taken as 64-bit words and summed with fixed odd random weights, in blocks whose
    sums enter a polynomial. A change of one word always changes the result, since an odd weight
    has an inverse modulo 2**64. Two different tensors agree by chance about once in 2**60.
    """
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if data.storage_offset() % 8:
        data = data.clone()
    whole = data.numel() // 8
    words = data[: whole * 8].view(torch.int64)
    result = data.numel() & _MASK
    for value in _block_sums(words):
        result = (result * _MULTIPLIER + value + 1) & _MASK
    for byte in data[whole * 8 :].tolist():
        result = (result * _MULTIPLIER + byte + 1) & _MASK
    return result


def _block_sums(words: torch.Tensor) -> list[int]:
    weights = _weights_on(words.device)
    blocks = words.numel() // _BLOCK
    sums: list[int] = []
    if words.is_cuda:
        for start in range(0, blocks, _GPU_BLOCKS):
            many = words[start * _BLOCK : min(blocks, start + _GPU_BLOCKS) * _BLOCK]
            sums += (many.view(-1, _BLOCK) * weights).sum(dim=1).tolist()
    else:
        product = torch.empty_like(weights)
        for at in range(blocks):
            torch.mul(words[at * _BLOCK : (at + 1) * _BLOCK], weights, out=product)
            sums.append(int(product.sum()))
    rest = words[blocks * _BLOCK :]
    if rest.numel():
        sums.append(int((rest * weights[: rest.numel()]).sum()))
    return sums


def _weights_on(device: torch.device) -> torch.Tensor:
    """The random weights, which are made once per process and are the same in all processes."""
    if device not in _weights:
        generator = torch.Generator().manual_seed(64)  # does not change the user's random state
        limits = torch.iinfo(torch.int64)
        numbers = torch.randint(limits.min, limits.max, (_BLOCK,), generator=generator)
        _weights[device] = (numbers | 1).to(device)
    return _weights[device]
