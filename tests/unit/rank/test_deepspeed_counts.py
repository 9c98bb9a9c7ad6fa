"""DeepSpeed counts what it divides, and a rank that was replaced begins at 0."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from ddt_notebook.rank.frameworks.deepspeed import DeepSpeed


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def test_all_ranks_count_anew_when_groups_are_formed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def register(self: object, module: object, count: list[int] = [59]) -> list[int]:  # noqa: B006
        """As DeepSpeed's, which shares the default among all of its models."""
        return count

    init = SimpleNamespace(param_id=84)
    module(monkeypatch, "deepspeed.comm.comm", cdb=None)
    module(monkeypatch, "deepspeed.runtime.zero.partition_parameters", Init=init)
    hooks = SimpleNamespace(_register_deepspeed_module=register)
    module(monkeypatch, "deepspeed.runtime.zero.parameter_offload", DeepSpeedZeRoOffload=hooks)
    framework = DeepSpeed()
    framework._values.made(SimpleNamespace(), [0])
    assert framework.forget_groups() == []
    assert framework._values._made == 0
    assert (init.param_id, register(None, None)) == (0, [0])
