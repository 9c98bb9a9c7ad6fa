"""What a graph keeps for its backward pass is counted without computing anything."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from ddt_notebook.rank.probes.memory import kept_for_backward, storages


def test_checkpointed_activations_are_neither_counted_nor_computed() -> None:
    layer, x, calls = torch.nn.Linear(16, 16), torch.randn(8, 16), []

    def forward(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return torch.nn.functional.gelu(layer(x))

    assert kept_for_backward(forward(x), layer.parameters()) == 2 * x.nbytes
    output = checkpoint(forward, x, use_reentrant=False)
    calls.clear()
    assert kept_for_backward(output, layer.parameters()) == 0
    assert not calls


def test_what_a_function_of_the_user_saves_is_counted() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x * 2)
            return x * 2

    x = torch.randn(8, 16, requires_grad=True)
    assert kept_for_backward(Doubled.apply(x), [x]) == x.nbytes


def test_a_wrapper_of_torch_func_has_no_memory_of_its_own() -> None:
    seen = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        seen.extend(storages(x))
        return x.sum()

    torch.func.grad(loss)(torch.ones(3))
    torch.func.vmap(loss)(torch.ones(2, 3))
    assert not seen
    assert list(storages(torch.ones(3)))
