"""What a rank does for Horovod: its rendezvous, the record of its collectives, the end of a wait.

Horovod's ranks meet by the name of a tensor, in any order. Each name is recorded as a group of its
own, with the number of the call under this name. Horovod's own wait is in C++ and cannot be ended,
so a rank of a session asks again and again here.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch

from ...model.frameworks.horovod import INIT, OPTIMIZER, SHUTDOWN
from ...model.named_tensors import JOIN, group_name
from ...wire.records import CallRecord, Group
from ..probes.calls import CallForm
from ..probes.sockets import GroupSockets
from . import horovod_library
from .framework import Framework
from .horovod_library import Library
from .horovod_rendezvous import Rendezvous

if TYPE_CHECKING:
    from ...wire.messages import RankSpec
    from ..probes.calls import CallLog

PACKAGE = "horovod/"
#: Shapes written for one call; more tensors are cut.
_MOST_TENSORS = 4
#: How often a rank looks whether an operation is complete, in seconds: first and at last. Horovod
#: itself looks for new operations once in a millisecond.
_LOOK_EVERY_S, _LOOK_SELDOM_S = 0.0001, 0.001
_FREED = "the session ended this wait, because a rank is missing or its call differs"
_AGAIN = "Horovod was shut down and initialised again; gradients of an unfinished step were dropped"
_ENDED = "Horovod was shut down: call hvd.init() again"
_UNUSABLE = (
    "hvd.join() was ended before all ranks had called it, and Horovod cannot be used after that: "
    "%ddt_restart starts new ranks"
)
#: All ranks come to the end of an unfinished ``hvd.join()`` within this time, in seconds.
_JOIN_LIMIT_S = 10.0
#: Where an operation's arguments have the name, the process set, the reduction and the root.
_PLACES: dict[str, tuple[int, int, int | None, int | None]] = {
    "allreduce": (3, 7, 4, None),
    "allgather": (2, 3, None, None),
    "broadcast": (3, 4, None, 2),
    "alltoall": (4, 5, None, None),
    "reducescatter": (2, 4, 3, None),
}
_GROUPED = "grouped_"
#: The arguments, beside the tensors, that make calls differ.
_KEYS: dict[str, Callable[[Sequence[Any]], Any]] = {
    **{
        prefix + op: itemgetter(*(place for place in places if place is not None))
        for op, places in _PLACES.items()
        for prefix in ("", _GROUPED)
    },
    "barrier": tuple,
    JOIN: lambda args: (),  # a tensor for the result, and a device
}
#: What is recorded of a call, and the name by which it is counted: empty if it has none.
_Form = tuple[CallForm, str]
#: The most different calls whose records are kept.
_MOST_FORMS = 1024


class Horovod(Framework):
    """Horovod, whose collectives do not pass through ``torch.distributed``."""

    def __init__(self) -> None:
        self._rank, self._world_size = 0, 1
        self._calls: CallLog | None = None
        self._library: Library | None = None
        self._store: Any = None
        self._rendezvous: Rendezvous | None = None
        self._broken = self._freed = self._joining = False
        self._inits = 0  # since the ranks met
        self._shutdowns = 0  # by the program
        self._optimizers = 0  # distributed ones that the program has made
        self._chose = False  # whether the user's code gave arguments to hvd.init()
        self._made: Counter[str] = Counter()  # calls by name
        self._members: dict[int, tuple[int, ...]] = {}  # by the number of a process set
        self._rounds: list[str] = []  # what has begun the counts of all names anew
        self._forms: dict[object, _Form] = {}  # of calls that were made before
        self._handle = 0  # the last one; Horovod counts them
        self._open: dict[int, int] = {}  # records by handle
        self._joins: set[int] = set()  # handles of hvd.join()

    def watch(self, calls: CallLog) -> None:
        """Record the collectives from now on."""
        self._calls = calls
        self._library = horovod_library.install(self)

    def begin_run(self) -> None:
        """A request to end a wait of an earlier run is out of date."""
        self._freed = False

    # -- the meeting of the ranks --------------------------------------------------------------

    def join(self, spec: RankSpec, store: Any) -> list[str]:
        """Give the rank its place, and begin anew if Horovod's ranks are out of step.

        Horovod stays as it is if every rank is well and has made the same calls.
        """
        assert self._library is not None
        self._rank, self._world_size, self._store = spec.rank, spec.world_size, store
        if self._rendezvous is None:
            self._rendezvous = Rendezvous(self._key_prefix)
        self._rendezvous.store = store
        self._freed, was_initialised = False, bool(self._library.is_initialised())
        _set_environment(spec, self._rendezvous.port)
        # calls without a name meet by the numbers of their handles
        made = self._inits, self._handle, sorted(self._made.items()), self._rounds
        calls = zlib.crc32(repr(made).encode())
        said = json.dumps([was_initialised, self._broken, calls, bool(self._joins)])
        store.set(f"rank/{spec.rank}", said)
        ranks = [json.loads(store.get(f"rank/{rank}")) for rank in range(spec.world_size)]
        if all(one == ranks[0] for one in ranks) and not self._broken:
            return []
        all_initialised = all(initialised for initialised, *_ in ranks)
        usable = not any(joins for *_, joins in ranks) or (all_initialised and self._end_join())
        again = all_initialised and usable and not self._chose
        self._joining = True
        try:
            self._forget()
            if was_initialised:
                self._library.shut_down()
            if again:
                self.meet(range(spec.world_size), store.timeout.total_seconds())
                self._library.initialise()
                _drop_unfinished_steps()
        finally:
            self._joining = False
        if not usable:
            return [_UNUSABLE]
        if again:
            return [_AGAIN]
        return [_ENDED] if was_initialised else []

    def _end_join(self) -> bool:
        """Let all ranks call ``hvd.join()`` if one of them has; returns whether that ended it.

        Horovod keeps that a rank has joined when it is shut down and initialised again.
        """
        assert self._library is not None
        handle = next(iter(self._joins), None)
        if handle is None:
            handle = self._library.begin_join()
        until_s = time.monotonic() + _JOIN_LIMIT_S
        while not self._library.is_complete(handle):
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_SELDOM_S)
        return True

    def _forget(self) -> None:
        self._broken = False
        self._inits = self._handle = 0
        for known in (self._rounds, self._members, self._open, self._joins):
            known.clear()
        self._begin_counts()

    def _begin_counts(self, *because: str) -> None:
        """Count all names anew, as ``because`` says for calls from now on."""
        self._rounds += because
        self._made.clear()
        self._forms.clear()

    def _key_prefix(self) -> str:
        """Before the keys of a rendezvous: Horovod uses the same ones each time."""
        return f"init/{self._inits}"

    def meet(self, members: Sequence[int], limit_s: float = math.inf) -> None:
        """Wait until all members have called ``hvd.init()``, so that none waits in Horovod.

        There, a rank that waits for others cannot be interrupted, and it says nothing. The session
        watches the wait of a cell, and ends it by `free`; other waits need a limit.

        Raises
        ------
        RuntimeError
            If the wait was ended, or a member is missing after ``limit_s`` seconds.
        """
        until_s = time.monotonic() + limit_s
        here = f"{self._key_prefix()}/come"
        self._store.set(f"{here}/{self._rank}", "")
        missing = set(members)
        while missing:
            missing = {rank for rank in missing if not self._store.check([f"{here}/{rank}"])}
            if self._freed:
                raise RuntimeError(_FREED)
            if time.monotonic() > until_s:
                raise RuntimeError(f"ranks {sorted(missing)} have not come to Horovod again")
            time.sleep(_LOOK_SELDOM_S)

    def initialised(self, members: Sequence[int], function: Callable[[], Any], plain: bool) -> Any:
        """Record ``hvd.init()`` and make it; ``plain``: it was called without arguments."""
        __tracebackhide__ = True
        assert self._calls is not None
        assert self._library is not None
        if self._library.is_initialised():
            return function()
        if self._joining:
            return self._connected(function)
        self._chose = not plain
        record = self._record_of_init(members)
        members = record.group.members

        def meet_and_make() -> Any:
            __tracebackhide__ = True
            self.meet(members)
            return self._connected(function)

        return self._calls.record(record, meet_and_make, PACKAGE)

    def _record_of_init(self, members: Sequence[int]) -> CallRecord:
        """The record of ``hvd.init()``, with which all counts begin anew."""
        self._inits += 1
        self._handle = 0
        for known in (self._members, self._open, self._joins):
            known.clear()
        self._begin_counts(*["init"] * (self._inits > 1))
        record = CallRecord(op=INIT, kind="setup", number=self._inits)
        record.group = Group("0", tuple(members) or tuple(range(self._world_size)))
        return record

    def shut_down(self, function: Callable[[], Any]) -> Any:
        """Record that the program ends Horovod, which ends it on all ranks, and let it."""
        __tracebackhide__ = True
        assert self._calls is not None
        self._shutdowns += 1
        record = CallRecord(op=SHUTDOWN, kind="setup", number=self._shutdowns)
        return self._calls.record(record, function, PACKAGE)

    def made_optimizer(self, settings: dict[str, str]) -> None:
        """Record what the user has made a distributed optimizer with."""
        __tracebackhide__ = True
        assert self._calls is not None
        self._optimizers += 1
        record = CallRecord(
            op=OPTIMIZER, kind="setup", number=self._optimizers, detail=json.dumps(settings)
        )
        self._calls.record(record, lambda: None, PACKAGE)

    @staticmethod
    def _connected(function: Callable[[], Any]) -> Any:
        """Let Horovod connect its ranks, and refuse connections to another user's process."""
        sockets = GroupSockets()  # its own: the end of a wait must not end Horovod's connections
        with sockets.watching():
            result = function()
            sockets.refuse_strangers()
        return result

    def free(self) -> None:
        """End this rank's wait; the next look for the operation raises."""
        self._freed = True

    # -- records -------------------------------------------------------------------------------

    def begun(self, op: str, function: Callable[..., int], args: Sequence[Any]) -> int:
        """Record the begin of an operation, and begin it; returns its handle."""
        __tracebackhide__ = True
        assert self._calls is not None
        assert self._library is not None
        found = self._form(op, args)
        if found is None:
            return function(*args)
        (form, name), tensors = found
        self._handle += 1  # Horovod takes one even if it refuses the call
        number = self._handle  # Horovod gives it the number of its handle for a name
        if name:
            number = self._made[name] = self._made[name] + 1
        handle, index = self._calls.issue(
            form, number, function, args, PACKAGE, tensors, sys._getframe(2)
        )
        self._handle = handle
        if index is not None:
            self._open[handle] = index
        if op == JOIN:
            self._joins.add(handle)
        return handle

    def _form(self, op: str, args: Sequence[Any]) -> tuple[_Form, Sequence[torch.Tensor]] | None:
        """What is recorded of a call, and what it sends; None before ``hvd.init()``.

        What a training loop calls again and again is looked up.
        """
        assert self._library is not None
        first = args[0] if args else None
        if isinstance(first, torch.Tensor):
            tensors: Sequence[torch.Tensor] = (first,)
            key: object = op, _KEYS[op](args), first.shape, first.dtype
        else:
            tensors = _tensors(first)
            shapes = tuple((one.shape, one.dtype) for one in tensors[:_MOST_TENSORS])
            key = op, _KEYS[op](args), shapes
        form = self._forms.get(key)
        if form is None:  # to ask Horovod each time takes a tenth of the time of a record
            if not self._library.is_initialised():
                return None
            form = self._new_form(key, op, args, tensors)
        return form, tensors

    def _new_form(
        self, key: object, op: str, args: Sequence[Any], tensors: Sequence[torch.Tensor]
    ) -> _Form:
        """What is recorded of calls with a key, which is kept."""
        assert self._library is not None
        record = CallRecord(op=op, asynchronous=True)
        name, process_set = "", 0
        places = _PLACES.get(op.removeprefix(_GROUPED))
        if places is not None:
            name_at, set_at, reduction_at, root_at = places
            given, process_set = args[name_at], int(args[set_at])
            name = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
            if reduction_at is not None:
                record.reduce_op = self._library.reduction(args[reduction_at])
            if root_at is not None:
                record.root = int(args[root_at])
            cut = tensors[:_MOST_TENSORS]
            record.shapes = tuple(tuple(tensor.shape) for tensor in cut)
            record.dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in cut)
        elif op == "barrier":
            process_set = int(args[0]) if args else 0
        members = self._members_of(process_set)
        of_set = members if process_set else None
        record.group = Group(group_name(op, name, of_set, self._rounds), members)
        form = CallForm(record), record.group.name if name or places is None else ""
        if len(self._forms) >= _MOST_FORMS:
            self._forms.clear()
        if process_set in self._members:  # Horovod refuses others, and may give them members later
            self._forms[key] = form
        return form

    def _members_of(self, process_set: int) -> tuple[int, ...]:
        assert self._library is not None
        if process_set not in self._members:
            known = self._library.process_sets()
            self._members = {number: tuple(ranks) for number, ranks in known.items()}
        return self._members.get(process_set, tuple(range(self._world_size)))

    def polled(self, handle: int, complete: int) -> int:
        """Record that an operation was seen to be complete."""
        assert self._calls is not None
        if complete and handle in self._open:
            self._calls.settle(self._open.pop(handle))
        return complete

    def waited(self, handle: int, poll: Callable[[int], int], wait: Callable[[int], Any]) -> Any:
        """Wait for an operation, and record how it ended."""
        __tracebackhide__ = True
        assert self._calls is not None
        index = self._open.pop(handle, None)
        try:
            if poll(handle):
                result = self._calls.awaited(index, False, wait, handle)
            else:
                result = self._calls.awaited(index, True, self._taken, handle, poll, wait)
        except RuntimeError as error:
            self._broken |= "shut down" in str(error)
            raise
        except KeyboardInterrupt:  # the operation goes on, and would meet one of the next cell
            self._broken = True
            raise
        if handle in self._joins:
            # calls before it need not have been made by all ranks
            self._joins.remove(handle)
            self._begin_counts("join")
        return result

    def _taken(self, handle: int, poll: Callable[[int], int], wait: Callable[[int], Any]) -> Any:
        """Look until an operation is complete, and take its result."""
        __tracebackhide__ = True
        pause_s = _LOOK_EVERY_S
        while True:
            if self._freed and not self._joining:
                self._broken = True
                raise RuntimeError(_FREED)
            time.sleep(pause_s)
            if poll(handle):
                return wait(handle)
            pause_s = min(2 * pause_s, _LOOK_SELDOM_S)


