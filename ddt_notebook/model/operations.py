"""The operations of ``torch.distributed``, with their parameters and properties.

This is the only table of them. The ranks' call log, the matching of calls across ranks, the
program analysis and lint all use it; a new collective of PyTorch has to be added here only.
Collectives of other frameworks are in `model.frameworks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .position import Position
from .user_code import is_user_code

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One function of ``torch.distributed``.

    Attributes
    ----------
    parameters
        The names of its parameters, in order.
    tensors
        The parameter with the tensors that this rank passes in.
    objects
        The parameter with the Python object that this rank passes in, or with a list of them.
    outputs
        The parameter with the tensors that receive the result, if the call log records their
        shapes beside those of ``tensors``.
    result
        The parameter that holds the result afterwards; None if there is none.
    root
        The parameter with the global rank of source or destination.
    peer
        The parameter with the global rank of the other side of a message.
    reduces
        Whether a reduce-op combines the values of several ranks.
    agrees
        Whether ``result`` is the same on every member afterwards.
    uneven
        Whether sizes may differ between ranks. If the call log has the shapes of outputs, too, the
        call divided its tensors evenly, and all sizes are alike.
    root_sized
        Whether the Flight Recorder records the sizes on the root only.
    recorded_as
        The Flight Recorder's name for what the operation issues on gloo; None if it has the same.
    returns_handle
        Whether the operation always returns a handle. Others do so with ``async_op=True``.
    """

    parameters: tuple[str, ...]
    tensors: str | None = None
    objects: str | None = None
    outputs: str | None = None
    result: str | None = None
    root: str | None = None
    peer: str | None = None
    reduces: bool = False
    agrees: bool = False
    uneven: bool = False
    root_sized: bool = False
    recorded_as: str | None = None
    returns_handle: bool = False

    @property
    def payload(self) -> str | None:
        """The parameter with what this rank passes in; None for a barrier."""
        return self.tensors or self.objects

    @property
    def may_be_asynchronous(self) -> bool:
        """Whether a call can return before the operation is done."""
        return self.returns_handle or "async_op" in self.parameters

    def bind(self, args: Sequence[_T], keywords: Mapping[str, _T]) -> dict[str, _T]:
        """The arguments of a call by the names of their parameters; extra arguments are dropped."""
        if not args:
            return dict(keywords)
        # the usual numbers of arguments, in less time
        if len(args) == 1:
            return {self.parameters[0]: args[0], **keywords}
        if len(args) == 2 and len(self.parameters) > 1:
            return {self.parameters[0]: args[0], self.parameters[1]: args[1], **keywords}
        given = dict(zip(self.parameters, args, strict=False))
        if keywords:
            given.update(keywords)
        return given

    def position(self, parameter: str | None) -> int | None:
        """The position of a parameter, None if the operation does not have it."""
        return self.parameters.index(parameter) if parameter in self.parameters else None


def _op(
    parameters: str, tensors: str | None = None, result: str | None = None, **properties: Any
) -> Operation:
    names = tuple(parameters.split())
    return Operation(parameters=names, tensors=tensors, result=result, **properties)


