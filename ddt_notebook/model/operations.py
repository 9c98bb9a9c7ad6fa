"""The calls of ``torch.distributed`` that are recorded, and what their arguments mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Signature:
    """Which argument of an operation means what."""

    names: tuple[str, ...]
    tensors: str | None = None
    outputs: str | None = None
    root: str | None = None
    peer: str | None = None
    reduces: bool = False


def _op(names: str, tensors: str | None = None, **roles: Any) -> Signature:
    return Signature(tuple(names.split()), tensors, **roles)


COLLECTIVES = {
    "all_reduce": _op("tensor op group async_op", "tensor", reduces=True),
    "all_reduce_coalesced": _op("tensors op group async_op", "tensors", reduces=True),
    "broadcast": _op("tensor src group async_op group_src", "tensor", root="src"),
    "reduce": _op("tensor dst op group async_op group_dst", "tensor", root="dst", reduces=True),
    "all_gather": _op("tensor_list tensor group async_op", "tensor", outputs="tensor_list"),
    "all_gather_into_tensor": _op(
        "output_tensor input_tensor group async_op", "input_tensor", outputs="output_tensor"
    ),
    "all_gather_single": _op(
        "output_tensor input_tensor group async_op", "input_tensor", outputs="output_tensor"
    ),
    "all_gather_coalesced": _op(
        "output_tensor_lists input_tensor_list group async_op", "input_tensor_list"
    ),
    "all_gather_object": _op("object_list obj group"),
    "gather": _op("tensor gather_list dst group async_op group_dst", "tensor", root="dst"),
    "gather_object": _op("obj object_gather_list dst group group_dst", root="dst"),
    "scatter": _op("tensor scatter_list src group async_op group_src", "tensor", root="src"),
    "scatter_object_list": _op(
        "scatter_object_output_list scatter_object_input_list src group group_src", root="src"
    ),
    "broadcast_object_list": _op("object_list src group device group_src", root="src"),
    "reduce_scatter": _op(
        "output input_list op group async_op", "input_list", outputs="output", reduces=True
    ),
    "reduce_scatter_tensor": _op(
        "output input op group async_op", "input", outputs="output", reduces=True
    ),
    "reduce_scatter_single": _op(
        "output input op group async_op", "input", outputs="output", reduces=True
    ),
    "all_to_all_single": _op(
        "output input output_split_sizes input_split_sizes group async_op", "input"
    ),
    "all_to_all": _op("output_tensor_list input_tensor_list group async_op", "input_tensor_list"),
    "barrier": _op("group async_op device_ids"),
    "monitored_barrier": _op("group timeout wait_all_ranks"),
}
MESSAGES = {
    "send": _op("tensor dst group tag group_dst", "tensor", peer="dst"),
    "isend": _op("tensor dst group tag group_dst", "tensor", peer="dst"),
    "recv": _op("tensor src group tag group_src", "tensor", peer="src"),
    "irecv": _op("tensor src group tag group_src", "tensor", peer="src"),
    "send_object_list": _op("object_list dst group device group_dst", peer="dst"),
    "recv_object_list": _op("object_list src group device group_src", peer="src"),
}
SETUP = ("init_process_group", "new_group", "destroy_process_group")
