"""A 64-bit fingerprint of a tensor's bits, at the speed of memory.

The bits are taken as 64-bit words and summed with fixed odd random weights, in blocks whose sums
enter a polynomial. A change of one word always changes the result, since an odd weight has an
inverse modulo 2**64; two different tensors agree by chance about once in 2**60.
"""

from __future__ import annotations

import torch

_BLOCK = 1 << 15
_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9E3779B97F4A7C15
#: Blocks taken at once on a GPU, where each step costs a round trip.
_GPU_BLOCKS = 512

_weights: dict[torch.device, torch.Tensor] = {}


def fingerprint(tensor: torch.Tensor) -> int:
    """The fingerprint of a dense tensor; equal bits on any device give equal numbers."""
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
        for at in range(blocks):  # in pieces that stay in the processor's cache
            torch.mul(words[at * _BLOCK : (at + 1) * _BLOCK], weights, out=product)
            sums.append(int(product.sum()))
    rest = words[blocks * _BLOCK :]
    if rest.numel():
        sums.append(int((rest * weights[: rest.numel()]).sum()))
    return sums


def _weights_on(device: torch.device) -> torch.Tensor:
    if device not in _weights:
        generator = torch.Generator().manual_seed(64)  # the user's random state stays as it is
        limits = torch.iinfo(torch.int64)
        numbers = torch.randint(limits.min, limits.max, (_BLOCK,), generator=generator)
        _weights[device] = (numbers | 1).to(device)
    return _weights[device]
