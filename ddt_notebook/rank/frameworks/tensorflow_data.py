"""Observes which data TensorFlow's workers train with, and whether their updates are shared."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType, ModuleType
from typing import Any

from ...model import Position
from ...model.tensorflow import (
    DistributedData,
    ExecutedGraph,
    KerasFit,
    KerasPolicy,
    OptimizerUpdates,
    PipelineError,
    PipelineStep,
    RankTensorFlow,
    SummedMean,
)
from ...model.user_code import is_user_code
from ..after_import import AfterImport
from ..probes.call_sites import CallSite
from ..training_thread import CURRENT, Serving
from ..user_signals import left_out
from . import tensorflow_lines
from .tensorflow_failures import FailedOperations
from .tensorflow_files import FileRecord
from .tensorflow_forms import form_of, numbers_of, steps_of
from .tensorflow_lines import users_position
from .tensorflow_losses import LossRecord
from .tensorflow_replicas import ReplicaRecord
from .tensorflow_results import ResultRecord
from .tensorflow_samples import Pipeline, SampleRecord
from .tensorflow_shown import ShownRecord
from .tensorflow_trace import StepTrace

#: Pipelines with more bytes of constants are not read.
_MOST_BYTES = 64 << 20
#: Observations kept of one run.
_MOST = 50
#: Whole numbers that are kept of a graph's inputs.
_MOST_NUMBERS = 8
#: The longest text of an exception that is kept.
_LONGEST = 300
#: Functions of Keras that read data without training.
_ONLY_READ = frozenset({"evaluate", "predict"})
#: Attributes of a node that differ between equal pipelines: numbers of objects.
_OWN = frozenset({"metadata", "container", "shared_name"})
#: Arguments with which an optimizer leaves gradients as they are on each replica.
_NOT_SUMMED = {"skip_gradients_aggregation": True, "experimental_aggregate_gradients": False}
#: Optimizers by their modules: class and method that updates variables.
_OPTIMIZERS = (
    ("tf_keras.src.optimizers.optimizer", "Optimizer", "apply_gradients"),
    ("tf_keras.src.optimizers.legacy.optimizer_v2", "OptimizerV2", "apply_gradients"),
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
)
#: Where Keras has its policies for data types, and the function that makes one global.
_POLICY, _SETS_POLICY = "tf_keras.src.mixed_precision.policy", "set_global_policy"
_MODEL, _CALLBACKS = "tf_keras.src.engine.training", "tf_keras.src.callbacks"


class TensorFlowRecord:
    """What was observed in the current run."""

    def __init__(self) -> None:
        self._data: list[DistributedData] = []
        self._updates: list[OptimizerUpdates] = []
        self._fits: list[KerasFit] = []
        self._graphs: dict[str, ExecutedGraph] = {}
        self._errors: list[PipelineError] = []
        self.samples = SampleRecord()
        #: Of each graph, its operations and what is noted of them.
        self._lines: dict[str, tuple[Sequence[Any], ExecutedGraph]] = {}
        self._losses = LossRecord()
        self.failures = FailedOperations(self._losses.users_line)
        self.replicas = ReplicaRecord(self._losses.users_line)
        self._policies: list[KerasPolicy] = []
        self._shown = ShownRecord()
        self._files = FileRecord()
        self._looked_at: weakref.WeakSet[Any] = weakref.WeakSet()  # for sums, in this run
        self._summed: dict[SummedMean, None] = {}
        self._results = ResultRecord()
        self.trace = StepTrace()
        self._distributed: Pipeline | None = None  # what is being distributed now
        self._python: dict[int, Serving] = {}  # functions that run now, by their thread
        self._validates_with: Any = None  # of the fit that runs now
        self._until = 0  # its last epoch

    def begin_run(self) -> None:
        """Forget the run before."""
        self._data.clear()
        self._updates.clear()
        self._fits.clear()
        self._graphs.clear()
        self._errors.clear()
        self._results.begin_run()
        self._summed.clear()
        self._policies.clear()
        self._losses.eager_sums.clear()
        self._looked_at = weakref.WeakSet()
        self.samples.begin_run()
        self.replicas.begin_run()
        self._shown.begin_run()
        self._files.begin_run()
        self.failures.begin_run()

    def observed(self, rank: int) -> RankTensorFlow | None:
        """What was observed since the run began; None if nothing was."""
        seen = (
            *(self._data, self._updates, self._fits, self._graphs, self._errors),
            self._policies,
        )
        if not any(seen):
            return None
        return RankTensorFlow(
            rank=rank,
            data=tuple(self._data),
            reads=self.samples.reads(),
            updates=tuple(self._updates),
            fits=tuple(self._fits),
            graphs=tuple(self._graphs.values()),
            errors=tuple(self._errors),
            summed=(*self._summed, *self._losses.eager_sums)[:_MOST],
            not_finite=self._results.observed(),
            summaries=self._files.observed(),
            policies=tuple(self._policies),
            **self.replicas.observed(),
            **self._shown.observed(),
        )

    def install(self) -> None:
        """Observe from now on."""
        from tensorflow.python.distribute import collective_all_reduce_strategy, input_lib
        from tensorflow.python.ops import script_ops

        extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
        before, after = self._distributes, self._makes
        _wrap(extended, "_experimental_distribute_dataset", before)
        _wrap(extended, "_distribute_datasets_from_function", after)
        divides = "_create_cloned_datasets_from_dataset"
        _wrap(input_lib.DistributedDataset, divides, self._divides)
        for module, kind, method in _OPTIMIZERS:
            AfterImport(module, functools.partial(self._watch, kind, method)).install()
        AfterImport(_MODEL, self._watch_fit).install()
        AfterImport(_POLICY, self._watch_policy).install()
        AfterImport(_CALLBACKS, self._watch_callbacks).install()
        _wrap(script_ops.FuncRegistry, "__call__", self._calls_python)
        tensorflow_lines.install()
        self._losses.install()
        self.replicas.install()
        self._files.install()

    def _watch(self, kind: str, method: str, module: ModuleType) -> None:
        known = getattr(module, kind, None)
        if known is not None and hasattr(known, method):
            _wrap(known, method, self._applies)

    def _watch_fit(self, module: ModuleType) -> None:
        model = getattr(module, "Model", None)
        if model is None or not hasattr(model, "fit"):
            return
        _wrap(model, "fit", self._fits_model)

        def stops(model: Any, value: Any) -> None:
            vars(model)["stop_training"] = value
            if value:
                self._note_stop(sys._getframe(1))

        model.stop_training = property(lambda model: vars(model)["stop_training"], stops)

    def _watch_callbacks(self, module: ModuleType) -> None:
        known = getattr(module, "CallbackList", None)
        if known is not None and hasattr(known, "on_epoch_begin"):
            _wrap(known, "on_epoch_begin", self._begins_epoch)

    def _watch_policy(self, module: ModuleType) -> None:
        """Note policies where Keras makes them global: other modules hold that function itself."""
        policy = getattr(module, "Policy", None)
        if policy is not None:
            _wrap(policy, "__init__", self._makes_policy)

    def _makes_policy(self, original: Any, policy: Any, *args: Any, **kwargs: Any) -> Any:
        original(policy, *args, **kwargs)
        frame = sys._getframe(2)
        if frame.f_code.co_name == _SETS_POLICY and len(self._policies) < _MOST:
            self._policies.append(KerasPolicy(name=policy.name, where=users_position(frame)))

    def executes(self, name: str, operations: Sequence[Any], graph: Any, given: Any = ()) -> None:
        """Note a graph with collectives that is about to be executed, with its inputs."""
        self.replicas.executes(name, graph)
        if graph not in self._looked_at:
            self._looked_at.add(graph)
            self._summed.update(dict.fromkeys(self._losses.sums_in(graph)))
        if name in self._graphs or len(self._graphs) < _MOST:
            known = self._lines.get(name)
            if known is None or known[0] is not operations:
                where = tuple(self._losses.users_line(one) for one in operations)
                made = ExecutedGraph(name=name, where=where)
                with left_out():  # operations that are not as usual
                    numbers = numbers_of(graph, self._losses.users_line)
                    made = replace(made, numbers=numbers, form=form_of(graph))
                self._lines[name] = operations, made
            self._graphs[name] = self._lines[name][1]
            if not operations:  # they are in loops
                self._graphs[name] = replace(self._graphs[name], given=_whole_numbers(given))

    def returned(self, name: str, graph: Any, results: Any, site: CallSite | None) -> None:
        """Note which numbers a graph returned are means, and whether an update's are finite.

        The site is the execution's, None if it was not recorded.
        """
        self._losses.mark_results(graph, results)
        if name:  # the workers execute it together
            self._shown.returned(graph, results, self._losses.means_of)
        if self.trace.is_updating(graph):
            executed = self.replicas.executions(name) - 1
            place = site or users_position(sys._getframe(1))
            self._results.returned(name, graph, results, executed, place)

    def adds_collective(self, tensor: Any) -> None:
        """Note a collective that is added to a graph, by its result."""
        self._losses.note_collective(tensor)

    def raised_in_program(self) -> None:
        """Note that the program gets an exception of TensorFlow."""
        self._errors = [replace(one, reached_program=True) for one in self._errors]

    # -- what is wrapped -----------------------------------------------------------------------

    def _distributes(self, original: Any, strategy: Any, dataset: Any, options: Any) -> Any:
        if strategy._num_workers < 2:
            return original(strategy, dataset, options)
        policy = dataset.options().experimental_distribute.auto_shard_policy.name
        frame = sys._getframe(1)
        self._note_data(policy, dataset, frame)
        pipeline = self._distributed = _pipeline(policy, frame)
        pipeline.trains = pipeline.trains and dataset is not self._validates_with
        if policy in ("AUTO", "DATA"):  # then a worker gets a part of each batch
            pipeline.expected = int(dataset.cardinality())
        try:
            made = original(strategy, dataset, options)
        finally:
            self._distributed = None
        pipeline.objects = (weakref.ref(dataset), weakref.ref(made))
        return made

    def _divides(self, original: Any, distributed: Any, *args: Any, **kwargs: Any) -> Any:
        original(distributed, *args, **kwargs)
        if self._distributed is not None:
            parts = distributed._cloned_datasets
            parts[:] = [self.samples.observing(self._distributed, one) for one in parts]

    def _makes(self, original: Any, strategy: Any, make: Any, options: Any) -> Any:
        if strategy._num_workers < 2:
            return original(strategy, make, options)
        frame = sys._getframe(1)
        pipeline = _pipeline("function", frame)

        def making(context: Any) -> Any:
            dataset = make(context)
            self._note_data("function", dataset, frame)
            return self.samples.observing(pipeline, dataset)

        made = original(strategy, making, options)
        pipeline.objects = (weakref.ref(made),)
        return made

    def _fits_model(self, original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):  # TensorFlow reports arguments that do not fit
            self._note_fit(inspect.signature(original).bind(model, *args, **kwargs))
        try:
            return original(model, *args, **kwargs)
        finally:
            self._validates_with = None

    def _note_fit(self, bound: inspect.BoundArguments) -> None:
        bound.apply_defaults()
        given = bound.arguments
        self._validates_with = given["validation_data"]
        if len(self._fits) == _MOST or _strategy() is None:
            return
        self._until = int(given["epochs"])
        callbacks = given["callbacks"]
        listed = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        self._fits.append(
            KerasFit(
                where=users_position(sys._getframe(2)),
                epochs=int(given["epochs"]) - int(given["initial_epoch"]),
                steps=_whole(given["steps_per_epoch"]),
                batch_size=_whole(given["batch_size"]),
                validates=given["validation_data"] is not None,
                class_weight=_digest(given["class_weight"]),
                callbacks=tuple(type(one).__name__ for one in listed if one is not None),
            )
        )

    def _begins_epoch(self, original: Any, callbacks: Any, epoch: int, *args: Any) -> Any:
        if self._fits and self._fits[-1].epochs_left is None:
            last = self._fits[-1]
            self._fits[-1] = replace(last, epochs_left=self._until - int(epoch))
        return original(callbacks, epoch, *args)

    def _note_stop(self, frame: FrameType) -> None:
        if self._fits:
            stopped = users_position(frame)
            self._fits[-1] = replace(self._fits[-1], stopped=stopped)

    def served_by(self) -> Serving | None:
        """The Python function in a pipeline or a graph that has been running for the longest."""
        return next(iter([*self._python.values()]), None)

    def _calls_python(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        number = threading.get_ident()
        if number != CURRENT.ident:
            native = threading.get_native_id()
            self._python[number] = Serving(number, native, time.monotonic())
        try:
            return original(*args, **kwargs)
        except StopIteration:  # a generator has ended
            raise
        except Exception as error:
            if len(self._errors) < _MOST:
                kind, message = type(error).__name__, str(error)[:_LONGEST]
                where = _raised_at(error)
                self._errors.append(PipelineError(type=kind, message=message, where=where))
            raise
        finally:
            self._python.pop(number, None)

    def _note_data(self, policy: str, dataset: Any, frame: FrameType) -> None:
        with left_out():  # a pipeline of the user's own kind
            self.failures.distributes(dataset)
        if len(self._data) < _MOST and not _is_called_by(frame, _ONLY_READ):
            own = policy in ("OFF", "function")  # TensorFlow does not divide it
            content, shuffled = _content(dataset) if own else ("", False)
            where = users_position(frame)
            steps: tuple[PipelineStep, ...] = ()
            with left_out():  # a pipeline of the user's own kind
                steps = steps_of(dataset)
            self._data.append(
                DistributedData(
                    where=where,
                    policy=policy,
                    content=content,
                    shuffled=shuffled,
                    shuffled_before_share=own and _draws(dataset),
                    steps=steps,
                )
            )

    def _applies(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("grads_and_vars", kwargs.get("grads"))
        strategy = _strategy()
        self.trace.updates(optimizer)
        if len(self._updates) < _MOST and given is not None and strategy is not None:
            values = list(given)
            # what was given may be an iterator, which has been read now
            args = tuple(values if value is given else value for value in args)
            kwargs = {name: values if value is given else value for name, value in kwargs.items()}
            summed = not any(kwargs.get(name) is one for name, one in _NOT_SUMMED.items())
            mean = self._losses.mean_of(values) if summed else None
            seen = OptimizerUpdates(
                where=users_position(sys._getframe(1)),
                replicas=int(strategy.num_replicas_in_sync),
                variables=tuple(_shapes(values)),
                optimizer=type(optimizer).__name__,
                aggregates=summed,
                of_mean=mean is not None,
                divided_by=mean.divided_by if mean is not None else None,
                scaled=mean is not None and mean.scaled,
                mean_at=mean.where if mean is not None else None,
                terms_at=mean.terms_at if mean is not None else (),
                own_term_at=self._losses.term_of(values) if summed else None,
            )
            if seen not in self._updates:
                self._updates.append(seen)
        return original(optimizer, *args, **kwargs)


def _whole_numbers(given: Any) -> tuple[int, ...]:
    """The whole numbers among the inputs of a graph, in order."""
    found = []
    for one in given if isinstance(given, (list, tuple)) else ():
        kind = getattr(one, "dtype", None)
        if getattr(kind, "is_integer", False) and one.shape.rank == 0 and hasattr(one, "numpy"):
            with left_out():  # one of a context that has ended
                found.append(int(one))
    return tuple(found[:_MOST_NUMBERS])


def _digest(given: Any) -> str:
    """A hash of a mapping of numbers; empty if there is none."""
    if not isinstance(given, dict) or not given:
        return ""
    text = repr(sorted((str(name), float(value)) for name, value in given.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _raised_at(error: BaseException) -> Position | None:
    """The user's line that raised an exception."""
    found, level = None, error.__traceback__
    while level is not None:
        code = level.tb_frame.f_code
        if is_user_code(code.co_filename):
            found = Position(file=code.co_filename, line=level.tb_lineno, function=code.co_name)
        level = level.tb_next
    return found


