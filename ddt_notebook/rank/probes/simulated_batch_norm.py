"""The operations of SyncBatchNorm that only GPUs have, computed on the CPU.

They follow ``torch.nn.modules._functions.SyncBatchNorm``, which calls them: statistics of one rank,
those of all ranks together, the normalisation, and the two halves of its gradient.
"""

from __future__ import annotations

import torch

_library: torch.library.Library | None = None


def install() -> None:
    """Register the operations for tensors of the CPU, until the process ends."""
    global _library  # noqa: PLW0603  (the registration lasts as long as this object)
    _library = torch.library.Library("aten", "IMPL")
    for function in (
        batch_norm_stats,
        batch_norm_gather_stats_with_counts,
        batch_norm_elemt,
        batch_norm_backward_reduce,
        batch_norm_backward_elemt,
    ):
        _library.impl(function.__name__, function, "CPU")


def _over_samples(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _by_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (like.dim() - 2))


def _precise(tensor: torch.Tensor) -> torch.Tensor:
    """A half-precision tensor as float32, as CUDA accumulates."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def batch_norm_stats(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and inverse standard deviation of each channel."""
    values = _precise(x)
    variance, mean = torch.var_mean(values, dim=_over_samples(values), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats_with_counts(
    x: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The statistics of all ranks from those of each; also updates the running statistics."""
    share = counts.to(mean.dtype).view(-1, 1)
    total = share.sum()
    own_variance = invstd.pow(-2) - eps
    mean_all = (mean * share).sum(0) / total
    variance = ((own_variance + (mean - mean_all).square()) * share).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean_all, alpha=momentum)
    if running_var is not None:
        unbiased = variance * total / (total - 1)
        running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
    return mean_all, torch.rsqrt(variance + eps)


def batch_norm_elemt(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """The normalised input."""
    normal = (_precise(x) - _by_channel(mean, x)) * _by_channel(invstd, x)
    if weight is not None:
        normal = normal * _by_channel(weight, x)
    if bias is not None:
        normal = normal + _by_channel(bias, x)
    return normal.to(x.dtype)


def batch_norm_backward_reduce(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sums over a rank's samples: of the gradient, and of its product with the deviation."""
    gradient, dims = _precise(grad_out), _over_samples(x)
    sum_dy = gradient.sum(dims)
    sum_dy_xmu = (gradient * (_precise(x) - _by_channel(mean, x))).sum(dims)
    return sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy.clone()


def batch_norm_backward_elemt(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    sum_dy: torch.Tensor,
    sum_dy_xmu: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    """The gradient of the input, from the sums over all ranks."""
    total = count.sum()
    deviation = _precise(x) - _by_channel(mean, x)
    common = _by_channel(sum_dy / total, x)
    slope = _by_channel(invstd.square() * sum_dy_xmu / total, x)
    scale = invstd if weight is None else invstd * weight
    gradient = (_precise(grad_out) - common - deviation * slope) * _by_channel(scale, x)
    return gradient.to(x.dtype)
