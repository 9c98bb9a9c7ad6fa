"""The one table of operations, against PyTorch and against what is derived from it."""

from __future__ import annotations

import inspect

import pytest

from ddt_notebook.model.operations import COLLECTIVES, MESSAGES, OPERATIONS, as_recorded
from ddt_notebook.program import names


@pytest.mark.parametrize("name", OPERATIONS)
def test_parameters_are_those_of_pytorch(name: str) -> None:
    dist = pytest.importorskip("torch.distributed")
    from torch.distributed import device_mesh

    function = getattr(dist, name, None) or getattr(device_mesh, name, None)
    if function is None:
        pytest.skip(f"this PyTorch does not have {name}")
    known = OPERATIONS[name].parameters
    theirs = tuple(inspect.signature(function).parameters)
    shared = min(len(known), len(theirs))  # newer versions add parameters at the end
    assert known[:shared] == theirs[:shared]


def test_roles_name_parameters() -> None:
    for name, operation in OPERATIONS.items():
        roles = (
            operation.tensors,
            operation.objects,
            operation.outputs,
            operation.result,
            operation.root,
            operation.peer,
        )
        missing = {role for role in roles if role is not None} - {*operation.parameters}
        assert not missing, name


def test_what_the_flight_recorder_calls_an_operation_is_an_operation() -> None:
    assert {as_recorded(name) for name in OPERATIONS} <= OPERATIONS.keys()
    assert as_recorded("reduce_scatter_tensor") == "all_reduce"
    assert as_recorded("somebody_elses") == "somebody_elses"


def test_derived_tables() -> None:
    assert {"all_reduce", "send", "gather_object", "compute"} <= names.CARRYING
    assert not names.CARRYING & {"barrier", "monitored_barrier", "new_group"}
    assert {"all_reduce", "irecv"} <= names.DELIVERING_LATE
    assert not names.DELIVERING_LATE & {"isend", "gather", "recv", "broadcast_object_list"}
    assert {*COLLECTIVES, "new_group", "init_device_mesh"} <= names.CALLED_TOGETHER
    assert not names.CALLED_TOGETHER & MESSAGES.keys()


def test_arguments_are_bound_to_parameters() -> None:
    given = OPERATIONS["all_gather"].bind(["parts", "mine"], {"async_op": "True"})
    assert given == {"tensor_list": "parts", "tensor": "mine", "async_op": "True"}
