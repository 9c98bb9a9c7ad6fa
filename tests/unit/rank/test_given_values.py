"""Values that are not finite and that a rank's own calls give to others."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

from ddt_notebook.rank.probes.given_values import GivenValues, is_direct
from ddt_notebook.wire.records import CallRecord

RECORD = CallRecord(op="allreduce", file="cell[1]", line=4)


def _gives(*tensors: torch.Tensor) -> GivenValues:
    record = GivenValues()
    for call, tensor in enumerate(tensors):
        record.gives((tensor,), RECORD, backwards=3, index=call)
    return record


def test_the_first_call_with_a_value_that_is_not_finite_is_kept() -> None:
    nan, inf = torch.tensor([1.0, float("nan")]), torch.tensor(float("inf"))
    found = _gives(torch.ones(3), nan, inf).first
    assert found is not None
    assert (found.op, found.where.line, found.backwards, found.call) == ("allreduce", 4, 3, 1)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.full((4,), 3e38),  # the sum is infinite
        torch.tensor([2**62, 2**62]),
        torch.ones(2, dtype=torch.bool),
        torch.full((20_000,), float("nan")),  # too large to be looked at
    ],
)
def test_other_tensors_are_not_noted(tensor: torch.Tensor) -> None:
    assert _gives(tensor).first is None


def _in(file: str, function: Any) -> Any:
    """A function that calls another one, as if it were in a file."""
    found: dict[str, Any] = {"inner": function}
    exec(compile("def call(): return inner()", file, "exec"), found)
    return found["call"]


def _frame() -> FrameType:
    return sys._getframe(1)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["operations.py"], True),
        (["operations.py", torch.autograd.function.__file__, "operations.py"], True),
        (["operations.py", "optimizer.py", torch.autograd.graph.__file__], False),
        (["operations.py", "optimizer.py"], False),
    ],
)
def test_calls_of_a_frameworks_optimizer_are_not_the_users_own(
    files: list[str], expected: bool
) -> None:
    call: Any = _frame
    for file in files:
        call = _in(file if "/" in file else f"/x/site-packages/horovod/torch/{file}", call)
    code: CodeType = compile("found = call()", "/project/train.py", "exec")
    names = {"call": call}
    exec(code, names)
    frame: Any = names["found"]
    assert is_direct(frame, "horovod/") is expected
