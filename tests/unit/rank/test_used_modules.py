"""Which modules beside the trained ones are called between the first steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
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


def _noted(used: UsedModules) -> list[tuple[str, bool, bool]]:
    return [(one.name, one.trained, one.first != one.last) for one in used.observed()]


def test_the_outermost_module_is_noted_and_whether_it_changed(trained: nn.Module) -> None:
    used, teacher, x = UsedModules(), _Pair(), torch.ones(1, 2)
    used.begin(trained)
    for _ in range(2):
        trained(x)
        teacher(x)
        used.stepped(lambda: {"self.teacher": teacher})
    assert not used.is_open
    assert _noted(used) == [("self.teacher", False, False)]
    nn.init.ones_(teacher.second.bias)
    assert _noted(used) == [("self.teacher", False, True)]


def test_the_line_that_calls_a_model_past_ddp_is_noted() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    used, wrapper, x = UsedModules(), Wrapper(), torch.ones(1, 2)
    used.begin(wrapper)
    with torch.no_grad():  # an evaluation
        wrapper.module(x)
    assert used.past is None
    wrapper.module(x)
    assert used.past is not None
    assert used.past.file == __file__
    used.begin_run()
    assert used.past is None


def test_a_trace_of_the_user_stays_as_it_is(
    trained: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(1, 2)
    used, alone = UsedModules(), make_fx(_Pair())(x).code
    used.begin(trained)
    assert make_fx(_Pair())(x).code == alone
    used.stepped(dict)
    traced = _Pair()
    monkeypatch.setattr(torch.jit, "is_tracing", lambda: True)
    traced(x)
    monkeypatch.undo()
    used.stepped(dict)
    assert _noted(used) == []


def test_a_module_that_raises_when_it_is_looked_at_still_runs(trained: nn.Module) -> None:
    class Shy(nn.Linear):
        def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
            raise ZeroDivisionError

    used = UsedModules()
    used.begin(trained)
    assert Shy(2, 2)(torch.ones(1, 2)).shape == (1, 2)
    used.stepped(dict)
    used.stepped(dict)
    assert _noted(used) == []


def test_what_is_called_only_before_the_first_step_is_not_noted(trained: nn.Module) -> None:
    used = UsedModules()
    used.begin(trained)
    _Pair()(torch.ones(1, 2))
    for _ in range(2):
        used.stepped(dict)
    assert _noted(used) == []


def test_a_module_is_trained_if_an_optimizer_steps_it_before_or_later(trained: nn.Module) -> None:
    used, head, tail = UsedModules(), _Pair(), nn.Linear(2, 2)
    used.begin(trained)
    used.optimizes([*trained.parameters(), *head.parameters()])
    for _ in range(2):
        head(torch.ones(1, 2))
        tail(torch.ones(1, 2))
        used.stepped(dict)
    assert _noted(used) == [("the _Pair", True, False), ("the Linear", False, False)]
    used.optimizes(tail.parameters())
    del head, tail
    assert _noted(used) == [("the _Pair", True, False), ("the Linear", True, False)]


def test_a_module_around_the_one_in_ddp_is_none_beside_it(trained: nn.Module) -> None:
    used, teacher = UsedModules(), nn.Linear(2, 2)
    around = nn.Sequential(trained, teacher)
    used.begin(trained)
    for _ in range(2):
        around(torch.ones(1, 2))
        used.stepped(dict)
    assert _noted(used) == [("the Linear", False, False)]
    used.begin(around)
    assert _noted(used) == []


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
