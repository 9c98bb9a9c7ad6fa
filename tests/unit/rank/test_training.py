"""What the recorder of training does at each step, which must be little."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.join import Join

import ddt_notebook
from ddt_notebook.model import Position
from ddt_notebook.rank.probes.optimizers import taken_over_from
from ddt_notebook.rank.probes.replicas import ReplicaLog
from ddt_notebook.rank.probes.training import TrainingRecord

_OURS = str(Path(ddt_notebook.__file__).parent)


def _step(record: TrainingRecord, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step, reported through the hooks."""
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4)).sum()
    record.losses(loss)
    loss.backward()
    record.before_step(optimizer)
    optimizer.step()
    record.after_step(optimizer)


def _trained() -> tuple[TrainingRecord, torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 2)
    record = TrainingRecord()
    record.begin_run()
    return record, model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_an_ordinary_step_takes_few_functions() -> None:
    record, model, optimizer = _trained()
    for _ in range(20):
        _step(record, model, optimizer)
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        _step(record, model, optimizer)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 9, calls


def test_the_loss_is_not_read_through_the_function_that_records_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, model, optimizer = _trained()
    read: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "item", read.append)
    _step(record, model, optimizer)
    assert not record.problem
    assert not read


def test_fingerprints_are_taken_at_the_first_steps_and_then_ever_more_rarely() -> None:
    record, model, optimizer = _trained()
    for _ in range(20):
        _step(record, model, optimizer)
    (found,) = record.observed(0, {"optimizer": optimizer}).optimizers
    assert [state.step for state in found.states] == [*range(9), 16, 20]
    assert found.steps == 20


def test_a_step_within_that_of_the_same_optimizer_is_one_step() -> None:
    """Horovod's optimizer exchanges the gradients before it calls the step of its base class."""
    record, model, optimizer = _trained()
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).sum()
        record.losses(loss)
        loss.backward()
        record.after_backward()
        record.before_step(optimizer)
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)
        record.before_step(optimizer)
        optimizer.step()
        record.after_step(optimizer)
        record.after_step(optimizer)
    (found,) = record.observed(0, {"optimizer": optimizer}).optimizers
    assert (found.steps, found.passes) == (3, {1: 3})
    assert [state.step for state in found.states] == [0, 1, 2, 3]
    second = found.states[1]
    assert second.used == pytest.approx([0.5 * one for one in second.local])


def test_a_write_between_two_steps_is_noticed() -> None:
    record, model, optimizer = _trained()
    for at in range(30):
        if at == 25:
            with torch.no_grad():
                next(model.parameters()).mul_(0.5)
        _step(record, model, optimizer)
    (found,) = record.observed(0, {"optimizer": optimizer}).optimizers
    assert found.changed_before == (25,)


def test_the_first_loss_that_is_not_a_number_is_kept() -> None:
    record, model, optimizer = _trained()
    _step(record, model, optimizer)
    for value in ("nan", "inf", "1"):
        record.losses(torch.tensor(float(value), requires_grad=True))
    found = record.observed(0, {}).not_finite
    assert found is not None
    assert (found.backward, found.value, found.lasting) == (2, "nan", False)


def test_an_error_of_the_recorder_ends_the_recording() -> None:
    record, _, optimizer = _trained()
    optimizer.param_groups[0]["lr"] = "fast"
    record.before_step(optimizer)
    assert "ValueError" in record.problem
    record.begin_run()
    record.losses(torch.tensor(1.0, requires_grad=True))
    assert not record.active


def test_inside_join_is_known_where_uneven_inputs_are_allowed() -> None:
    record, *_ = _trained()
    made = []
    for given, allows in (
        ({}, 1),
        ({"enable": False, "divide_by_initial_world_size": True}, 0),
        ({"throw_on_early_termination": True}, 0),
    ):
        context = Join.__new__(Join)
        record.made_join(context, [], **given)
        made.append(context)
        record.entered_join(context)
        assert record.joining == allows
        record.left_join(context)
        assert record.joining == 0
    record.entered_join(made[0])
    record.begin_run()
    assert record.joining == 0


