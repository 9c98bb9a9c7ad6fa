"""Passes the calls of ``torch.distributed``, and those that DDP issues in C++, to a handler.

A rank of a job that keeps its inputs, and the replay of that rank, see the same calls in this way.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d

from ..model.operations import COLLECTIVES, MESSAGES, SENDS, Operation
from ..model.position import Position
from ..model.replay import InputCall
from ..model.user_code import is_user_code
from . import torch_private
from .probes.call_arguments import global_rank, reduce_op_name
from .tracebacks import position

#: These consist of calls that are passed on themselves.
_OF_OTHERS = frozenset({"batch_isend_irecv"})
#: What the root alone sends; the others pass in tensors that only receive.
_FROM_ROOT = {"broadcast": "tensor", "scatter": "scatter_list"}
#: The collectives in which the root's objects stay as they are.
_ROOT_KEEPS = frozenset({"broadcast_object_list"})


@dataclass(slots=True)
class GivenCall:
    """A call that is to be made.

    Attributes
    ----------
    call
        Its description.
    group
        Its process group.
    received
        The tensors that receive its result.
    objects
        The list of Python objects that receives its result, instead of tensors.
    asynchronous
        Whether it returns a handle.
    waits
        Whether its handle belongs to a message that is received, not to a collective.
    """

    call: InputCall
    group: Any
    received: list[torch.Tensor] = field(default_factory=list)
    objects: list[Any] | None = None
    asynchronous: bool = False
    waits: bool = False


class Handler(Protocol):
    """Makes calls, or answers them in place of the other ranks."""

    def call(self, given: GivenCall, perform: Callable[[], Any]) -> Any:
        """Return what a call of the user's or of a library returns."""

    def ddp_call(self, given: GivenCall, perform: Callable[[], Any]) -> Any:
        """Return the handle of a call that DDP issues in C++."""

    def elsewhere(self, op: str) -> None:
        """Note that another thread makes a call, which is made as it is."""


