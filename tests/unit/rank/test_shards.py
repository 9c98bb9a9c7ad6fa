"""Where the parts of DeepSpeed's ZeRO lie, from the attributes that DeepSpeed 0.19 sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ddt_notebook.rank.probes import shards


class DeepSpeedEngine(nn.Module):
    """What the probe reads of an engine."""

    def __init__(self, module: nn.Module, optimizer: Any = None) -> None:
        super().__init__()
        self.module = module
        self.optimizer = optimizer


def group(rank: int) -> SimpleNamespace:
    return SimpleNamespace(rank=lambda: rank, size=lambda: 2)


def test_zero_3_keeps_an_equal_part_of_each_parameter() -> None:
    """The last part is padded; the padding belongs to no parameter."""
    for rank, count in ((0, 2), (1, 1)):
        module = nn.Linear(3, 1, bias=False)
        module.weight.ds_tensor = torch.zeros(2)  # type: ignore[attr-defined]
        module.weight.ds_numel = 3  # type: ignore[attr-defined]
        module.weight.ds_process_group = group(rank)  # type: ignore[attr-defined]
        (found,) = shards.observe({"engine": DeepSpeedEngine(module)}, {})
        assert (found.wrapper, found.parameters) == ("DeepSpeed ZeRO-3", 3)
        assert (found.local_parameters, found.local_bytes) == (count, 4 * count)
        assert (found.slots[0], found.slots[-1]) == ((100, 0) if rank == 0 else (0, 100))


def test_zero_1_and_2_keep_an_equal_part_of_each_group() -> None:
    optimizer = SimpleNamespace(
        single_partition_of_fp32_groups=[torch.zeros(4)],
        real_dp_process_group=[group(1)],
        partition_size=[4],
    )
    (found,) = shards.observe({"engine": DeepSpeedEngine(nn.Linear(2, 4), optimizer)}, {})
    assert (found.name, found.wrapper) == ("engine.optimizer", "DeepSpeed ZeRO")
    assert (found.parameters, found.local_parameters) == (8, 4)
    assert found.slots == (0,) * 28 + (100,) * 28


def test_an_engine_without_zero_has_no_shards() -> None:
    engine = DeepSpeedEngine(nn.Linear(2, 2), SimpleNamespace())
    assert list(shards.observe({"engine": engine}, {})) == []
