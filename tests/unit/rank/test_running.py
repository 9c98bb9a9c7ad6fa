"""What a rank answers about the user's objects while the user's code runs."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from torch import nn

from ddt_notebook.model import Observation
from ddt_notebook.rank.probes import parity, running, training
from ddt_notebook.rank.probes.running import RunningProbes, variables
from ddt_notebook.rank.probes.training import TrainingRecord
from ddt_notebook.wire.messages import AskRunning, RunningAnswer


@pytest.fixture(autouse=True)
def record(monkeypatch: pytest.MonkeyPatch) -> TrainingRecord:
    """A record of its own; nothing is installed in this process."""
    record = TrainingRecord()
    record.begin_run()
    monkeypatch.setattr(training, "RECORD", record)
    return record


def items(seen: Observation | None) -> dict[str, str]:
    assert seen is not None
    assert seen.parity is not None
    return {item.name: item.value for item in seen.parity.items}


def asked_beside(probes: RunningProbes, request: AskRunning) -> RunningAnswer:
    """The answer to a question that another thread asks now."""
    answers: list[RunningAnswer] = []
    thread = threading.Thread(target=lambda: answers.append(probes.answer(0, request)))
    thread.start()
    thread.join(20)
    return answers[0]


def test_variables_of_functions_are_found_and_not_kept() -> None:
    model = nn.Linear(2, 2)
    batch = torch.ones(4, 2)
    loss = model(batch).sum()

    found = variables(sys._getframe())
    assert found["model"] is model
    assert found["batch"] is batch
    assert "loss" not in found  # its graph would be kept
    if sys.version_info < (3, 13):
        before = sys.getrefcount(batch)
        variables(sys._getframe())
        assert sys.getrefcount(batch) == before
    assert batch.sum() == 8  # reading has not changed a variable
    assert loss.requires_grad


def test_the_name_of_an_outer_variable_stays() -> None:
    model = nn.Linear(2, 2)

    def evaluate() -> dict[str, object]:
        model = nn.Linear(3, 3)
        assert model.in_features == 3
        return variables(sys._getframe())

    found = evaluate()
    assert found["model"] is model
    assert found["evaluate.model"].in_features == 3


def test_a_monitor_reads_sizes_and_no_content() -> None:
    model = nn.Linear(2, 2)
    probes = RunningProbes()
    answer = asked_beside(probes, AskRunning(probes=("placement", "memory", "partition")))
    assert answer.failed == {}
    size = sum(4 * p.numel() for p in model.parameters())
    assert answer.observed.memory.parts["parameters"] >= size
    assert "model" in {one.name for one in answer.observed.placement.objects}
    assert answer.observed.parity is None


def test_an_object_that_raises_costs_only_its_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise ValueError("bad")

    monkeypatch.setitem(running._PROBES, "memory", fail)
    answer = RunningProbes().answer(0, AskRunning(probes=("memory", "placement")))
    assert answer.failed == {"memory": "ValueError: bad"}
    assert answer.observed.placement is not None


def test_the_main_thread_compares_at_the_end_of_the_step_that_is_asked_for(
    record: TrainingRecord,
) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    probes, values = RunningProbes(), []
    wanted = AskRunning(at_step=2)
    assert probes.answer(0, wanted).observed is None
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        record.before_step(optimizer)
        optimizer.step()
        record.after_step(optimizer)
        values.append(items(Observation(rank=0, parity=parity.observe(0, {"model": model}))))
    answer = asked_beside(probes, wanted)
    taken = items(answer.observed)
    assert taken["model.weight"] == values[1]["model.weight"] != values[2]["model.weight"]
    assert "model.weight.grad" not in taken
    late = asked_beside(probes, AskRunning(at_step=1))
    assert (late.observed, late.steps) == (None, 3)


def test_large_tensors_are_sampled_and_those_of_a_device_are_not_read() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(400, 400))
    with torch.device("meta"):
        model.append(nn.Linear(2, 2))
    seen = parity.observe(0, {"model": model}, sampled=True)
    found = {item.name: item.value for item in seen.items}
    assert len(found["model.0.weight"]) == 16
    assert len(found["model.1.weight"]) == 8
    assert seen.unread == 2
    with torch.no_grad():
        model[1].weight.add_(1)
    again = parity.observe(0, {"model": model}, sampled=True)
    assert {item.name for item in again.items if item.value != found[item.name]} == {
        "model.1.weight"
    }