def test_gradients_that_a_hook_reduces_are_noted_as_they_were_computed() -> None:
    for divided in (False, True):
        record, model, optimizer = _trained()

        def reduce(parameter: torch.Tensor, record: TrainingRecord = record) -> None:
            assert parameter.grad is not None
            if divided:  # noqa: B023
                parameter.grad.div_(2)
            if record.sampling:
                record.reduces(parameter.grad)
            parameter.grad.mul_(2)  # as if another rank had sent the same gradient

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(reduce)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).sum()
            record.losses(loss)
            loss.backward()
            record.after_backward()
            record.before_step(optimizer)
            optimizer.step()
            record.after_step(optimizer)
        (seen,) = record.observed(0, {"optimizer": optimizer}).optimizers
        state = seen.states[1]
        assert state.local
        factor = 1 if divided else 2
        assert [used / own for own, used in zip(state.local, state.used, strict=True)] == [
            pytest.approx(factor)
        ] * len(state.local)
        record.end_run()
        assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_parameters_that_a_library_exchanges_in_each_step_are_not_watched() -> None:
    """As DeepSpeed's ZeRO-3 does."""
    record, model, optimizer = _trained()
    _step(record, model, optimizer)
    optimizer.param_groups[0]["params"] = [model.weight]
    _step(record, model, optimizer)
    found = record.observed(0, {"optimizer": optimizer})
    assert not record.problem
    (only,) = found.optimizers
    assert only.steps == 2
    assert not only.watched
    assert all(not state.values for state in only.states)


def test_a_time_limit_of_the_user_that_passes_in_the_recorder_goes_through() -> None:
    record, model, optimizer = _trained()

    class TimedOut(Exception):
        pass

    class Slow(torch.nn.parallel.DistributedDataParallel):
        def __init__(self) -> None:
            pass  # no group

        def __getattr__(self, name: str) -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            raise AttributeError(name)

    def passed(*_: object) -> None:
        raise TimedOut

    before = signal.signal(signal.SIGUSR1, passed)
    try:
        with pytest.raises(TimedOut):
            record.wrapped(Slow())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not record.problem
    _step(record, model, optimizer)
    (found,) = record.observed(0, {"optimizer": optimizer}).optimizers
    assert found.steps == 1


class _Wrapper(torch.nn.Module):
    """What the recorder of passes reads of a DDP model."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(4, 2)
        self.require_backward_grad_sync = True


def test_inputs_of_which_a_part_is_not_read_are_not_compared() -> None:
    model: Any = _Wrapper()
    log = ReplicaLog(model)
    images, step = torch.ones(3, 4), torch.tensor(7)
    left_out: list[tuple[Any, ...]] = [
        (step,),
        (images.to("meta"), images),
        ([images], images),
        ({}, step),
        (5,),
    ]
    for inputs in left_out:
        log.passes(model, inputs, loaded=True)
    assert log.first_inputs == []
    log.passes(model, (images, step, 0.5, None), loaded=True)
    log.passes(model, (images, step + 1), loaded=True)
    first, second = log.first_inputs
    assert first == second


def test_clipping_belongs_to_the_optimizer_that_steps_the_parameters() -> None:
    record, model, optimizer = _trained()
    other = torch.nn.Linear(4, 2)
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.ones(3, 4)).sum().backward()
    for steps_by_itself in (False, True):
        record.clipped(list(other.parameters()))
        assert not record.take_clipped(optimizer)
        if steps_by_itself:
            record.before_step(second)
            record.after_step(second)
        assert record.take_clipped(second) is not steps_by_itself
    _step(record, model, optimizer)
    record.clipped(list(model.parameters()))
    assert record.take_clipped(optimizer)
    assert not record.take_clipped(optimizer)


def test_an_optimizer_that_takes_over_the_groups_of_another_was_made_where_that_one_was() -> None:
    record = TrainingRecord()
    parameter = torch.nn.Parameter(torch.ones(2))
    first = torch.optim.SGD([parameter], lr=0.1)
    record.made(first)
    made = taken_over_from(first, record._optimizers)
    assert made is None, "it has groups of its own"
    record._optimizers[first].made = Position(file="cell[1]", line=3)
    wrapping = torch.optim.SGD(first.param_groups, lr=0.1)
    record.made(wrapping)
    assert record._optimizers[wrapping].made == Position(file="cell[1]", line=3)
    again = torch.optim.SGD([parameter], lr=0.1)  # the same parameters, in a group of its own
    assert taken_over_from(again, record._optimizers) is None
