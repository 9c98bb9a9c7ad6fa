"""What is kept of a call stands for equal calls only."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ddt_notebook.model.operations import COLLECTIVES
from ddt_notebook.rank.probes.call_arguments import described
from ddt_notebook.rank.probes.calls import CallLog
from ddt_notebook.wire.records import CallRecord
from ddt_notebook.wire.ring import RingReader, RingWriter

#: One line makes all calls, so that nothing but their arguments tells them apart.
_SOURCE = "def run(calls):\n    for make, args, kwargs in calls:\n        make(*args, **kwargs)\n"


def _recorded(path: Path, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> Any:
    """The records of calls that are made one after the other."""
    log = CallLog(None)
    log.attach(RingWriter(path))
    names: dict[str, Callable[..., None]] = {}
    exec(compile(_SOURCE, "/project/train.py", "exec"), names)
    made = {
        name: log._collective(getattr(dist, name), op=name, operation=COLLECTIVES[name])
        for name, _, _ in calls
    }
    names["run"]([(made[name], args, kwargs) for name, args, kwargs in calls])
    assert not log.problem
    reader = RingReader(path)
    return [found.call for index in range(reader.count) if (found := reader.read(index))]


def _shown(call: CallRecord) -> tuple[object, ...]:
    return (
        *(call.op, call.group.name, call.reduce_op, call.root, call.shapes, call.dtypes),
        *(call.output_shapes, call.asynchronous, call.file, call.line),
    )


def test_calls_of_one_line_are_told_apart_by_their_arguments(
    tmp_path: Path, group: dist.ProcessGroup
) -> None:
    other = dist.new_group([0])
    small, large, whole = torch.ones(2), torch.ones(2, 3), torch.ones(2, dtype=torch.int64)
    kinds: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("all_reduce", (small,), {}),
        ("all_reduce", (large,), {}),
        ("all_reduce", (whole,), {}),
        ("all_reduce", (small,), {"op": dist.ReduceOp.MAX}),
        ("all_reduce", (small, dist.ReduceOp.MAX), {"group": other}),
        ("all_reduce", (small,), {"async_op": True}),
        ("broadcast", (small, 0), {}),
        ("broadcast", (), {"tensor": small, "group_src": 0, "group": other}),
        ("all_gather_into_tensor", (small.clone(), small), {}),
        ("all_gather_into_tensor", (torch.ones(2, 3), large), {}),
        ("all_gather", ([small.clone()], small), {}),
        ("all_gather", ([whole.clone()], whole), {}),
        ("barrier", (), {}),
        ("barrier", (other,), {}),
    ]
    alone = [_shown(_recorded(tmp_path / f"alone{at}", [one])[0]) for at, one in enumerate(kinds)]
    assert len(set(alone)) == len(kinds)
    draw = random.Random(0)
    # each one again, in a step that repeats, and in any order
    order = [*range(len(kinds))] * 3 + [draw.randrange(len(kinds)) for _ in range(200)]
    calls = _recorded(tmp_path / "calls", [kinds[at] for at in order])
    assert [_shown(call) for call in calls] == [alone[at] for at in order]


def test_an_argument_that_cannot_be_compared_is_left_for_torch_to_refuse(
    tmp_path: Path, group: dist.ProcessGroup
) -> None:
    class Strange:
        def __eq__(self, _: object) -> bool:
            raise ValueError("no truth")

        __hash__ = object.__hash__

    calls = [("all_reduce", (torch.ones(2), Strange()), {}) for _ in range(2)]
    with pytest.raises(TypeError):
        _recorded(tmp_path / "calls", calls)
    reader = RingReader(tmp_path / "calls")
    assert reader.count == 1


@pytest.mark.parametrize("sizes", [np.array([1, 3]), [1, 3], torch.tensor([1, 3])])
def test_sizes_of_parts_may_be_an_array_without_a_truth_value(sizes: Any) -> None:
    """A router of experts gives torch an array of NumPy."""
    operation = COLLECTIVES["all_to_all_single"]
    given = {"input": torch.zeros(4), "output": torch.zeros(6)}
    whole = described(given, operation)
    assert described(given | {"input_split_sizes": sizes}, operation) == (*whole[:2], ())
    assert described(given | {"input_split_sizes": []}, operation) == whole
