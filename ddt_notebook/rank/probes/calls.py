"""Write-ahead log of a rank's calls to ``torch.distributed``.

Thin wrappers note operation, group, reduce-op, root or peer, shapes, dtypes and the user's line in
a `RingWriter` *before* the call is made. They add what PyTorch's Flight Recorder does not keep on
gloo (point-to-point calls, reduce-op, root) and what it loses when a process dies.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ...model.operations import COLLECTIVES, MESSAGES, SETUP, Operation
from ...wire import ring
from . import rendezvous, timer_slack
from .sockets import GroupSockets

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent.parent)
_LIBRARIES = (_TORCH, _OURS, "<frozen", contextlib.__file__, functools.__file__)
#: Shapes written for one call; a longer list of tensors is cut.
_MAX_TENSORS = 4
#: Before a group is destroyed: torch 2.13 joins gloo's threads while it holds Python's lock, and
#: waits for ever if one of them has just finished an operation and needs that lock.
SETTLE_S = 0.01


class CallLog:
    """Wraps the calls of ``torch.distributed`` in this process and writes them to a ring.

    Parameters
    ----------
    sockets
        Learns which sockets belong to the groups that are formed.
    """

    def __init__(self, sockets: GroupSockets) -> None:
        self.sockets = sockets
        self.init_hook: Callable[[Sequence[Any], dict[str, Any]], None] | None = None
        self.default_timeout: Any = None
        self._ring: ring.RingWriter | None = None
        self._main = threading.get_ident()
        self._depth = 0
        self._setup_counts: Counter[str] = Counter()
        self._message_counts: Counter[tuple[object, ...]] = Counter()
        self._members: dict[str, tuple[int, ...]] = {}
        self._works: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def attach(self, writer: ring.RingWriter) -> None:
        """Start to write; before this, calls pass through unrecorded."""
        self._ring = writer
        self._main = threading.get_ident()

    def detach(self) -> None:
        """Stop to write: a child of the rank must not write to the rank's log."""
        self._ring = None

    def new_generation(self) -> None:
        """Forget groups and counts: the process groups have been formed anew."""
        self._members.clear()
        self._message_counts.clear()
        self._setup_counts.clear()
        self._works.clear()

    def install(self) -> None:
        """Replace the functions of ``torch.distributed`` by recording ones."""
        for name, known in COLLECTIVES.items():
            self._replace(name, functools.partial(self._collective, op=name, operation=known))
        for name, known in MESSAGES.items():
            self._replace(name, functools.partial(self._message, op=name, operation=known))
        for name in SETUP:
            self._replace(name, functools.partial(self._setup, op=name))
        self._wrap_work()

    @staticmethod
    def _replace(name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(c10d, name, None)
        if original is None:  # not in this version of torch
            return
        wrapper = functools.wraps(original)(wrap(original))
        for module in (c10d, dist):
            setattr(module, name, wrapper)

    # -- the three kinds of call ---------------------------------------------------------------

    def _collective(self, function: Any, op: str, operation: Operation) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not self._recording():
                return function(*args, **kwargs)
            given = operation.bind(args, kwargs)
            group = self._group(given.get("group"))
            if group is None:
                return function(*args, **kwargs)
            fields, members, process_group = group
            fields |= {"op": op, "kind": "collective"}
            if operation.reduces:
                fields["r"] = _reduce_op_name(given.get("op", dist.ReduceOp.SUM))
            if operation.root:
                fields["root"] = _global_rank(given, operation.root, members, 0)
            _describe(fields, given, operation)
            asynchronous = bool(given.get("async_op"))
            return self._make(function, args, kwargs, fields, process_group, asynchronous)

        return call

    def _message(self, function: Any, op: str, operation: Operation) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not self._recording():
                return function(*args, **kwargs)
            given = operation.bind(args, kwargs)
            group = self._group(given.get("group"))
            if group is None:
                return function(*args, **kwargs)
            fields, members, process_group = group
            assert operation.peer is not None
            peer = _global_rank(given, operation.peer, members, None)
            tag = given.get("tag", 0)
            key = (fields["g"], "send" in op, peer, tag)
            self._message_counts[key] += 1
            fields |= {
                "op": op,
                "kind": "p2p",
                "peer": peer,
                "tag": tag,
                "q": self._message_counts[key],
            }
            _describe(fields, given, operation)
            return self._make(
                function, args, kwargs, fields, process_group, operation.returns_handle
            )

        return call

    def _setup(self, function: Any, op: str) -> Any:
        # leaving a group starts no thread, and this thread's own waits are to stay exact
        leaves = op == "destroy_process_group"
        threads = contextlib.nullcontext if leaves else timer_slack.for_new_threads

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # before the session has its say: as the user's code put it
            meeting = rendezvous.describe(args, kwargs) if op == "init_process_group" else {}
            with self.sockets.watching(), threads():
                if op == "init_process_group" and self.init_hook is not None:
                    self.init_hook(args, kwargs)
                return set_up(args, kwargs, meeting)

        def set_up(args: tuple[Any, ...], kwargs: dict[str, Any], meeting: dict[str, Any]) -> Any:
            __tracebackhide__ = True
            if op == "destroy_process_group":
                time.sleep(SETTLE_S)
            if op == "new_group" and kwargs.get("timeout") is None and len(args) < 2:
                kwargs["timeout"] = self.default_timeout  # else gloo waits 30 minutes
            if not self._recording():
                return function(*args, **kwargs)
            self._setup_counts[op] += 1
            fields: dict[str, Any] = {"op": op, "kind": "setup", "q": self._setup_counts[op]}
            fields["g"] = "0"
            if op == "new_group":
                ranks = args[0] if args else kwargs.get("ranks")
                fields["s"] = [[len(ranks)]] if ranks is not None else []
            process_group = None
            if meeting:
                fields["z"] = meeting
                fields["m"] = list(range(meeting.get("world_size", 0)))
            if dist.is_initialized():
                process_group = c10d._get_default_group()
                if op != "new_group" or not kwargs.get("use_local_synchronization"):
                    fields["m"] = list(self._ranks_of(process_group))
            result = self._make(function, args, kwargs, fields, process_group, False)
            if op == "destroy_process_group" and not dist.is_initialized():
                self._members.clear()
                self._message_counts.clear()
            return result

        return call

    def _make(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        fields: dict[str, Any],
        process_group: Any,
        asynchronous: bool,
    ) -> Any:
        __tracebackhide__ = True
        writer = self._ring
        assert writer is not None
        fields["a"] = _operations(process_group)
        _locate(fields, sys._getframe(2))
        if asynchronous:
            fields["async"] = 1
        blocking = not asynchronous and "none" not in fields
        index = writer.begin(fields, time.monotonic(), blocking=blocking)
        self._depth += 1
        try:
            result = function(*args, **kwargs)
        except BaseException:
            writer.end(index, ring.FAILED, time.monotonic(), _operations(process_group))
            raise
        finally:
            self._depth -= 1
        issued = asynchronous and result is not None
        status = ring.ISSUED if issued else ring.DONE
        writer.end(index, status, time.monotonic(), _operations(process_group))
        if issued:
            self._works[result] = index
        return result

    # -- handles of asynchronous calls ---------------------------------------------------------

    def _wrap_work(self) -> None:
        log, wait, is_completed = self, dist.Work.wait, dist.Work.is_completed

        @functools.wraps(wait)
        def recorded_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            index = log._works.get(work) if log._recording() else None
            if index is None or log._ring is None:
                return wait(work, *args, **kwargs)
            log._ring.block(index, time.monotonic())
            status = ring.FAILED
            try:
                result = wait(work, *args, **kwargs)
                status = ring.DONE
                return result
            finally:
                now_s = time.monotonic()
                log._ring.settle(index, status, now_s)
                log._ring.block(None, now_s)

        @functools.wraps(is_completed)
        def recorded_is_completed(work: Any) -> Any:
            completed = is_completed(work)
            index = log._works.get(work) if completed and log._recording() else None
            if index is not None and log._ring is not None:
                log._ring.settle(index, ring.DONE, time.monotonic())
            return completed

        dist.Work.wait = recorded_wait
        dist.Work.is_completed = recorded_is_completed

    # -- helpers -------------------------------------------------------------------------------

    def _recording(self) -> bool:
        """Whether this call is the user's (or a library's) own, on the thread that runs cells."""
        return self._ring is not None and self._depth == 0 and threading.get_ident() == self._main

    def _group(self, group: Any) -> tuple[dict[str, Any], tuple[int, ...], Any] | None:
        """Fields that name the group, its members and the group; None without any group."""
        if not dist.is_initialized():
            return None
        if group is None:
            group = c10d._get_default_group()
        if group is dist.GroupMember.NON_GROUP_MEMBER or not isinstance(group, dist.ProcessGroup):
            return {"g": "", "m": [], "none": 1}, (), None
        if group not in c10d._world.pg_map:
            raise RuntimeError(
                "this process group is gone: it was destroyed, or formed anew after a failure. "
                "Run the cell again that made it with new_group() or init_device_mesh()"
            )
        members = self._ranks_of(group)
        fields = {"g": group.group_name, "m": list(members)}
        if dist.get_rank() not in members:
            fields["none"] = 1
        return fields, members, group

    def _ranks_of(self, group: Any) -> tuple[int, ...]:
        name = group.group_name
        if name not in self._members:
            self._members[name] = tuple(dist.get_process_group_ranks(group))
        return self._members[name]


def _operations(process_group: Any) -> int:
    """How many operations the group has been given so far, as its backend counts them."""
    if process_group is None:
        return -1
    try:
        return int(process_group._get_sequence_number_for_group())
    except RuntimeError:  # a backend without sequence numbers, or a group just destroyed
        return -1


def _reduce_op_name(op: Any) -> str:
    # RedOpType prints as "<RedOpType.SUM: 0>"; a premultiplied sum as an object without a name
    name = getattr(op, "name", None) or str(op)
    return str(name).rsplit(".", 1)[-1]


def _global_rank(
    given: dict[str, Any], name: str, members: Sequence[int], default: int | None
) -> int | None:
    """The global rank in argument ``src``/``dst``, or in its ``group_`` twin."""
    if given.get(name) is not None:
        return int(given[name])
    local = given.get(f"group_{name}")
    if local is not None and 0 <= int(local) < len(members):
        return int(members[int(local)])
    return default


def _describe(fields: dict[str, Any], given: dict[str, Any], operation: Operation) -> None:
    """Add shapes and dtypes; what is no tensor is left for torch to complain about."""
    tensors = _tensors(given.get(operation.tensors)) if operation.tensors else []
    if tensors:
        fields["s"] = [list(tensor.shape) for tensor in tensors]
        fields["d"] = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    outputs = _tensors(given.get(operation.outputs)) if operation.outputs else []
    if outputs:
        fields["o"] = [list(tensor.shape) for tensor in outputs]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for item in value[:_MAX_TENSORS] if isinstance(item, torch.Tensor)]
    return []


def _locate(fields: dict[str, Any], frame: FrameType | None) -> None:
    """Add the user's line, and the library's file if a library made the call."""
    library = None
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_LIBRARIES):
            fields |= {"f": code.co_filename, "l": frame.f_lineno, "n": code.co_name}
            break
        if library is None and code.co_filename.startswith(_TORCH):
            library = code.co_filename.removeprefix(_TORCH).lstrip("/")
        frame = frame.f_back
    if library is not None:
        fields["lib"] = library
