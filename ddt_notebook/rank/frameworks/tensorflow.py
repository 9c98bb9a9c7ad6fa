"""What a rank does for TensorFlow: its cluster, the record of its collectives, the end of a wait.

A rank is a worker of a cluster that ``TF_CONFIG`` describes. TensorFlow runs collectives inside of
the execution of a graph, so one execution of a graph that contains collectives is one record. The
collectives that run eagerly, such as those that create variables, are records of their own.

Checked with TensorFlow 2.21. Private names are looked up when the rank starts, and all of them
stand in `_install`.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...model import Observation, Rendezvous
from ...model.collective import Shape
from ...model.frameworks.tensorflow import STRATEGY
from ...model.partition import RankPartition
from ...model.user_code import package_file
from ...wire.records import CallRecord, Group
from .. import tracebacks
from ..probes.calls import CallForm
from ..probes.objects import IN_FRAMEWORK
from ..training_thread import CURRENT
from . import tensorflow_variables
from .framework import Framework
from .tensorflow_data import TensorFlowRecord
from .tensorflow_keras import KerasOfProgram

if TYPE_CHECKING:
    from ...wire.messages import RankSpec
    from ..probes.calls import CallLog

_PACKAGE = "tensorflow/"
#: Shapes written for one execution; more collectives are cut.
_MOST_SHAPES = 8
#: Collectives of one graph whose lines are kept.
_MOST_LINES = 32
#: How often a worker looks whether the others have come, in seconds.
_LOOK_EVERY_S = 0.005
#: Nodes of a graph that begin so prepare a collective and do not communicate.
_PREPARES = ("CollectiveInit", "CollectiveAssign")
_FREED = "the session ended this wait, because a worker is missing or its call differs"
_ABORTED = (
    "TensorFlow's collectives were aborted: make the strategy again, and the model and the "
    "optimizer in its scope; until then, variables can still be read"
)
#: A whole cluster: its addresses, the chief's first, and the number of this worker in it.
_Place = tuple[tuple[str, ...], int]


@dataclass(slots=True)
class _Graph:
    """A graph with collectives."""

    name: str
    tensors: tuple[Any, ...]  # shape and type of what its collectives send
    operations: tuple[Any, ...]  # its collectives
    form: CallForm | None = None  # of an execution in the group of the last one


class TensorFlow(Framework):
    """TensorFlow, whose collectives do not pass through ``torch.distributed``."""

    def __init__(self) -> None:
        self._rank, self._world_size = 0, 1
        self._calls: CallLog | None = None
        self._record = TensorFlowRecord()
        self._store: Any = None
        self._directory: str | None = None  # of the session, which ends with it
        self._epoch = ""  # names the meeting that gave the cluster of now
        self._broken = self._freed = False
        self._outdated = False  # whether TensorFlow still has the connections of an earlier cluster
        self._ended: list[Any] = []  # contexts and iterators of earlier clusters
        self._reserved: socket.socket | None = None
        self._config = ""
        self._strategies = 0  # of several workers, made in this cluster
        self._made = 0  # calls in this cluster
        self._become_rank: Callable[[dict[str, Any]], object] | None = None  # in a job
        self._group = Group("0")
        #: By the function that executes it.
        self._found: weakref.WeakKeyDictionary[Any, _Graph | None] = weakref.WeakKeyDictionary()

    def watch(self, calls: CallLog) -> None:
        """Record the collectives from now on."""
        self._calls = calls
        _install(self)
        self._record.install()
        tracebacks.FAILED_AT.append(self._record.failures.where)
        CURRENT.served_by = self._record.served_by
        KerasOfProgram().install()
        IN_FRAMEWORK.values = tensorflow_variables.values  # type: ignore[method-assign]

    def watch_job(self, calls: CallLog, become_rank: Callable[[dict[str, Any]], object]) -> None:
        """Record a job, in which a process becomes a rank when it makes a strategy.

        Parameters
        ----------
        calls
            See `watch`.
        become_rank
            Is called then, with what a rank of ``torch.distributed`` would give
            ``init_process_group``.
        """
        self._become_rank = become_rank
        self.watch(calls)

    def begin_run(self) -> None:
        """Observe data and updates of another run."""
        self._record.begin_run()

    def begin_trace(self) -> None:
        """Time what graphs do."""
        self._record.trace.start(self._directory)

    def observed(self, rank: int, namespace: Mapping[str, Any]) -> Observation | None:
        """The data and updates since the run began."""
        seen = self._record.observed(rank)
        samples = self._record.samples
        loaders = samples.described(namespace, None)
        read = None
        if samples.uncounted or any(loader.last_run == samples.run for loader in loaders):
            read = RankPartition(rank=rank, run=samples.run, loaders=loaders)
        if seen is None and read is None:
            return None
        return Observation(rank=rank, tensorflow=seen, partition=read)

    def completed(
        self, seen: Observation, namespace: Mapping[str, Any], names: list[str] | None = None
    ) -> Observation:
        """With the samples of ``tf.data``, and memory and devices of variables, where asked for."""
        if seen.partition is not None:
            read = self._record.samples.described(namespace, names)
            loaders = (*seen.partition.loaders, *read)
            seen = replace(seen, partition=replace(seen.partition, loaders=loaders))
        if seen.timeline is not None:
            seen = replace(seen, timeline=self._record.trace.stop(seen.timeline))
        if seen.memory is not None:
            memory = tensorflow_variables.with_variables(seen.memory, namespace, names)
            seen = replace(seen, memory=memory)
        if seen.placement is not None:
            placed = tensorflow_variables.with_placement(seen.placement, namespace, names)
            seen = replace(seen, placement=placed)
        return seen

    # -- the cluster ---------------------------------------------------------------------------

    def join(self, spec: RankSpec, store: Any) -> list[str]:
        """Give the rank its place in a cluster of all ranks.

        The cluster stays as it is if every rank is well and has made as many calls. Otherwise each
        rank gets a new address: an aborted collective leaves TensorFlow unable to run another one.
        Its connections end when the user's code makes a strategy, because variables can be read
        until then.
        """
        self._rank, self._world_size, self._store = spec.rank, spec.world_size, store
        self._directory = spec.directory
        known = self._config
        address, reserved = _reserve(_own_address(spec.store_address, spec.port))
        said = json.dumps([address, self._epoch, self._broken, self._made])
        store.set(f"worker/{spec.rank}", said)
        workers = [json.loads(store.get(f"worker/{rank}")) for rank in range(spec.world_size)]
        alike = all(worker[1:] == workers[0][1:] for worker in workers)
        if known and alike and not self._broken:
            reserved.close()
            os.environ["TF_CONFIG"] = known  # a cell may have changed it
            return []
        used, self._strategies, self._made = self._strategies, 0, 0
        self._broken, self._outdated = False, self._outdated or used > 0
        self._group = Group("0", tuple(range(self._world_size)))
        if self._reserved is not None:
            self._reserved.close()
        self._reserved, self._epoch = reserved, str(workers[0][0])
        cluster = {"worker": [worker[0] for worker in workers]}
        self._config = json.dumps(
            {"cluster": cluster, "task": {"type": "worker", "index": spec.rank}}
        )
        os.environ["TF_CONFIG"] = self._config
        # the server shares the port with the socket that keeps other programs from it
        os.environ["TF_GRPC_REUSE_PORT"] = "true"
        return [_ABORTED] if used else []

    def _end_connections(self) -> None:
        """Begin anew with the next operation: the cluster of before has ended."""
        from tensorflow.python.data.ops import iterator_ops
        from tensorflow.python.eager import context

        if self._outdated and context.context()._context_handle is not None:
            # the end of either would wait for the other workers, at whatever line drops the last
            # iterator
            iterators = [o for o in gc.get_objects() if type(o) is iterator_ops.OwnedIterator]
            self._ended += [context.context(), *iterators]
            context._reset_context()
            self._record.samples.forget()
        self._outdated = False

    def meet(self, place: _Place, what: str) -> None:
        """Wait until all workers of a cluster have come here, so that none waits in TensorFlow.

        There, a worker that waits for others cannot be interrupted, and it says nothing.
        """
        cluster, number = place
        key = f"strategy/{self._strategies}/{what}"
        self._store.set(f"{key}/{self._rank}", json.dumps([cluster, number]))
        keys = {rank: f"{key}/{rank}" for rank in range(self._world_size)}
        came: dict[int, int] = {}
        while set(came.values()) != set(range(len(cluster))):
            for rank, at in keys.items():
                if rank not in came and self._store.check([at]):
                    theirs, their_number = json.loads(self._store.get(at))
                    if tuple(theirs) == cluster:
                        came[rank] = their_number
            if self._freed:
                raise RuntimeError(_FREED)
            time.sleep(_LOOK_EVERY_S)
        members = tuple(sorted(came))
        everyone = len(members) == self._world_size
        self._group = Group("0" if everyone else f"workers at {cluster[0]}", members)

    def load_source(self, function: Callable[[], Any]) -> Any:
        """Have TensorFlow write the source that it generates into the session's folder.

        TensorFlow removes it when Python exits; the process of a rank ends without that.
        """
        before, tempfile.tempdir = tempfile.tempdir, self._directory or tempfile.tempdir
        try:
            return function()
        finally:
            tempfile.tempdir = before

    # -- the end of a wait ---------------------------------------------------------------------

    def free(self) -> None:
        """Abort the collectives of this rank if it is in TensorFlow now."""
        self._freed = True
        if not _is_in_tensorflow():
            return
        self._broken = True
        from tensorflow.python.eager import context
        from tensorflow.python.framework import errors

        # without a handle the main thread makes one just now, and this thread would wait for it
        if context.context()._context_handle is not None:
            context.context().abort_collective_ops(errors.UNAVAILABLE, _FREED)

    # -- records -------------------------------------------------------------------------------

    def recorded(self, record: CallRecord | CallForm, function: Callable[[], Any]) -> Any:
        """Record a call and make it."""
        __tracebackhide__ = True
        assert self._calls is not None
        self._made += 1
        try:
            return self._calls.record(record, function, _PACKAGE)
        except BaseException:
            self._broken = True
            self._record.raised_in_program()
            raise

    def made_strategy(self, place: _Place, function: Callable[[], Any]) -> Any:
        """Record the making of a strategy of several workers."""
        __tracebackhide__ = True
        cluster, number = place

        def meet_and_make() -> Any:
            __tracebackhide__ = True
            self.meet(place, "begun")
            self._end_connections()
            made = function()
            # one that is still connecting would abort what the others send it
            self.meet(place, "made")
            return made

        if self._become_rank is not None:
            address = f"tcp://{cluster[0]}"
            self._become_rank({"rank": number, "world_size": len(cluster), "init_method": address})
            self._group = Group("0", tuple(range(len(cluster))))
            meet_and_make = function  # no store connects the workers
        self._freed = False
        self._strategies += 1
        record = CallRecord(op=STRATEGY, kind="setup", number=self._strategies)
        record.group = Group("0", tuple(range(len(cluster))))
        record.rendezvous = Rendezvous(address=cluster[0], rank=number, world_size=len(cluster))
        return self.recorded(record, meet_and_make)

    def executed(self, graph_function: Any, given: Any, function: Callable[[], Any]) -> Any:
        """Record the execution of a graph with its inputs, if it contains collectives."""
        __tracebackhide__ = True
        try:
            found = self._found[graph_function]
        except KeyError:
            found = self._found[graph_function] = _collectives(graph_function)
        graph = graph_function.graph
        self._record.failures.executes(_text(graph_function.name), graph)
        if found is None:
            made = function()
            self._record.returned("", graph, made, None)
            return made
        self._record.executes(found.name, found.operations, graph, given)
        form = found.form
        if form is None or form.record.group is not self._group:
            record = CallRecord(op=found.name, group=self._group, reduce_op="SUM")
            record.shapes = tuple(shape for shape, _ in found.tensors)
            record.dtypes = tuple(dtype for _, dtype in found.tensors)
            form = found.form = CallForm(record)
        made = self.recorded(form, function)
        self._record.trace.executed(graph)
        self._record.returned(found.name, graph, made, self._calls.latest)
        return made

    def added(self, tensor: Any) -> None:
        """Note a collective that is added to a graph, by its result."""
        self._record.adds_collective(tensor)

    def ran_eagerly(
        self, op: str, shape: Shape, dtype: str, root: int | None, function: Callable[[], Any]
    ) -> Any:
        """Record a collective outside of graphs."""
        __tracebackhide__ = True
        record = CallRecord(op=op, group=self._group, root=root, shapes=(shape,), dtypes=(dtype,))
        if op == "all_reduce":
            record.reduce_op = "SUM"
        return self.recorded(record, function)


def _own_address(store_address: str, port: int) -> str:
    """The address at which this host is reached by those that reach the session's store."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((store_address, port))  # sends nothing
        return str(probe.getsockname()[0])


