"""The write-ahead log of a rank's calls to ``torch.distributed``.

Thin wrappers write operation, group, reduce-op, root or peer, shapes, dtypes and the user's line to
a `RingWriter` *before* the call is made. They add data that PyTorch's Flight Recorder does not keep
on gloo (point-to-point calls, reduce-op, root), or that it loses when a process dies.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d

from ...model import Rendezvous
from ...model.operations import COLLECTIVES, MESSAGES, SETUP, Operation
from ...wire import ring
from ...wire.records import NO_GROUP, NO_NUMBER, CallRecord, Group
from ..branch_recorder import BranchRecorder
from ..torch_private import operation_counter
from ..training_thread import CURRENT
from ..user_signals import let_through
from . import (
    accumulated,
    early_reads,
    evaluations,
    exchanged,
    given_values,
    rendezvous,
    summed_activations,
    threads,
    time_limits,
    timer_slack,
    training,
)
from .call_arguments import (
    MAX_TENSORS,
    REDUCE_OPS,
    by_name,
    described,
    distinguishing,
    dtype_name,
    global_rank,
    integer,
    new_members,
    reduce_op_name,
    tensors_in,
)
from .call_sites import CallSite, CallSites, Made, locate, locate_in
from .coalesced import Coalesced
from .handles import Handles
from .known_calls import KnownCall, brings_data
from .simulated import UNSIMULATED
from .sockets import GroupSockets

if TYPE_CHECKING:
    from .simulated_processes import MappedBackends

#: A tag beyond this, which torch refuses, is not recorded.
_LARGEST_TAG = 1 << 63
#: Methods of a handle with which a program may wait in another way.
_ALSO_SETTLE = ("get_future", "get_future_result", "result", "synchronize", "block_current_stream")
#: Seconds to wait before a group is destroyed: torch 2.13 joins gloo's threads while it holds
#: Python's lock, and waits forever if one of them has just finished an operation and needs it.
SETTLE_S = 0.01
#: The most different calls of which the record is kept.
_MOST_KNOWN = 1024
_get_ident, _clock = threading.get_ident, time.monotonic
_evaluations, _accumulated = evaluations.RECORD, accumulated.RECORD
_given = given_values.RECORD


@dataclass(frozen=True, slots=True, eq=False)
class CallForm:
    """What calls of a framework have in common, wherever they are made; one object for all of them.

    Attributes
    ----------
    record
        Their record, without the number and the user's line.
    """

    record: CallRecord


#: What distinguishes calls of one operation in one group at one place: reduce operation, root,
#: peer, tag, and whether it returns a handle.
_Details = tuple[str | None, int | None, int | None, int, bool]
#: The recorded form of a group, whether this rank is outside of it, the group itself, and how many
#: operations it has been given.
_Found = tuple[Group, bool, Any, Callable[[], int] | None]


class CallLog:
    """Wraps the calls of ``torch.distributed`` in this process and writes them to a ring.

    Parameters
    ----------
    sockets
        Remembers which sockets belong to the groups that are formed. None in a recorded job: what
        the user's calls do is not changed there, and no error of the log reaches them.
    """

    def __init__(self, sockets: GroupSockets | None) -> None:
        self.sockets = sockets
        self.problem = ""  #: why a call of a recorded job is missing in the log
        self.init_hook: Callable[[dict[str, Any]], AbstractContextManager[None]] | None = None
        #: Is called with the exception that leaves a call, and when, before the end is recorded: a
        #: launcher may end this process in between, and a rank in a call has a reason to stand.
        self.failure_hook: Callable[[BaseException, float], None] | None = None
        #: Is called with the tensor of a broadcast and the ranks of its group, before the call.
        self.broadcast_hook: Callable[[Any, tuple[int, ...]], None] | None = None
        #: What simulated GPUs change in groups; None without them.
        self.backends: MappedBackends | None = None
        self.default_timeout: Any = None
        self.limits = time_limits.TimeLimits()
        #: Counts and hashes branch events; None while they are not observed.
        self.branches: BranchRecorder | None = None
        self._ring: ring.RingWriter | None = None
        self._main = threading.get_ident()
        self._depth = 0
        self._setup_counts: Counter[str] = Counter()
        #: The numbers of messages, by group, direction, peer and tag.
        self._numbers: dict[tuple[object, ...], Iterator[int]] = {}
        self._groups: dict[str, tuple[Group, bool]] = {}
        self._by_group: dict[Any, _Found] = {}
        self._works = Handles()
        self._sites = CallSites()
        self.latest = CallSite()  #: where the last call of a framework was made
        self._known: dict[tuple[object, ...], KnownCall] = {}
        self._coalesced = Coalesced(self, MAX_TENSORS)

    def simulate(self, gpus: int) -> None:
        """Simulate GPUs, and let gloo carry what would need them."""
        from . import simulated_cuda, simulated_processes

        simulated_cuda.install(gpus)
        simulated_processes.show_nccl()
        self.backends = simulated_processes.MappedBackends()

    def attach(self, writer: ring.RingWriter) -> None:
        """Start to record calls."""
        self._ring = writer
        self._forget_found()
        self._main = threading.get_ident()

    def follow(self) -> None:
        """Record the calls of the current thread from here on."""
        self._main = threading.get_ident()

    @property
    def in_call(self) -> bool:
        """Whether a call is being made that is recorded."""
        return self._depth > 0

    def has_calls(self) -> bool:
        """Whether this process has done more than to form groups."""
        return self._ring is not None and self._ring.written > self._setup_counts.total()

    def detach(self) -> None:
        """Stop recording: a child of the rank must not write to the rank's log."""
        self._ring = None

    def new_generation(self) -> None:
        """Forget groups and counts after the process groups were formed again."""
        self._forget_groups()
        self._setup_counts.clear()
        self._works.clear()

    def install(self) -> None:
        """Replace the functions of ``torch.distributed`` by recording ones."""
        for name, known in COLLECTIVES.items():
            self._replace(name, functools.partial(self._collective, op=name, operation=known))
        for name, known in MESSAGES.items():
            self._replace(name, functools.partial(self._message, op=name, operation=known))
        for name in SETUP:
            self._replace(name, functools.partial(self._limited_setup, op=name))
        self._wrap_work()
        self._coalesced.install()

    @staticmethod
    def _replace(name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(c10d, name, None)
        if original is None:  # not in this version of torch
            return
        wrapper = functools.wraps(original)(wrap(original))
        # a device mesh forms the default group if there is none, and a group for each dimension
        for module in (c10d, dist, *([device_mesh] if hasattr(device_mesh, name) else [])):
            setattr(module, name, wrapper)

    # -- the three kinds of call ---------------------------------------------------------------

    def _collective(self, function: Any, op: str, operation: Operation) -> Any:
        reduces, root, usual = operation.reduces, operation.root, dist.ReduceOp.SUM

        def details_of(given: Mapping[str, Any], group: Group) -> _Details:
            if reduces:
                op = given.get("op", usual)
                reduce_op = REDUCE_OPS.get(id(op)) or reduce_op_name(op)
            else:
                reduce_op = None
            at = global_rank(given, root, group.members, 0) if root is not None else None
            return reduce_op, at, None, 0, bool(given.get("async_op"))

        return self._in_group(function, op, operation, details_of)

    def _message(self, function: Any, op: str, operation: Operation) -> Any:
        def details_of(given: Mapping[str, Any], group: Group) -> _Details:
            assert operation.peer is not None
            peer = global_rank(given, operation.peer, group.members, None)
            tag = integer(given.get("tag", 0), _LARGEST_TAG) or 0
            return None, None, peer, tag, operation.returns_handle

        return self._in_group(function, op, operation, details_of)

    def _in_group(
        self,
        function: Any,
        op: str,
        operation: Operation,
        details_of: Callable[[Mapping[str, Any], Group], _Details],
    ) -> Any:
        """Record the calls of a function that takes a group."""
        is_compiling, used = torch.compiler.is_dynamo_compiling, training.RECORD.used
        sampled, summed = training.RECORD, summed_activations.RECORD
        sites, distinguished = self._sites, distinguishing(op, operation)
        reduces, examines = op == "all_reduce", op in exchanged.EXAMINED
        broadcasts = op == "broadcast"
        collected = self._coalesced.collected

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # the compiler makes a part of its graph of it, and cannot trace what records a call
            if is_compiling():
                return function(*args, **kwargs)
            if self._depth or self._ring is None or _get_ident() != self._main:
                if _get_ident() == self._main:  # as torch itself does in a function mode
                    return function(*args, **kwargs)
                if not self._moves():
                    return self._unrecorded(function, operation, args, kwargs)
            frame, known = sys._getframe(1), None
            try:
                given, asked = distinguished(args, kwargs)
                made = sites.made(frame)
                known = made.known
                if not _are_equal(made.given, asked):
                    known = self._other_call(op, operation, given, details_of, made, asked)
                if known and (
                    (broadcasts and self.broadcast_hook is not None)
                    or (reduces and (sampled.sampling or (known.sums and summed.watches)))
                ):
                    self._shows(given, known)
            except Exception as error:
                if self.sockets is not None:
                    raise
                let_through(error)
                self.problem = f"{type(error).__name__}: {error}"
                known = None
            if known is None:
                return function(*args, **kwargs)
            if collected and self._coalesced.collects(known.process_group, known.record):
                return function(*args, **kwargs)
            backends, act = self.backends, function
            if backends is not None and known.record.group.name in backends.only_gpus:
                act = _checked(function, given, backends)
            if known.of_user:
                return of_user(act, args, kwargs, known, given, frame)
            return self._perform(act, args, kwargs, known)

        def of_user(
            act: Any,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            known: KnownCall,
            given: Mapping[str, Any],
            frame: FrameType,
        ) -> Any:
            """Make a call of one of the user's lines, which may be examined."""
            __tracebackhide__ = True
            record, examined = known.record, None
            if examines:
                backwards = training.RECORD.backwards
                examined = exchanged.RECORD.before(record, operation, given, frame, backwards)
            result = self._perform(act, args, kwargs, known)
            if examined is not None:
                exchanged.RECORD.after(examined)
            if record.asynchronous and isinstance(result, dist.Work) and not used.compiled:
                rank = dist.get_rank() if operation.root is not None else 0
                early_reads.RECORD.issued(record, operation, given, result, rank)
            return result

        return call

    def _other_call(
        self,
        op: str,
        operation: Operation,
        given: Mapping[str, Any],
        details_of: Callable[[Mapping[str, Any], Group], _Details],
        made: Made,
        asked: object,
    ) -> KnownCall | None:
        """What is known of a call that was not expected; None if there is no group at all."""
        in_group = given.get("group")
        try:
            found = self._group(None) if in_group is None else self._by_group[in_group]
        except (KeyError, TypeError):
            found = self._group(in_group)
        if found is None:
            return None
        group, outside, process_group, count = found
        details = details_of(given, group)
        tensors = described(given, operation)
        limit_s = self.limits.of(op, given, group)
        key = op, group.name, made.site, details, tensors, limit_s
        known = self._known.get(key)
        if known is None:
            shapes, dtypes, outputs = tensors
            reduce_op, root, peer, tag, asynchronous = details
            record = CallRecord(
                op=op,
                kind="p2p" if op in MESSAGES else "collective",
                group=group,
                outside=outside,
                reduce_op=reduce_op,
                root=root,
                peer=peer,
                tag=tag,
                shapes=tuple(map(tuple, shapes)),
                dtypes=tuple(map(dtype_name, dtypes)),
                output_shapes=tuple(map(tuple, outputs)),
                asynchronous=asynchronous,
            )
            if limit_s and not asynchronous and self.limits.is_handled(made.site):
                record.gives_up_after_s = limit_s
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._new_call(record, made.site, process_group, count)
            if record.kind == "p2p":
                way = group.name, "send" in op, peer, tag
                known.numbers = self._numbers.setdefault(way, itertools.count(1))
        self._sites.other(made, asked, known)
        return known

    def _new_call(
        self,
        record: CallRecord,
        site: CallSite,
        process_group: Any,
        count: Callable[[], int] | None,
    ) -> KnownCall:
        """What `_perform` needs of a call that is made at a place."""
        assert self._ring is not None
        locate(record, site)
        sums = (
            record.op == "all_reduce"
            and record.reduce_op == "SUM"
            and any(len(shape) > 1 for shape in record.shapes)
        )
        shared, carries = self._ring.shared(record), brings_data(record)
        return KnownCall(record, shared, carries, sums, process_group=process_group, count=count)

    def _moves(self) -> bool:
        """Whether another thread makes a call, which from here on is the one that is recorded."""
        return self._ring is not None and _get_ident() != self._main and CURRENT.moves()

    def _unrecorded(
        self,
        function: Any,
        operation: Operation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Make a call that the log leaves out; of another thread, `threads` notes it."""
        __tracebackhide__ = True
        if self._ring is None or _get_ident() == self._main:
            return function(*args, **kwargs)
        name = self._group_name(operation, args, kwargs)
        return threads.RECORD.call(function, args, kwargs, function.__name__, name)

    def _group_name(
        self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """The group of a call that another thread makes; empty if there is none."""
        with contextlib.suppress(Exception):  # the call itself will raise it
            found = self._group(operation.bind(args, kwargs).get("group"))
            return found[0].name if found is not None else ""
        return ""

    def _limited_setup(self, function: Any, op: str) -> Any:
        return self.limits.noted(function, self._setup(function, op), op)

    def _setup(self, function: Any, op: str) -> Any:
        # leaving a group starts no thread, and this thread's own waits must stay exact
        leaves = op == "destroy_process_group"
        own = self.sockets is not None
        slack = timer_slack.for_new_threads if own and not leaves else contextlib.nullcontext

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # before the session changes the arguments of the user's code
            meeting = rendezvous.describe(args, kwargs) if op == "init_process_group" else None
            with self.sockets.watching() if self.sockets else contextlib.nullcontext(), slack():
                if self.backends is None or op not in ("init_process_group", "new_group"):
                    result = with_hook(args, kwargs, meeting)
                else:
                    args, kwargs = by_name(function, args, kwargs)
                    self.backends.choose(op, kwargs)
                    result = with_hook(args, kwargs, meeting)
                    self.backends.formed(result if op == "new_group" else dist.group.WORLD)
                if op == "new_group" and self.sockets is not None:
                    self.sockets.refuse_strangers()
                return result

        def with_hook(
            args: tuple[Any, ...], kwargs: dict[str, Any], meeting: Rendezvous | None
        ) -> Any:
            __tracebackhide__ = True
            if op != "init_process_group" or self.init_hook is None:
                return set_up(args, kwargs, meeting)
            args, kwargs = by_name(function, args, kwargs)
            with self.init_hook(kwargs):
                return set_up(args, kwargs, meeting)

        def set_up(
            args: tuple[Any, ...], kwargs: dict[str, Any], meeting: Rendezvous | None
        ) -> Any:
            __tracebackhide__ = True
            self._forget_found()  # one of the groups may end
            if leaves and own:
                time.sleep(SETTLE_S)
            if (
                op == "new_group"
                and self.default_timeout is not None
                and kwargs.get("timeout") is None
                and len(args) < 2
            ):
                kwargs["timeout"] = self.default_timeout  # otherwise gloo waits for 30 minutes
            if not self.recording():
                return function(*args, **kwargs)
            self._setup_counts[op] += 1
            record = CallRecord(op=op, kind="setup", number=self._setup_counts[op])
            record.group = Group("0")
            ranks = args[0] if args else kwargs.get("ranks")
            if op == "new_group":
                record.shapes = ((len(ranks),),) if ranks is not None else ()
            process_group = None
            if meeting is not None:
                # a store that the caller made is there, whoever serves it
                own_store = (args[5] if len(args) > 5 else kwargs.get("store")) is not None
                record.rendezvous = meeting if own_store else rendezvous.with_server(meeting)
                record.group = Group("0", tuple(range(meeting.world_size or 0)))
            if dist.is_initialized():
                process_group = dist.group.WORLD
                every = self._recorded(process_group)[0].members
                if op != "new_group" or not kwargs.get("use_local_synchronization"):
                    record.group = Group("0", every)
                if op == "new_group":
                    record.new_members = every if ranks is None else new_members(ranks)
            result = self.make(function, args, kwargs, record, process_group)
            if op == "destroy_process_group" and not dist.is_initialized():
                self._forget_groups()
            return result

        return call

    def make(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        record: CallRecord,
        process_group: Any,
    ) -> Any:
        """Make a call of the user's code, and record it."""
        __tracebackhide__ = True
        site = self._sites.of(sys._getframe(2))
        known = self._new_call(record, site, process_group, operation_counter(process_group))
        if record.number is not None:
            known.numbers = itertools.count(record.number)
        return self._perform(function, args, kwargs, known)

    def _perform(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        known: KnownCall,
    ) -> Any:
        __tracebackhide__ = True
        writer, branches, count = self._ring, self.branches, known.count
        assert writer is not None
        try:
            before = -1 if count is None else count()
        except RuntimeError:  # the group was just destroyed
            before = -1
        counted = (
            NO_NUMBER if known.numbers is None else next(known.numbers),
            before,
            NO_NUMBER if branches is None else branches.count,
            0 if branches is None else branches.hash,
        )
        index = writer.begin_known(known.shared, counted, _clock(), blocking=known.blocking)
        if known.brings_data:
            _evaluations.exchanges += 1
            if _evaluations.has_own or _evaluations.on_exchange is not None:
                _evaluations.gives(args, kwargs)
            if _accumulated.latest is not None:
                _accumulated.gives((*args, *kwargs.values()))
        self._depth += 1
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            ended_s = _clock()
            if self.failure_hook is not None:
                self.failure_hook(error, ended_s)
            after = _counted(count)
            writer.end(index, ring.FAILED, ended_s, after)
            raise
        finally:
            self._depth -= 1
        issued = known.asynchronous and result is not None
        if known.steady and before >= 0:
            after = before + known.operations
        else:
            after = _counted(count)
            known.counts(before, after)
        writer.end(index, ring.ISSUED if issued else ring.DONE, _clock(), after)
        if issued:
            self._works.add(result, index)
        return result

    def record(
        self, record: CallRecord | CallForm, function: Callable[[], Any], package: str
    ) -> Any:
        """Make a call that does not pass through ``torch.distributed``, and record it.

        The files of ``package``, which makes the call, are not named as its library.

        It may be made on another thread for which the main thread waits, such as TensorFlow's
        threads for replicas. A call that is made inside of a recorded one is not recorded. A form
        costs less for calls that are made again and again.
        """
        __tracebackhide__ = True
        writer, branches = self._ring, self.branches
        if writer is None or self._depth:
            return function()
        frame = self._frame_of(sys._getframe(1))
        if isinstance(record, CallForm):
            known = self._known_form(record, frame, package)
            shared, number = known.shared, None
        else:
            site = self.latest = self._sites.of(frame)
            locate_in(record, site, package)
            shared, number = writer.shared(record), record.number
        counted = (
            NO_NUMBER if number is None else number,
            -1,
            NO_NUMBER if branches is None else branches.count,
            0 if branches is None else branches.hash,
        )
        self._depth += 1
        index = writer.begin_known(shared, counted, _clock(), blocking=True)
        try:
            result = function()
        except BaseException as error:
            ended_s = _clock()
            if self.failure_hook is not None:
                self.failure_hook(error, ended_s)
            writer.end(index, ring.FAILED, ended_s, -1)
            raise
        finally:
            self._depth -= 1
        writer.end(index, ring.DONE, _clock(), -1)
        return result

    def issue(
        self,
        form: CallForm,
        number: int,
        function: Callable[..., Any],
        args: Sequence[Any],
        package: str,
        tensors: Sequence[torch.Tensor],
        frame: FrameType,
    ) -> tuple[Any, int | None]:
        """Begin an operation that does not pass through ``torch.distributed``, and record it.

        Parameters
        ----------
        form, number
            What is recorded: what equal calls share, and the number of this one.
        function, args
            The call.
        package
            As in `record`.
        tensors
            What the call sends.
        frame
            Where it is made.

        Returns
        -------
        tuple
            What the call returned, and the index of its record for `awaited` and `settle`.
        """
        __tracebackhide__ = True
        writer, branches = self._ring, self.branches
        if writer is None or self._depth:
            return function(*args), None
        known = self._known_form(form, self._frame_of(frame), package)
        if branches is None:
            counted = number, -1, NO_NUMBER, 0
        else:
            counted = number, -1, branches.count, branches.hash
        index = writer.begin_known(known.shared, counted, _clock(), blocking=False)
        if tensors:
            _evaluations.exchanges_data(tensors, {})
            if known.is_direct:
                _given.gives(tensors, known.record, training.RECORD.backwards, index)
            if _accumulated.latest is not None:
                _accumulated.gives(tuple(tensors))
            if training.RECORD.sampling and known.record.reduce_op is not None:
                for tensor in tensors:
                    training.RECORD.reduces(tensor)
        try:
            result = function(*args)
        except BaseException as error:
            ended_s = _clock()
            if self.failure_hook is not None:
                self.failure_hook(error, ended_s)
            writer.settle(index, ring.FAILED, ended_s)
            raise
        writer.settle(index, ring.ISSUED, _clock())
        return result, index

    def _frame_of(self, frame: FrameType) -> FrameType | None:
        """Where the recorded thread makes a call, whose frame may be another thread's."""
        here = _get_ident() == self._main
        return frame if here else sys._current_frames().get(self._main)

    def _known_form(self, form: CallForm, frame: FrameType | None, package: str) -> KnownCall:
        """What is known of calls that have a form in common and are made where the frame is."""
        made = self._sites.made(frame)
        site = self.latest = made.site
        if made.given is form and made.known is not None:
            return made.known
        known = self._known.get((form, site))
        if known is None:
            assert self._ring is not None
            record = replace(form.record)
            locate_in(record, site, package)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = KnownCall(record, self._ring.shared(record), brings_data=True)
            known.is_direct = given_values.is_direct(frame, package)
            self._known[form, site] = known
        self._sites.other(made, form, known)
        return known

    def awaited(
        self, index: int | None, blocked: bool, function: Callable[..., Any], *args: Any
    ) -> Any:
        """Wait for an operation that `issue` began.

        Parameters
        ----------
        index
            Of its record; None if it has none.
        blocked
            Whether the rank is blocked in it meanwhile.
        function, args
            Waits, and returns what this method returns.
        """
        __tracebackhide__ = True
        writer = self._ring
        if writer is None or index is None:
            return function(*args)
        if blocked:
            writer.block(index, _clock())
        try:
            result = function(*args)
        except BaseException as error:
            ended_s = _clock()
            if self.failure_hook is not None:
                self.failure_hook(error, ended_s)
            writer.end(index, ring.FAILED, ended_s, -1)
            raise
        writer.end(index, ring.DONE, _clock(), -1)
        return result

    def settle(self, index: int) -> None:
        """Record that an operation that `issue` began is complete."""
        if self._ring is not None:
            self._ring.settle(index, ring.DONE, _clock())

    def _shows(self, given: Mapping[str, Any], known: KnownCall) -> None:
        """Show the tensor of a ``broadcast`` or an ``all_reduce`` to the probes that look at it."""
        tensor, members = given.get("tensor"), known.record.group.members
        with UNSIMULATED:
            if known.record.op == "broadcast":
                if self.broadcast_hook is not None:
                    self.broadcast_hook(tensor, members)
                return
            if training.RECORD.sampling:
                training.RECORD.reduces(tensor)
            if known.sums and summed_activations.RECORD.watches:
                summed_activations.RECORD.reduces(tensor, members, sys._getframe(2))

    # -- handles of asynchronous calls ---------------------------------------------------------

    def _wrap_work(self) -> None:
        log, wait, is_completed = self, dist.Work.wait, dist.Work.is_completed
        early, works = early_reads.RECORD, self._works
        known = works.known  # looked up here: a wait is short

        @functools.wraps(wait)
        def recorded_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if log._depth and _get_ident() == log._main:  # a collective waits for its own handle
                return wait(work, *args, **kwargs)
            if early.entered:
                early.settled(work)
            handle, writer = known.get(id(work)), log._ring
            if handle is None or writer is None or log._depth or _get_ident() != log._main:
                return wait(work, *args, **kwargs)
            index = handle.index
            writer.block(index, _clock())
            status = ring.FAILED
            try:
                result = wait(work, *args, **kwargs)
                status = ring.DONE
                return result
            finally:
                now_s = _clock()
                if status == ring.FAILED and log.failure_hook is not None:
                    error = sys.exc_info()[1]
                    if error is not None:
                        log.failure_hook(error, now_s)
                writer.end(index, status, now_s)
                if status == ring.DONE:
                    known.pop(handle.key, None)

        @functools.wraps(is_completed)
        def recorded_is_completed(work: Any) -> Any:
            completed = is_completed(work)
            if completed:
                early_reads.RECORD.settled(work)
            index = works.get(work) if completed and log.recording() else None
            if index is not None and log._ring is not None:
                log._ring.settle(index, ring.DONE, time.monotonic())
            return completed

        for name in _ALSO_SETTLE:
            if hasattr(dist.Work, name):
                setattr(dist.Work, name, _settling(getattr(dist.Work, name)))
        dist.Work.wait = recorded_wait
        dist.Work.is_completed = recorded_is_completed

    # -- helpers -------------------------------------------------------------------------------

    def recording(self) -> bool:
        """Whether the user's code or a library makes this call, on the thread that runs cells."""
        return self._ring is not None and self._depth == 0 and _get_ident() == self._main

    def _forget_groups(self) -> None:
        self._groups.clear()
        self.limits.forget()
        self._numbers.clear()
        self._forget_found()

    def _forget_found(self) -> None:
        """Forget what is kept of calls, and with it the groups themselves."""
        self._by_group.clear()
        self._known.clear()
        self._sites.forget_calls()

    def _group(self, group: Any) -> _Found | None:
        """A group as it is recorded; None if there is no group at all."""
        if group is None:
            group = dist.group.WORLD
        try:
            return self._by_group[group]
        except KeyError:
            one = self._found(group, dist.group.WORLD)
            found = None if one is None else (*one, operation_counter(one[2]))
        except TypeError:  # no object that can be a key is a group
            return NO_GROUP, True, None, None
        if found is not None and found[2] is not None:
            self._by_group[group] = found
        return found

    def _found(self, group: Any, world: Any) -> tuple[Group, bool, Any] | None:
        if world is None:
            return None
        if group is world:
            return *self._recorded(world), world
        if group is dist.GroupMember.NON_GROUP_MEMBER or not isinstance(group, dist.ProcessGroup):
            return NO_GROUP, True, None
        try:
            dist.get_global_rank(group, 0)
        except ValueError:  # the group is not registered in torch
            if self.sockets is None:
                return None  # its own error follows
            raise RuntimeError(
                "this process group is gone: it was destroyed, or a failure ended it. "
                "Run the cell again that made it with new_group() or init_device_mesh()"
            ) from None
        return *self._recorded(group), group

    def _recorded(self, group: Any) -> tuple[Group, bool]:
        """The recorded form of a group, and whether this rank is outside of it."""
        name = group.group_name
        known = self._groups.get(name)
        if known is None:
            members = tuple(dist.get_process_group_ranks(group))
            known = self._groups[name] = Group(name, members), dist.get_rank() not in members
        return known


def _checked(function: Any, given: Mapping[str, Any], backends: MappedBackends) -> Any:
    """The function, which refuses tensors that simulated GPUs would refuse."""
    tensors = [tensor for value in given.values() for tensor in tensors_in(value)]

    def refusing(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        backends.refuse_on_cpu(tensors)
        return function(*args, **kwargs)

    return refusing


def _are_equal(one: object, other: object) -> bool:
    """Whether two descriptions of a call's arguments are equal."""
    try:
        return one == other
    except Exception as error:  # noqa: BLE001  (an argument may be anything; torch will refuse it)
        let_through(error)
        return False


def _counted(count: Callable[[], int] | None) -> int:
    """How many operations a group has been given; -1 if not known."""
    try:
        return -1 if count is None else count()
    except RuntimeError:  # the group was just destroyed
        return -1


def _settling(original: Any) -> Any:
    """A method of a handle with which a program may wait in another way."""

    @functools.wraps(original)
    def method(work: Any, *args: Any) -> Any:
        early_reads.RECORD.settled(work)
        return original(work, *args)

    return method