def _tensors(first: Any) -> Sequence[torch.Tensor]:
    """The tensors that an operation sends: its first argument, if that is a list."""
    many = first if isinstance(first, (list, tuple)) else ()
    return [tensor for tensor in many if isinstance(tensor, torch.Tensor)]


def _set_environment(spec: RankSpec, port: int) -> None:
    """Set what horovodrun sets for processes on one host with gloo."""
    os.environ.update(
        {
            "HOROVOD_RANK": str(spec.rank),
            "HOROVOD_SIZE": str(spec.world_size),
            "HOROVOD_LOCAL_RANK": str(spec.rank),
            "HOROVOD_LOCAL_SIZE": str(spec.world_size),
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
            "HOROVOD_HOSTNAME": "localhost",
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        }
    )


def _drop_unfinished_steps() -> None:
    """Let optimizers forget operations that the end of Horovod has ended.

    ``load_state_dict`` of Horovod's optimizer forgets them, too, when an elastic job begins anew.
    """
    for optimizer in gc.get_objects():
        state = (
            getattr(optimizer, "__dict__", {})
            if isinstance(optimizer, torch.optim.Optimizer)
            else {}
        )
        if "_handles" in state and "_allreduce_delay" in state:
            state.update(_handles={}, _synchronized=False)
            optimizer.set_backward_passes_per_step(optimizer.backward_passes_per_step)
