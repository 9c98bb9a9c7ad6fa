"""Looking at the variables of a frame leaves nothing behind in it."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType

import torch

from ddt_notebook.model import Position
from ddt_notebook.rank.probes.frames import local_variables, model_call


class Large:
    """Stands for a loss with its graph."""


def _here() -> FrameType:
    return sys._getframe(1)


def test_a_result_that_was_seen_is_freed_when_the_function_drops_it() -> None:
    loss = Large()
    seen = weakref.ref(loss)
    assert local_variables(_here())["loss"] is loss
    del loss
    assert seen() is None


def test_what_the_user_took_with_locals_stays() -> None:
    loss = Large()
    taken = locals()
    assert local_variables(_here())["loss"] is loss
    assert taken["loss"] is loss


def test_the_names_of_a_class_that_is_being_made_stay() -> None:
    class Made:
        value = 3
        seen = local_variables(sys._getframe())["value"]

    assert (Made.value, Made.seen) == (3, 3)


def test_variables_survive_a_look_from_within_a_tracer() -> None:
    found: list[object] = []

    def tracer(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        if frame.f_code is traced.__code__:
            found.append(local_variables(frame).get("given"))
            return tracer
        return None

    def traced(given: int) -> int:
        twice = given * 2
        return twice + given

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        result = traced(2)
    finally:
        sys.settrace(before)
    assert result == 6
    assert set(found) == {2}


def test_the_line_that_calls_a_model_is_outside_of_its_forward() -> None:
    seen: list[Position | None] = []

    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(model_call(sys._getframe()))
            return x

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    def step() -> None:
        Outer()(torch.zeros(1))

    step()
    assert [one.function for one in seen if one is not None] == ["step"]
    assert model_call(sys._getframe()) is None