def _pipeline(policy: str, frame: FrameType) -> Pipeline:
    trains = not _is_called_by(frame, _ONLY_READ)
    return Pipeline(users_position(frame), policy, trains=trains)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _strategy() -> Any:
    """The strategy of the moment; None if something else may keep the workers equal."""
    from tensorflow.python.distribute import distribute_lib

    found = distribute_lib.get_strategy()
    others = "horovod" in sys.modules or "ParameterServer" in type(found).__name__
    return None if others else found


def _wrap(owner: Any, name: str, act: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return act(original, *args, **kwargs)

    setattr(owner, name, call)


def _shapes(values: Sequence[Any]) -> Iterator[tuple[int, ...]]:
    for value in values:
        shape = getattr(value[1] if isinstance(value, tuple) else value, "shape", None)
        if shape is not None:
            yield tuple(-1 if size is None else int(size) for size in shape)


def _is_called_by(frame: FrameType | None, names: frozenset[str]) -> bool:
    """Whether a library's function with one of these names is below the user's line."""
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        if frame.f_code.co_name in names:
            return True
        frame = frame.f_back
    return False


# -- the content of a pipeline ---------------------------------------------------------------------


def _draws(dataset: Any) -> bool:
    """Whether a data set is shuffled anew on each worker before that takes its share."""
    try:
        shards = [one for one in _steps(dataset) if type(one).__name__ == "_ShardDataset"]
        return any(_is_unseeded(step) for shard in shards for step in _steps(shard))
    except Exception:  # noqa: BLE001  (a pipeline of the user's own kind)
        return False


def _is_unseeded(step: Any) -> bool:
    return int(getattr(step, "_seed", 1)) == int(getattr(step, "_seed2", 1)) == 0


def _content(dataset: Any) -> tuple[str, bool]:
    """A hash of a pipeline, empty if it is not known, and whether each worker draws its order."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.data.ops import options

    try:
        steps = list(_steps(dataset))
        size = sum(
            tensor.shape.num_elements() * max(1, tensor.dtype.size)
            for step in steps
            for tensor in getattr(step, "_tensors", ())
            if hasattr(tensor.shape, "num_elements")
        )
        if size > _MOST_BYTES:
            return "", False
        serialized = dataset._as_serialized_graph(
            external_state_policy=options.ExternalStatePolicy.IGNORE
        )
        graph = graph_pb2.GraphDef.FromString(serialized.numpy())
        functions = {one.signature.name: one for one in graph.library.function}
        text = repr([_nodes(graph.node, (), functions), *map(_node_list(functions), functions)])
    except Exception:  # noqa: BLE001  (a pipeline of the user's own kind)
        return "", False
    if "PyFunc" in text or "own resource" in text:
        return "", False
    draws = any(map(_is_unseeded, steps))
    return hashlib.sha256(text.encode()).hexdigest()[:16], draws


def _steps(dataset: Any) -> Iterator[Any]:
    yield dataset
    for before in dataset._inputs():
        yield from _steps(before)


def _node_list(functions: dict[str, Any]) -> Callable[[str], Any]:
    def of(name: str) -> Any:
        found = functions[name]
        inputs = [argument.name for argument in found.signature.input_arg]
        return _nodes(found.node_def, inputs, functions)

    return of


def _nodes(nodes: Any, inputs: Sequence[str], functions: dict[str, Any]) -> list[Any]:
    """Operations, connections and constants, without the names that TensorFlow numbers."""
    order = {name: at for at, name in enumerate(functions)}
    number = {name: at for at, name in enumerate([*inputs, *(node.name for node in nodes)])}
    found = []
    for node in nodes:
        sources = [
            (number.get(name, -1), rest.rpartition(":")[2])
            for name, _, rest in (one.lstrip("^").partition(":") for one in node.input)
        ]
        attributes = []
        for name in sorted(node.attr):
            value = node.attr[name]
            if name in _OWN or name.startswith("_"):
                continue
            if value.WhichOneof("value") == "func":
                attributes.append((name, order.get(value.func.name, value.func.name)))
            elif value.HasField("tensor") and value.tensor.resource_handle_val:
                handles = [handle.name for handle in value.tensor.resource_handle_val]
                # the generator of a shuffle's seeds; anything else may differ between workers
                known = all("SeedGenerator" in handle for handle in handles)
                attributes.append((name, "" if known else "own resource"))
            else:
                attributes.append((name, value.SerializeToString(deterministic=True)))
        found.append((node.op, sources, attributes))
    return found
