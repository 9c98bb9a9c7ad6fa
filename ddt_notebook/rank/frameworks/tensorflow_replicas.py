"""Takes fingerprints of variables that a strategy keeps equal on all workers, and notes writes.

A graph that contains collectives lists the variables that it reads. Their fingerprints are taken
before its first executions, then less and less often, and at the end of a run. What writes such a
variable between executions, on this worker only, is noted with the user's line.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...model import Position
from ...model.tensorflow import (
    AdaptedLayer,
    MirroredState,
    MirroredVariables,
    RestoredCheckpoint,
    VariableWrite,
)
from ..after_import import AfterImport
from ..user_signals import left_out
from .tensorflow_lines import users_position

#: Elements that are read of one variable and of all of a graph; larger ones are left out.
_MOST_ELEMENTS, _MOST_TOGETHER = 1 << 18, 1 << 20
#: Graphs, states of a graph, writes, restored checkpoints and layers that are kept of a run.
_MOST_GRAPHS, _MOST_STATES, _MOST_WRITES, _MOST = 8, 24, 40, 20
#: Variables of a graph for which the line that assigns them is looked up.
_MOST_LINES = 64
#: Operations that assign a variable begin so.
_ASSIGNS = ("Assign", "ResourceApply", "ResourceScatter")
#: Of the index of a checkpoint, so many bytes are read; it takes about 100 for each variable.
_MOST_OF_INDEX = 1 << 20
#: Stands for a value that is not finite: its bits may differ where nothing else does.
_NOT_FINITE = -1
#: The base class of layers that `adapt` to data, and the attributes that hold what they found.
_ADAPTS = ("tf_keras.src.engine.base_preprocessing_layer", "PreprocessingLayer")


class _Graph:
    """The variables that a graph reads, and what they were before its executions."""

    def __init__(self, variables: Mapping[str, weakref.ref[Any]]) -> None:
        self.variables = variables
        self.assigned: tuple[Position | None, ...] = ()
        self.executed = 0
        self.states: list[MirroredState] = []
        self.where: Position | None = None

    def sample(self, executed: int) -> None:
        """Add the present state; none if a variable is gone."""
        present = [_value(ref()) for ref in self.variables.values()]
        if any(value is None for value in present):
            return
        values, numbers = [], []
        for value in present:
            whole = bool(np.isfinite(value).all())
            values.append(zlib.crc32(np.ascontiguousarray(value)) if whole else _NOT_FINITE)
            numbers.append(value.item() if whole and value.size == 1 else None)
        state = MirroredState(executed=executed, values=tuple(values), numbers=tuple(numbers))
        self.states = [*self.states[: _MOST_STATES - 1], state]


class ReplicaRecord:
    """The variables of this worker that every worker should have alike.

    Parameters
    ----------
    users_line
        Finds the user's line that made an operation of a graph.
    """

    def __init__(self, users_line: Callable[[Any], Position | None]) -> None:
        self._users_line = users_line
        self._graphs: dict[str, _Graph] = {}
        #: All variables that strategies mirror on this worker.
        self._all: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        #: Of each graph, the variables of this worker that a strategy mirrors.
        self._known: weakref.WeakKeyDictionary[Any, dict[str, weakref.ref[Any]]] = (
            weakref.WeakKeyDictionary()
        )
        #: The user's line in a replica that assigns a variable in a graph, by its ``id``. The
        #: operation is made on the main thread, which does not run that line.
        self._in_replicas: dict[int, Position] = {}
        self._writes: dict[tuple[str, Position | None], VariableWrite] = {}
        self._restored: list[RestoredCheckpoint] = []
        self._adapted: list[AdaptedLayer] = []
        self._executed = 0
        self._moments = 0  # assignments and restored checkpoints of this run

    def begin_run(self) -> None:
        """Forget the run before."""
        self._graphs.clear()
        self._writes.clear()
        self._restored.clear()
        self._adapted.clear()
        self._executed = self._moments = 0

    def install(self) -> None:
        """Note from now on what writes variables."""
        from tensorflow.python.checkpoint import checkpoint
        from tensorflow.python.distribute import values

        made = values.MirroredVariable.__init__

        @functools.wraps(made)
        def makes(variable: Any, *args: Any, **kwargs: Any) -> None:
            made(variable, *args, **kwargs)
            self._in_replicas.pop(id(variable), None)  # of another variable that is gone
            self._all[id(variable)] = variable

        values.MirroredVariable.__init__ = makes
        for name in ("assign", "assign_add", "assign_sub"):
            _before(values.DistributedVariable, name, self._writes_variable)
        _before(checkpoint.TrackableSaver, "restore", self._restores)
        module, kind = _ADAPTS
        AfterImport(module, functools.partial(self._watch_layers, kind)).install()

    def _watch_layers(self, kind: str, module: ModuleType) -> None:
        layer = getattr(module, kind, None)
        if layer is None or not hasattr(layer, "adapt"):
            return
        original = layer.adapt

        @functools.wraps(original)
        def adapt(layer: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            made = original(layer, *args, **kwargs)
            with left_out():  # a layer of the user's own kind
                self._note_adapted(layer)
            return made

        layer.adapt = adapt

    # -- executions ----------------------------------------------------------------------------

    def executes(self, name: str, graph: Any) -> None:
        """Note that a graph with collectives is about to be executed."""
        self._executed += 1
        known = self._graphs.get(name)
        if known is None:
            if len(self._graphs) >= _MOST_GRAPHS:
                return
            known = self._graphs[name] = _Graph(self._mirrored(graph))
            known.where = users_position(sys._getframe(1))
            with left_out():  # operations that are not as usual
                known.assigned = self._assigned(graph, known.variables)
        elif not known.variables:
            known.variables = self._mirrored(graph)
        executed = known.executed
        known.executed += 1
        if known.variables and executed & (executed - 1) == 0:  # 0, 1, 2, 4, 8, …
            with left_out():  # a variable that cannot be read here
                known.sample(executed)

    def _assigned(
        self, graph: Any, variables: Mapping[str, weakref.ref[Any]]
    ) -> tuple[Position | None, ...]:
        """The user's line of the first operation of a graph that assigns each variable."""
        owners = {
            id(copy.handle): name
            for name, ref in variables.items()
            for copy in getattr(ref(), "_values", ())
            if hasattr(copy, "handle")
        }
        inner = {id(given): owners.get(id(of)) for of, given in graph.captures}
        found: dict[str, Position | None] = {}
        for op in graph.get_operations():
            if not op.type.startswith(_ASSIGNS) or not len(op.inputs):
                continue
            name = inner.get(id(op.inputs[0]))
            if name is not None and name not in found:
                found[name] = self._users_line(op)
                if len(found) == _MOST_LINES:
                    break
        made = {name: self._in_replicas.get(id(ref())) for name, ref in variables.items()}
        return tuple(made[name] or found.get(name) for name in variables)

    def executions(self, name: str) -> int:
        """How often a graph was executed in this run; 0 for one that is not watched."""
        known = self._graphs.get(name)
        return known.executed if known is not None else 0

    def _mirrored(self, graph: Any) -> dict[str, weakref.ref[Any]]:
        """The variables that a graph reads and a strategy mirrors, by name."""
        if graph in self._known:
            return self._known[graph]
        owners = {
            id(copy.handle): one
            for one in list(self._all.values())
            for copy in one._values
            if hasattr(copy, "handle")
        }
        read = {
            id(owner): owner
            for of, _ in graph.captures
            if (owner := owners.get(id(of))) is not None
        }
        found = [
            (one.name.partition(":")[0], str(one._unique_id), one)
            for one in read.values()
            if one.dtype.is_floating and (one.shape.num_elements() or 0) <= _MOST_ELEMENTS
        ]
        found.sort(key=lambda entry: (entry[0], len(entry[1]), entry[1]))
        named: dict[str, weakref.ref[Any]] = {}
        total, alike = 0, Counter[str]()
        for name, _, one in found:
            total += one.shape.num_elements() or 0
            if total > _MOST_TOGETHER:
                break
            alike[name] += 1
            named[name if alike[name] == 1 else f"{name} ({alike[name]})"] = weakref.ref(one)
        self._known[graph] = named
        return named

    def observed(self) -> dict[str, Any]:
        """What was observed of variables, as fields of `RankTensorFlow`."""
        mirrored = []
        for name, graph in self._graphs.items():
            if not graph.variables:
                continue
            with left_out():  # the strategy may have ended
                if not graph.states or graph.states[-1].executed != graph.executed:
                    graph.sample(graph.executed)
            mirrored.append(
                MirroredVariables(
                    graph=name,
                    where=graph.where,
                    names=tuple(graph.variables),
                    assigned=graph.assigned,
                    states=tuple(graph.states),
                )
            )
        return {
            "mirrored": tuple(mirrored),
            "writes": tuple(self._writes.values()),
            "restored": tuple(self._restored),
            "adapted": tuple(self._adapted),
        }

    # -- what is noted between executions ------------------------------------------------------

    def _writes_variable(self, variable: Any, *_: Any, **__: Any) -> None:
        import tensorflow as tf

        in_replica = tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
        if in_replica and not tf.executing_eagerly():
            where = users_position(sys._getframe(2))
            if where is not None and len(self._in_replicas) < _MOST_LINES:
                self._in_replicas.setdefault(id(variable), where)
        if not tf.executing_eagerly() or in_replica or not variable.dtype.is_floating:
            return
        where = users_position(sys._getframe(2))
        key = variable.name.partition(":")[0], where
        known = self._writes.get(key)
        self._moments += 1
        known = known or VariableWrite(variable=key[0], where=where, times=0, first=self._executed)
        if known.times or len(self._writes) < _MOST_WRITES:
            self._writes[key] = replace(
                known, times=known.times + 1, last=self._executed, moment=self._moments
            )

    def _restores(self, saver: Any, save_path: Any = None, *_: Any, **__: Any) -> None:
        self._moments += 1
        if len(self._restored) < _MOST:
            path = os.fspath(save_path) if save_path is not None else ""
            self._restored.append(
                RestoredCheckpoint(
                    where=users_position(sys._getframe(2)),
                    found=save_path is not None,
                    executed=self._executed,
                    name=Path(path).name,
                    content=_content(path),
                    moment=self._moments,
                )
            )

    def _note_adapted(self, layer: Any) -> None:
        if len(self._adapted) == _MOST:
            return
        held = [np.asarray(one) for one in layer.get_weights()]
        held += [
            np.asarray(getattr(layer, name))
            for name in ("mean", "variance")
            if hasattr(layer, name)
        ]
        if hasattr(layer, "get_vocabulary"):
            held.append(np.asarray(list(map(str, layer.get_vocabulary()))))
        digest = 0
        for one in held:
            text = one.tobytes() if one.dtype != object else repr(one.tolist()).encode()
            digest = zlib.crc32(text, digest)
        self._adapted.append(
            AdaptedLayer(
                where=users_position(sys._getframe(2)),
                layer=type(layer).__name__,
                content=digest if held else 0,
            )
        )


def _content(path: str) -> int:
    """A fingerprint of the index of a checkpoint; 0 if it cannot be read as a file."""
    try:
        with Path(f"{path}.index").open("rb") as index:
            return zlib.crc32(index.read(_MOST_OF_INDEX))
    except OSError:
        return 0


def _value(variable: Any) -> Any:
    """The copy of a variable on this worker; None if it is gone."""
    if variable is None:
        return None
    from tensorflow.python.ops import gen_resource_variable_ops

    values = getattr(variable, "_values", None)
    copy = values[0] if values else variable
    # the variable's own method takes four times as long
    read = gen_resource_variable_ops.read_variable_op(copy.handle, copy.dtype)
    return np.asarray(read.numpy())


def _before(owner: Any, name: str, note: Callable[..., None]) -> None:
    """Have a function called before a method, with its arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with left_out():  # TensorFlow reports arguments that do not fit
            note(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, call)