def _reserve(address: str) -> tuple[str, socket.socket]:
    """An address with a free port, and the socket that keeps it."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind((address, 0))
    return f"{address}:{kept.getsockname()[1]}", kept


def _is_in_tensorflow() -> bool:
    """Whether a function of TensorFlow, or of this module, is on the main thread's stack."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == __file__ or (package_file(file) or "").startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _collectives(graph_function: Any) -> _Graph | None:
    """What is known of a graph; None if it has no collective."""
    graph = graph_function.graph
    definition = graph.as_graph_def()
    nodes = [node for node in definition.node if _communicates(node.op)]
    inner = any(_communicates(n.op) for f in definition.library.function for n in f.node_def)
    if not nodes and not inner:
        return None
    whole = _text(graph_function.name)
    name = whole.removeprefix("__inference_").rpartition("_")[0] or whole
    operations = tuple(graph.get_operation_by_name(node.name) for node in nodes)
    tensors = tuple(map(_tensor, operations))[:_MOST_SHAPES]
    # one that is unknown on this rank may be known on another: then the lists cannot be compared
    known = tensors if all(tensors) else ()
    return _Graph(f"{name}()", known, operations[:_MOST_LINES])


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _communicates(op: str) -> bool:
    return op.startswith("Collective") and not op.startswith(_PREPARES)


