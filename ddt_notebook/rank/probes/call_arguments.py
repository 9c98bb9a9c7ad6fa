"""What a rank writes down of the arguments of a call to ``torch.distributed``."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...model.operations import Operation
from ..torch_private import DisableTorchFunction
from . import simulated

#: Shapes written for one call; a longer list of tensors is cut.
MAX_TENSORS = 4
#: A rank beyond this, which only a mistake can name, is not recorded.
_MOST_RANKS = 1 << 31
#: Parameters that make the sizes of ranks differ.
_SPLIT_SIZES = ("output_split_sizes", "input_split_sizes")
#: Shapes and dtypes of the tensors that are passed in, and shapes of those that are returned.
Tensors = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


def by_name(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by their names, so that they can be replaced."""
    try:
        return (), dict(inspect.signature(function).bind_partial(*args, **kwargs).arguments)
    except TypeError:  # torch will refuse them
        return args, kwargs


def reduce_op_name(op: Any) -> str:
    """The name of a reduce operation."""
    known = REDUCE_OPS.get(id(op))
    if known is not None:
        return known
    # RedOpType prints as "<RedOpType.SUM: 0>"; a premultiplied sum as an object without a name
    name = getattr(op, "name", None) or str(op)
    return str(name).rsplit(".", 1)[-1]


#: The usual ones by their ids, which stay theirs: torch searches all names for that of one.
REDUCE_OPS = {
    id(op): name
    for name, op in vars(dist.ReduceOp).items()
    if isinstance(op, dist.ReduceOp.RedOpType)
}


def integer(value: object, limit: int) -> int | None:
    """An integer below ``limit``; None for anything else, which torch will refuse."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return number if -limit < number < limit else None


def new_members(ranks: Any) -> tuple[int, ...]:
    """The ranks passed to ``new_group``, ascending; none if torch will refuse them."""
    numbers = [integer(rank, _MOST_RANKS) for rank in ranks]
    return tuple(sorted(number for number in numbers if number is not None and number >= 0))


def global_rank(
    given: Mapping[str, Any], name: str, members: Sequence[int], default: int | None
) -> int | None:
    """The global rank in argument ``src`` or ``dst``, or in ``group_src`` or ``group_dst``."""
    if given.get(name) is not None:
        return integer(given[name], _MOST_RANKS)
    local = integer(given.get(f"group_{name}"), _MOST_RANKS)
    if local is not None and 0 <= local < len(members):
        return members[local]
    return default


#: Stands for the type of Python objects.
_OBJECT = "object"


def described(given: Mapping[str, Any], operation: Operation) -> Tensors:
    """Shapes and dtypes; arguments that are not tensors are left for torch to refuse."""
    if simulated.active is None:
        return _described(given, operation)
    with DisableTorchFunction():  # that is enough for them
        return _described(given, operation)


def _described(given: Mapping[str, Any], operation: Operation) -> Tensors:
    one = given.get(operation.tensors) if operation.tensors else None
    if isinstance(one, torch.Tensor):
        shapes, dtypes = (one.shape,), (one.dtype,)
    else:
        tensors = tensors_in(one)
        shapes = tuple(tensor.shape for tensor in tensors)
        dtypes = tuple(tensor.dtype for tensor in tensors)
    if operation.objects and operation.objects == operation.result:
        objects = given.get(operation.objects)  # as many on each rank
        if isinstance(objects, (list, tuple)):
            shapes, dtypes = ((len(objects),),), (_OBJECT,)
    if not operation.outputs:
        return shapes, dtypes, ()
    if operation.uneven and any(_has_items(given.get(name)) for name in _SPLIT_SIZES):
        return shapes, dtypes, ()
    output = given.get(operation.outputs)
    if isinstance(output, torch.Tensor):
        return shapes, dtypes, (output.shape,)
    return shapes, dtypes, tuple(one.shape for one in tensors_in(output))


def _has_items(sizes: Any) -> bool:
    """Whether sizes are given; an array of NumPy has no truth value, and torch takes one."""
    try:
        return len(sizes) > 0
    except TypeError:  # None, or what torch will refuse
        return sizes is not None


#: Parameters that decide how a call is recorded, beside its tensors and objects.
_DECIDE = frozenset(
    {"op", "group", "async_op", "src", "dst", "group_src", "group_dst", "tag", "timeout"}
)
#: Classes of tensors whose shapes are what their attributes say.
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


#: The arguments of a call by name, and what distinguishes it.
Distinguished = tuple[Mapping[str, Any], object]


def distinguishing(
    op: str, operation: Operation
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Distinguished]:
    """A function of a call's arguments that also tells calls apart that are recorded differently.

    What it says is not the record itself, as ``None`` for the default group, and takes less time.
    """
    decide = tuple(name for name in operation.parameters if name in _DECIDE)
    tensor, output, bind = operation.tensors or "", operation.outputs, operation.bind
    is_plain = tensor and operation.objects is None and not operation.uneven

    def distinguished(
        args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_past: bool = False
    ) -> Distinguished:
        if simulated.active is not None and not is_past:
            with DisableTorchFunction():
                return distinguished(args, kwargs, is_past=True)
        given = bind(args, kwargs) if args else kwargs
        get = given.get
        if is_plain and type(one := get(tensor)) in _PLAIN:
            if output is None:
                return given, (op, one.shape, one.dtype, *map(get, decide))
            if type(to := get(output)) in _PLAIN:
                return given, (op, one.shape, one.dtype, to.shape, *map(get, decide))
        return given, (op, _described(given, operation), *map(get, decide))

    return distinguished


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    """The name of a type of elements, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def tensors_in(value: Any) -> Sequence[torch.Tensor]:
    """The first tensors in an argument that is one or a list of them."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return [item for item in value[:MAX_TENSORS] if isinstance(item, torch.Tensor)]
    return ()
