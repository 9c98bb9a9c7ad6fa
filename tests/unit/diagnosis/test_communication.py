"""What a rank's calls say about the parts of a model that it holds."""

from __future__ import annotations

import json

import pytest

from ddt_notebook.diagnosis.communication import communication, hold_parts
from ddt_notebook.model import Call
from ddt_notebook.model.frameworks.deepspeed import ENGINE_READY, MEMBERS

from .builders import all_reduce, call, rank


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call("all_to_all_single", shapes=((64,),)), True),
        (call("all_to_all", shapes=((8,), (8,))), True),
        (call("isend", peer=1), True),
        (all_reduce(shapes=((20, 4),)), False),
        (call("all_gather", shapes=((1,),)), False),
    ],
    ids=lambda value: value.op if isinstance(value, Call) else "",
)
def test_ranks_that_exchange_activations_may_hold_parts(made: Call, expected: bool) -> None:
    """Embedding tables of recommenders and experts are each rank's own."""
    report = rank(0, made)
    assert bool(communication(report).messages) is expected
    assert hold_parts([report], ["20×4"]) is expected


@pytest.mark.parametrize(("members", "expected"), [([0, 1], False), ([0], True)])
def test_an_engine_that_averages_among_all_ranks_holds_the_whole_model(
    members: list[int], expected: bool
) -> None:
    """DeepSpeed reduces gradients in pieces that look like activations of a divided layer."""
    ready = call(ENGINE_READY, kind="setup", detail=json.dumps({MEMBERS: members}))
    reports = [rank(at, ready, all_reduce(shapes=((1474,),))) for at in (0, 1)]
    assert hold_parts(reports, ["738"]) is expected
