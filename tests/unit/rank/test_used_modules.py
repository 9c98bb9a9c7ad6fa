"""Which modules beside the trained ones are called between the first steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks

from ddt_notebook.rank.probes.used_modules import UsedModules


class _Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


@pytest.fixture
def trained() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2))


def _noted(used: UsedModules, trained: nn.Module) -> list[tuple[str, bool]]:
    return [(one.name, one.first != one.last) for one in used.observed(trained.parameters())]


def test_the_outermost_module_is_noted_and_whether_it_changed(trained: nn.Module) -> None:
    used, teacher, x = UsedModules(), _Pair(), torch.ones(1, 2)
    used.begin(trained)
    for _ in range(2):
        trained(x)
        teacher(x)
        used.stepped(lambda: {"self.teacher": teacher})
    assert not used.is_open
    assert _noted(used, trained) == [("self.teacher", False)]
    nn.init.ones_(teacher.second.bias)
    assert _noted(used, trained) == [("self.teacher", True)]


def test_what_is_called_only_before_the_first_step_is_not_noted(trained: nn.Module) -> None:
    used = UsedModules()
    used.begin(trained)
    _Pair()(torch.ones(1, 2))
    for _ in range(2):
        used.stepped(dict)
    assert _noted(used, trained) == []


def test_a_module_of_an_optimizer_is_not_noted(trained: nn.Module) -> None:
    used, head = UsedModules(), _Pair()
    used.begin(trained)
    used.stepped(dict)
    head(torch.ones(1, 2))
    used.stepped(dict)
    assert _noted(used, head) == []
    assert _noted(used, trained) == [("_Pair", False)]


def test_no_hook_is_left_when_the_user_compiles_or_a_run_begins(trained: nn.Module) -> None:
    used = UsedModules()
    used.begin(trained)
    assert hooks._global_forward_pre_hooks
    used.begin_run()
    assert not hooks._global_forward_pre_hooks
    used.begin(trained)
    used.compiles()
    used.begin(trained)
    assert not hooks._global_forward_pre_hooks
