"""Which parameters nobody has written to before an optimizer steps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ddt_notebook.rank.probes.unwritten_memory import EmptyParameters

#: What memory holds in these tests before anybody writes to it.
EARLIER = 7.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> EmptyParameters:
    """A record; memory without values holds `EARLIER`."""

    def filled(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.full(tensor.shape, EARLIER, **options)

    monkeypatch.setattr(torch, "empty_like", filled)
    return EmptyParameters()


def materialised(record: EmptyParameters, module: type[nn.Module] = Net) -> nn.Module:
    with torch.device("meta"):
        net = module()
    net.to_empty(device="cpu")
    record.empties(net)
    return net


def train(record: EmptyParameters, *nets: nn.Module) -> None:
    parameters = [parameter for net in nets for parameter in net.parameters()]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    record.steps(torch.optim.SGD(parameters, lr=0.1))


def _state(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.randn(one.shape) for name, one in net.state_dict().items()}


def _by_data(net: nn.Module) -> None:
    for parameter in net.parameters():
        parameter.data.normal_()


def _by_data_alone(net: nn.Module) -> None:
    for module in (net.body, net.head):
        module.weight.data.normal_()
        module.bias.data.zero_()


def _by_init(net: nn.Module) -> None:
    for parameter in net.parameters():
        nn.init.constant_(parameter, EARLIER)  # the same number as before


def _by_layers(net: nn.Module) -> None:
    net.body.reset_parameters()
    net.head.reset_parameters()


def _from_another_process(net: nn.Module) -> None:
    for parameter in net.parameters():
        parameter.data.copy_(torch.randn(parameter.shape))


def _replaced(net: nn.Module) -> None:
    net.body, net.head = nn.Linear(8, 8), nn.Linear(8, 1)


WRITES: dict[str, Callable[[Any], Any]] = {
    "reset_parameters": _by_layers,
    "nn.init": _by_init,
    "data": _by_data,
    "data, biases with zeros": _by_data_alone,
    "load_state_dict": lambda net: net.load_state_dict(_state(net)),
    "load_state_dict that assigns": lambda net: net.load_state_dict(_state(net), assign=True),
    "a broadcast": _from_another_process,
    "other layers": _replaced,
}


@pytest.mark.parametrize("write", WRITES)
def test_parameters_that_somebody_wrote_to(record: EmptyParameters, write: str) -> None:
    net = materialised(record)
    WRITES[write](net)
    train(record, net)
    assert not record.observed()


def test_layers_that_were_left_out(record: EmptyParameters) -> None:
    net = materialised(record)
    net.head.reset_parameters()
    train(record, net)
    (seen,) = record.observed()
    assert (seen.module, seen.names) == ("Net", ("body.weight", "body.bias"))
    assert (seen.unwritten, seen.parameters) == (2, 4)
    assert seen.finite
    assert not seen.zero


def test_an_optimizer_that_had_stepped_is_not_examined_again(record: EmptyParameters) -> None:
    net = materialised(record)
    _by_init(net)
    train(record, net)
    train(record, net)
    assert not record.observed()
    assert not record.pending


def test_parameters_that_are_not_trained(record: EmptyParameters) -> None:
    train(record, nn.Linear(8, 1))
    materialised(record)
    assert not record.observed()


@pytest.mark.parametrize("writes", [True, False])
def test_what_ddp_copies_to_other_ranks(record: EmptyParameters, writes: bool) -> None:
    net = materialised(record)
    if writes:
        _by_layers(net)
    without = record.without_values(net.parameters())
    _by_init(net)  # DDP writes the same to them
    record.copied(without)
    train(record, net)
    assert len(record.observed()) == (not writes)


def test_what_ddp_copies_from_another_rank(record: EmptyParameters) -> None:
    net = materialised(record)
    record.received(net.parameters())
    train(record, net)
    assert not record.observed()


def test_fresh_memory_of_zeros(record: EmptyParameters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.rank.test_unwritten_memory.EARLIER", 0.0)
    some, none = materialised(record), materialised(record)
    some.body.reset_parameters()
    train(record, some)
    assert not record.observed()  # the head may be meant to begin with zeros
    train(record, none)
    assert [one.zero for one in record.observed()] == [True]


def test_memory_that_holds_nan(record: EmptyParameters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.rank.test_unwritten_memory.EARLIER", float("nan"))
    train(record, materialised(record))
    assert [one.finite for one in record.observed()] == [False]