_GATHERED = _op(
    "output_tensor input_tensor group async_op",
    "input_tensor",
    "output_tensor",
    outputs="output_tensor",
    agrees=True,
    recorded_as="all_gather",
)
_SCATTERED = _op(
    "output input op group async_op",
    "input",
    "output",
    outputs="output",
    reduces=True,
    recorded_as="all_reduce",
)
#: Every member of the group has to call these.
COLLECTIVES: dict[str, Operation] = {
    "all_reduce": _op("tensor op group async_op", "tensor", "tensor", reduces=True, agrees=True),
    "all_reduce_coalesced": _op(
        "tensors op group async_op", "tensors", "tensors", reduces=True, agrees=True
    ),
    "broadcast": _op(
        "tensor src group async_op group_src", "tensor", "tensor", root="src", agrees=True
    ),
    "reduce": _op(
        "tensor dst op group async_op group_dst", "tensor", "tensor", root="dst", reduces=True
    ),
    "all_gather": _op(
        "tensor_list tensor group async_op",
        "tensor",
        "tensor_list",
        outputs="tensor_list",
        agrees=True,
    ),
    "all_gather_into_tensor": _GATHERED,
    "all_gather_single": _GATHERED,
    "all_gather_coalesced": _op(
        "output_tensor_lists input_tensor_list group async_op",
        "input_tensor_list",
        "output_tensor_lists",
        agrees=True,
        recorded_as="all_gather",
    ),
    "all_gather_object": _op(
        "object_list obj group", objects="obj", result="object_list", agrees=True
    ),
    "gather": _op(
        "tensor gather_list dst group async_op group_dst",
        "tensor",
        "gather_list",
        root="dst",
        root_sized=True,
    ),
    "gather_object": _op(
        "obj object_gather_list dst group group_dst",
        objects="obj",
        result="object_gather_list",
        root="dst",
    ),
    "scatter": _op(
        "tensor scatter_list src group async_op group_src",
        "tensor",
        "tensor",
        root="src",
        root_sized=True,
    ),
    "scatter_object_list": _op(
        "scatter_object_output_list scatter_object_input_list src group group_src",
        objects="scatter_object_input_list",
        result="scatter_object_output_list",
        root="src",
    ),
    "broadcast_object_list": _op(
        "object_list src group device group_src",
        objects="object_list",
        result="object_list",
        root="src",
        agrees=True,
    ),
    "reduce_scatter": _op(
        "output input_list op group async_op",
        "input_list",
        "output",
        outputs="output",
        reduces=True,
        recorded_as="all_reduce",
    ),
    "reduce_scatter_tensor": _SCATTERED,
    "reduce_scatter_single": _SCATTERED,
    "all_to_all_single": _op(
        "output input output_split_sizes input_split_sizes group async_op",
        "input",
        "output",
        outputs="output",
        uneven=True,
    ),
    "all_to_all": _op(
        "output_tensor_list input_tensor_list group async_op",
        "input_tensor_list",
        "output_tensor_list",
        uneven=True,
        recorded_as="all_to_all_single",
    ),
    "barrier": _op("group async_op device_ids timeout"),
    "monitored_barrier": _op("group timeout wait_all_ranks"),
}
_RECEIVED = "tensor src group tag group_src"
_SENT = "tensor dst group tag group_dst"
#: A sender and a receiver call these.
MESSAGES: dict[str, Operation] = {
    "send": _op(_SENT, "tensor", peer="dst"),
    "isend": _op(_SENT, "tensor", peer="dst", returns_handle=True),
    "recv": _op(_RECEIVED, "tensor", "tensor", peer="src"),
    "irecv": _op(_RECEIVED, "tensor", "tensor", peer="src", returns_handle=True),
    "send_object_list": _op(
        "object_list dst group device group_dst use_batch", objects="object_list", peer="dst"
    ),
    "recv_object_list": _op(
        "object_list src group device group_src use_batch",
        objects="object_list",
        result="object_list",
        peer="src",
    ),
}
#: These form and destroy groups; every rank has to call them.
SETUP: dict[str, Operation] = {
    "init_process_group": _op(
        "backend init_method timeout world_size rank store group_name pg_options device_id"
    ),
    "new_group": _op(
        "ranks timeout backend pg_options use_local_synchronization group_desc device_id"
    ),
    "destroy_process_group": _op("group"),
}
#: These form several groups with ``new_group``; the call log records those calls.
SUBGROUPS: dict[str, Operation] = {
    "new_subgroups": _op("group_size group timeout backend pg_options group_desc"),
    "new_subgroups_by_enumeration": _op(
        "ranks_per_subgroup_list timeout backend pg_options group_desc"
    ),
    "init_device_mesh": _op("device_type mesh_shape mesh_dim_names backend_override"),
}
#: The messages that receive, and those that send.
RECEIVES = frozenset(name for name, op in MESSAGES.items() if op.result is not None)
SENDS = frozenset(MESSAGES) - RECEIVES
#: Collectives without data, in which ranks only wait for each other.
BARRIERS = frozenset(name for name, op in COLLECTIVES.items() if op.payload is None)
#: Calls that return after they have happened, with every backend: barriers, and those of Python
#: objects, whose result is copied to the host.
BLOCKS_HOST = BARRIERS | {name for name in COLLECTIVES if "_object" in name}
OPERATIONS: dict[str, Operation] = {**COLLECTIVES, **MESSAGES, **SETUP, **SUBGROUPS}

#: The backends' names for operations in the Flight Recorder and the profiler, without the
#: prefix (``gloo:``, ``nccl:``).
_BACKENDS_NAMES = {
    "alltoall": "all_to_all_single",
    "alltoall_base": "all_to_all_single",
    "_all_gather_base": "all_gather",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
}


#: Where a main thread waits for the collectives that a backward pass of DDP or FSDP issues.
_BACKWARD = ("autograd/graph.py", "_engine_run_backward")
#: Where DDP waits before a forward pass: it distributes buffers, and agrees on new buckets.
_FORWARD = ("nn/parallel/distributed.py", "_pre_forward")
#: What `operation_of` returns besides operations, as English.
PASSES = {"backward": "a backward pass", "forward": "a forward pass of DDP"}


def operation_of(stack: Sequence[Position]) -> str:
    """The operation of ``torch.distributed`` inside which a stack ends; empty if it is in none.

    A key of `PASSES` stands for the collectives that a pass of the model may have issued.

    Parameters
    ----------
    stack
        The frames, outermost first.
    """
    for frame in reversed(stack):
        if is_user_code(frame.file):
            break
        if "torch/distributed" in frame.file and frame.function in OPERATIONS:
            return frame.function
        if frame.file.endswith(_BACKWARD[0]) and frame.function == _BACKWARD[1]:
            return "backward"
    innermost = stack[-1] if stack else None
    if innermost is not None and innermost.file.endswith(_FORWARD[0]):
        return "forward" if innermost.function == _FORWARD[1] else ""
    return ""


def from_recorder(name: str) -> str:
    """``"all_reduce"`` for the recorder's or the profiler's ``"nccl:allreduce"``."""
    op = name.rsplit(":", 1)[-1]
    return _BACKENDS_NAMES.get(op, op)


def as_recorded(op: str) -> str:
    """The Flight Recorder's name for what a call of ``op`` issues on gloo."""
    operation = OPERATIONS.get(op)
    return operation.recorded_as or op if operation is not None else op
