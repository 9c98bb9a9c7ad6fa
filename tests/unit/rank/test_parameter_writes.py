"""Which line initialised or loaded parameters after DDP was built."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from torch import nn

from ddt_notebook.rank.probes import parameter_writes


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> parameter_writes.ParameterWrites:
    for name in [one for one in vars(nn.init) if one.endswith("_")]:
        monkeypatch.setattr(nn.init, name, getattr(nn.init, name))  # restores it
    monkeypatch.setattr(nn.Module, "load_state_dict", nn.Module.load_state_dict)
    record = parameter_writes.ParameterWrites()
    monkeypatch.setattr(parameter_writes, "RECORD", record)
    parameter_writes.install()
    return record


def _line(writes: parameter_writes.ParameterWrites, model: nn.Module) -> int | None:
    where = writes.take({id(one) for one in model.parameters()})
    return where.line if where is not None else None


def test_the_line_that_draws_or_loads_parameters(writes: parameter_writes.ParameterWrites) -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model.reset_parameters()
    writes.wraps(model.parameters())
    assert _line(writes, model) is None
    other.reset_parameters()
    model.reset_parameters()
    line = sys._getframe().f_lineno - 1
    assert _line(writes, model) == line
    assert _line(writes, model) is None
    assert _line(writes, other) == line - 1
    model.load_state_dict(other.state_dict())
    assert _line(writes, model) == sys._getframe().f_lineno - 1


def test_what_is_written_before_ddp_makes_copies_equal_is_forgotten(
    writes: parameter_writes.ParameterWrites,
) -> None:
    model = nn.Linear(2, 2)
    writes.watches = True
    model.reset_parameters()
    writes.wraps(model.parameters())
    assert _line(writes, model) is None


class EMAModel:
    """Writes to parameters as averages do: their versions stay as they are."""

    def __init__(self, parameters):
        self.kept = [one.detach().clone() for one in parameters]

    def copy_to(self, parameters):
        for kept, one in zip(self.kept, parameters, strict=True):
            one.data.copy_(kept)


def test_an_average_that_is_copied_to_a_model(
    writes: parameter_writes.ParameterWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EMAModel, "copy_to", EMAModel.copy_to)  # restores it
    module = ModuleType("diffusers.training_utils")
    module.EMAModel = EMAModel  # type: ignore[attr-defined]
    parameter_writes._watch_average("EMAModel", module)
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    average = EMAModel(other.parameters())
    writes.wraps(model.parameters())
    assert not writes.holds(model.parameters())
    average.copy_to(model.parameters())  # an iterator, which can be read once
    assert model.weight.equal(other.weight)
    assert writes.holds(model.parameters())
    assert not writes.holds(other.parameters())
    assert _line(writes, model) == sys._getframe().f_lineno - 4