class Interception:
    """Replaces functions of ``torch.distributed``; inactive until `handler` is set."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self._main = threading.get_ident()
        self._depth = 0
        self._restore: list[Callable[[], None]] = []
        self._groups: dict[int, _DdpGroup] = {}

    def install(self) -> None:
        """Replace the functions."""
        for name, operation in (COLLECTIVES | MESSAGES).items():
            if name not in _OF_OTHERS:
                self.replace(name, self._passing_on(name, operation))
        # the barriers inside of these belong to them
        for name in ("init_process_group", "new_group"):
            self.replace(name, self._passing_through)
        self._restore.append(torch_private.replace_groups_of_ddp(self._group_of_ddp))

    def replace(self, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace one function wherever it is looked up."""
        original = getattr(c10d, name, None)
        if original is None:  # not in this version of torch
            return
        wrapper = wraps(original)(wrap(original))
        for module in (c10d, dist, *([device_mesh] if hasattr(device_mesh, name) else [])):
            before = getattr(module, name)
            setattr(module, name, wrapper)
            self._restore.append(lambda m=module, b=before: setattr(m, name, b))  # type: ignore[misc]

    def remove(self) -> None:
        """Put the functions back."""
        self.handler = None
        while self._restore:
            self._restore.pop()()

    # -- calls ---------------------------------------------------------------------------------

    def _passing_on(self, name: str, operation: Operation) -> Callable[[Any], Any]:
        is_compiling = torch.compiler.is_dynamo_compiling

        def wrap(function: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                if is_compiling() or self.handler is None or self._depth:
                    return function(*args, **kwargs)
                if threading.get_ident() != self._main:
                    self.handler.elsewhere(name)
                    return function(*args, **kwargs)
                given = _describe(name, operation, args, kwargs)
                if given is None:  # torch has its own answer for such a call
                    return function(*args, **kwargs)
                with self._inside():
                    return self.handler.call(given, lambda: function(*args, **kwargs))

            return call

        return wrap

    def _passing_through(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with self._inside():
                return function(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    # -- DDP -----------------------------------------------------------------------------------

    def _group_of_ddp(self, group: Any) -> Any:
        """A group that passes on what DDP issues, in place of one of torch's."""
        if self.handler is None or isinstance(group, _DdpGroup):
            return group
        known = self._groups.get(id(group))
        if known is None:
            known = self._groups[id(group)] = _DdpGroup(self, group)
        return known

    def ddp_call(
        self,
        op: str,
        group: Any,
        sent: Sequence[torch.Tensor],
        received: Sequence[torch.Tensor],
        details: dict[str, str],
        perform: Callable[[], Any],
    ) -> Any:
        """Pass on one call that DDP issues."""
        handler = self.handler
        if handler is None:
            return perform()
        if threading.get_ident() != self._main:
            handler.elsewhere(op)
            return perform()
        call = InputCall(
            op=op,
            members=tuple(dist.get_process_group_ranks(group)),
            shapes=_shapes(sent or received),
            dtypes=_dtypes(sent or received),
            output_shapes=_shapes(received),
            details=details,
            ddp=True,
            where=_users_line(sys._getframe(1)),
            sent=checksum(sent),
            random=random_checksums(),
        )
        given = GivenCall(call, group, list(received), asynchronous=True)
        return handler.ddp_call(given, perform)


class _DdpGroup(dist.ProcessGroup):
    """What DDP gets as its process group.

    Its backend must not have gloo's name: C++ would take it for torch's own class.
    """

    def __init__(self, interception: Interception, group: Any) -> None:
        super().__init__(group.rank(), group.size())
        self._interception, self._group = interception, group

    def getBackendName(self) -> str:  # noqa: N802  (torch's name)
        return "ddt"

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Pass on the sum of a bucket of gradients."""
        details = {"reduce op": _name_of_op(opts.reduceOp)} if opts is not None else {}
        return self._pass("allreduce", tensors, tensors, details, (tensors, opts))

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Pass on what the first rank distributes: parameters, buffers, the order of buckets."""
        root = opts.rootRank if opts is not None else 0
        sent = tensors if root == self.rank() else ()
        return self._pass("broadcast", sent, tensors, {"root": str(root)}, (tensors, opts))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Pass on the comparison of the models."""
        flat = [tensor for tensors in outputs for tensor in tensors]
        return self._pass("allgather", inputs, flat, {}, (outputs, inputs, opts))

    def barrier(self, opts: Any = None) -> Any:
        """Pass on a barrier."""
        return self._pass("barrier", (), (), {}, (opts,))

    def _pass(
        self,
        op: str,
        sent: Sequence[torch.Tensor],
        received: Sequence[torch.Tensor],
        details: dict[str, str],
        args: tuple[Any, ...],
    ) -> Any:
        given = args if args[-1] is not None else args[:-1]
        return self._interception.ddp_call(
            op, self._group, sent, received, details, lambda: getattr(self._group, op)(*given)
        )


# -- descriptions ----------------------------------------------------------------------------------


def _describe(
    name: str, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> GivenCall | None:
    """A call as it will be made; None if torch refuses it, or if this rank is not in its group."""
    arguments = operation.bind(args, kwargs)
    group = arguments.get("group")
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        return None
    try:
        members = tuple(dist.get_process_group_ranks(group))
    except (KeyError, ValueError, RuntimeError):  # the group is gone: torch's own error follows
        return None
    rank = dist.get_rank()
    if rank not in members:
        return None
    details = _details(operation, arguments, members)
    passed = _tensors(arguments.get(operation.tensors or ""))
    received = _tensors(arguments.get(operation.result or ""))
    if operation.objects is not None:
        received = []
    sent = passed
    root = details.get("root")
    if name in _FROM_ROOT:
        sent = _tensors(arguments.get(_FROM_ROOT[name])) if root == str(rank) else []
    elif operation.peer is not None and operation.result is not None:
        sent = []
    objects = arguments.get(operation.result or "") if operation.objects is not None else None
    if name in _ROOT_KEEPS and root == str(rank):
        objects = None
    call = InputCall(
        op=name,
        members=members,
        shapes=_shapes(passed),
        dtypes=_dtypes(passed),
        output_shapes=_shapes(received),
        details=details,
        where=_users_line(sys._getframe(2)),
        sent=checksum(sent),
        random=random_checksums(),
    )
    asynchronous = operation.returns_handle or bool(arguments.get("async_op"))
    return GivenCall(
        call,
        group,
        [] if name in SENDS else received,
        objects if isinstance(objects, list) else None,
        asynchronous,
        waits=operation.peer is not None,
    )


def _details(
    operation: Operation, arguments: dict[str, Any], members: tuple[int, ...]
) -> dict[str, str]:
    found: dict[str, str] = {}
    if operation.reduces:
        found["reduce op"] = reduce_op_name(arguments.get("op", dist.ReduceOp.SUM))
    for word, parameter in (("root", operation.root), ("peer", operation.peer)):
        if parameter is not None:
            default = 0 if word == "root" else None
            found[word] = str(global_rank(arguments, parameter, members, default))
    if arguments.get("tag"):
        found["tag"] = str(arguments["tag"])
    return found


def _name_of_op(op: Any) -> str:
    """The name of a reduce operation as C++ passes it."""
    return reduce_op_name(getattr(op, "op", op))


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of an argument: one, a list, or a list of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _shapes(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)


def _dtypes(tensors: Sequence[torch.Tensor]) -> tuple[str, ...]:
    return tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)


def _users_line(frame: Any) -> Position | None:
    """The innermost line of the user's code."""
    while frame is not None:
        code = frame.f_code
        if is_user_code(code.co_filename):
            return position(code.co_filename, frame.f_lineno or 1, code.co_name)
        frame = frame.f_back
    return None


def why_not_kept(tensors: Sequence[torch.Tensor]) -> str:
    """Why the content of tensors cannot be kept; empty if it can."""
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"a tensor is a {type(tensor).__name__}"
        if tensor.layout != torch.strided:
            return "a tensor is sparse"
        if tensor.device.type != "cpu":
            return f"a tensor is on {tensor.device}; only tensors on the CPU are kept"
    return ""


def content(tensor: torch.Tensor) -> memoryview | bytes:
    """The bytes of a tensor on the CPU."""
    if not tensor.numel():
        return b""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return memoryview(plain.reshape(-1).view(torch.uint8).numpy())


def checksum(tensors: Sequence[torch.Tensor]) -> int | None:
    """A checksum of the content of tensors; None without tensors whose content can be read."""
    if not tensors or why_not_kept(tensors):
        return None
    found = 0
    for tensor in tensors:
        found = zlib.crc32(content(tensor), found)
    return found


def random_checksums() -> dict[str, int]:
    """Checksums of the states of the random generators, by library."""
    random, numpy = sys.modules.get("random"), sys.modules.get("numpy")
    found = {"torch": zlib.crc32(content(torch.get_rng_state()))}
    if random is not None:
        _, numbers, gauss = random.getstate()
        # the hash of numbers is the same in any process
        found["python"] = hash((numbers, gauss or 0.0)) & 0xFFFFFFFF
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        found["numpy"] = zlib.crc32(repr((kind, rest)).encode(), zlib.crc32(keys.tobytes()))
    return found
