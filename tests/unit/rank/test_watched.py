"""Tensors that are watched beyond the life of their owner."""

from __future__ import annotations

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from ddt_notebook.rank.probes.watched import Watched


def test_an_owner_that_is_collected_in_a_trace_leaves_the_trace_as_it_is() -> None:
    owners = [nn.Linear(2, 2)]
    watched = Watched(owners[0], [*owners[0].parameters()])
    before = [*watched.values()]

    def doubled(x: torch.Tensor) -> torch.Tensor:
        owners.clear()
        return x * 2

    traced = make_fx(doubled)(torch.ones(1))
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_function", "output"]
    assert not owners
    assert watched.values() == before