def _tensor(operation: Any) -> tuple[Shape, str] | None:
    """Shape and type of what a collective of a graph sends; None if the shape is not known."""
    inputs = operation.inputs
    known = len(inputs) > 0 and inputs[0].shape.is_fully_defined()
    return (tuple(inputs[0].shape.as_list()), inputs[0].dtype.name) if known else None


def _install(rank: TensorFlow) -> None:
    """Replace the functions of TensorFlow through which every collective passes."""
    from tensorflow.python.autograph.pyct import loader
    from tensorflow.python.distribute import (
        collective_all_reduce_strategy,
        cross_device_utils,
        multi_worker_util,
    )
    from tensorflow.python.eager import context
    from tensorflow.python.eager.polymorphic_function import concrete_function
    from tensorflow.python.ops import collective_ops

    def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, functools.wraps(original)(wrap(original)))

    def graph(original: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not context.executing_eagerly():  # it becomes a part of another graph
                return original(self, *args, **kwargs)
            given = args[0] if args else ()
            return rank.executed(self, given, lambda: original(self, *args, **kwargs))

        return call

    def eager(op: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            def call(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                if not context.executing_eagerly():
                    made = original(self, tensor, *args, **kwargs)
                    rank.added(made)
                    return made
                shape, dtype = tuple(tensor.shape.as_list()), tensor.dtype.name
                return rank.ran_eagerly(
                    op, shape, dtype, None, lambda: original(self, tensor, *args, **kwargs)
                )

            return call

        return wrap

    def sends(original: Any) -> Any:
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not context.executing_eagerly():
                return original(tensor, *args, **kwargs)
            shape, dtype = tuple(tensor.shape.as_list()), tensor.dtype.name
            return rank.ran_eagerly(
                "broadcast", shape, dtype, 0, lambda: original(tensor, *args, **kwargs)
            )

        return call

    def receives(original: Any) -> Any:
        def call(shape: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not context.executing_eagerly():
                return original(shape, dtype, *args, **kwargs)
            return rank.ran_eagerly(
                "broadcast",
                tuple(map(int, shape)),
                dtype.name,
                0,
                lambda: original(shape, dtype, *args, **kwargs),
            )

        return call

    def strategy(original: Any) -> Any:
        def call(self: Any, resolver: Any) -> Any:
            __tracebackhide__ = True
            spec = multi_worker_util.normalize_cluster_spec(resolver.cluster_spec()).as_dict()
            cluster = (*spec.get("chief", ()), *spec.get("worker", ()))
            kind, number = resolver.task_type, resolver.task_id
            if len(cluster) < 2 or kind not in ("chief", "worker") or number is None:
                return original(self, resolver)
            number += len(spec.get("chief", ())) if kind == "worker" else 0
            return rank.made_strategy((cluster, number), lambda: original(self, resolver))

        return call

    def source(original: Any) -> Any:
        return lambda *args, **kwargs: rank.load_source(lambda: original(*args, **kwargs))

    replace(loader, "load_source", source)
    replace(concrete_function.ConcreteFunction, "_call_flat", graph)
    launcher = cross_device_utils.CollectiveReplicaLauncher
    replace(launcher, "all_reduce", eager("all_reduce"))
    replace(launcher, "_all_gather", eager("all_gather"))
    for version in ("", "_v2"):
        replace(collective_ops, f"broadcast_send{version}", sends)
        replace(collective_ops, f"broadcast_recv{version}", receives)
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    replace(extended, "_initialize_multi_worker", strategy)
