"""Finds losses that are a mean over a worker's own batch, and whose gradients are used as they are.

A strategy sums the gradients of its replicas. So a loss has to be divided by the size of the global
batch, or a mean by the number of replicas; then batches of different sizes count alike. How a loss
was computed is read from the graph in which its gradients are taken; of a loss outside of a graph
nothing is known.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...model import Position
from ...model.tensorflow import SummedMean
from .tensorflow_lines import position_in, position_of, users_position

#: Operations that leave a loss as large as it was.
_SAME = frozenset({"Identity", "Cast", "CheckNumerics", "EnsureShape", "Reshape", "Squeeze"})
#: Operations that give a gradient another form: the rows of a table become the whole table.
_FORMS = _SAME | {"UnsortedSegmentSum"}
_ADDS, _SCALES = frozenset({"Add", "AddV2", "AddN"}), frozenset({"Mul", "RealDiv", "DivNoNan"})
_DIVIDES = frozenset({"RealDiv", "DivNoNan"})
#: Operations that give the size of a tensor, and those that pick a number of it or bound it.
_SIZES = frozenset({"Shape", "Size"})
_OF_SIZE = _SAME | {"StridedSlice", "GatherV2", "Prod", "Maximum"}
#: Operations that are looked through before a loss counts as not known.
_MOST_OPERATIONS = 64
#: Forms of one gradient that are looked through.
_MOST_FORMS = 8
#: The same for a term of variables alone: a model has many.
_MOST_OF_VARIABLES = 1024
#: Results of a graph that are looked at, and the attribute that marks one of them.
_MOST_RESULTS, _MARK = 16, "_ddt_mean"
#: The class of a thread in which a strategy runs the user's function.
_REPLICA = "MirroredReplicaThread"


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over a worker's own batch, from which a loss was made."""

    where: Position | None
    scaled: bool  # whether it was multiplied or divided afterwards
    divided_by: float | None  # a constant, if it is a sum that is divided by it
    terms_at: tuple[Position, ...] = ()  # where other terms of the loss are scaled


class LossRecord:
    """The gradients of losses that are a mean over a worker's own batch."""

    def __init__(self) -> None:
        #: By the operation that made a gradient; they live as long as their graph.
        self._means: weakref.WeakKeyDictionary[Any, Mean] = weakref.WeakKeyDictionary()
        #: By the operation that made a gradient, where a term of the loss that depends on variables
        #: alone was added to it.
        self._terms: weakref.WeakKeyDictionary[Any, Position | None] = weakref.WeakKeyDictionary()
        #: By the operation of a collective, the line of the function that a replica runs.
        self._of_replicas: weakref.WeakKeyDictionary[Any, Position] = weakref.WeakKeyDictionary()
        #: Of each graph, the results that are means over a replica's own batch.
        self._returned: weakref.WeakKeyDictionary[Any, tuple[tuple[int, Mean], ...]] = (
            weakref.WeakKeyDictionary()
        )
        #: Sums of such results over replicas, outside of graphs.
        self.eager_sums: dict[SummedMean, None] = {}
        #: Of each graph, sums over replicas of means over their own batches.
        self._sums: weakref.WeakKeyDictionary[Any, list[tuple[Any, SummedMean]]] = (
            weakref.WeakKeyDictionary()
        )

    def install(self) -> None:
        """Look at losses from now on."""
        from tensorflow.python.distribute import distribute_lib
        from tensorflow.python.eager import backprop

        original = backprop.GradientTape.gradient
        record = self

        @functools.wraps(original)
        def gradient(tape: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            found = original(tape, target, *args, **kwargs)
            record._note(target, found)
            return found

        reduces = distribute_lib.StrategyBase.reduce

        @functools.wraps(reduces)
        def reduce(strategy: Any, reduce_op: Any, value: Any, axis: Any = None) -> Any:
            __tracebackhide__ = True
            made = reduces(strategy, reduce_op, value, axis)
            if axis is None and str(getattr(reduce_op, "name", reduce_op)).upper() == "SUM":
                record._note_sum(strategy, value, made)
            return made

        distribute_lib.StrategyBase.reduce = reduce
        backprop.GradientTape.gradient = gradient

    def _note(self, target: Any, gradients: Any) -> None:
        """Remember gradients of a mean; anything unusual is left alone."""
        if not hasattr(target, "graph") or isinstance(gradients, dict):
            return
        listed = gradients if isinstance(gradients, (list, tuple)) else [gradients]
        made_by = [one.op for one in listed if hasattr(one, "op")]
        added = _adds_variables(target)
        if added is not None:
            self._terms.update(dict.fromkeys(made_by, self.users_line(added)))
        found = _mean(target)
        if found is None:
            return
        op, scaled, divided_by = found
        lines = (self.users_line(one) for one in _scaled_terms(target))
        mean = Mean(self.users_line(op), scaled, divided_by, tuple(filter(None, lines)))
        self._means.update(dict.fromkeys(made_by, mean))

    def _note_sum(self, strategy: Any, value: Any, made: Any) -> None:
        """Remember a sum over replicas of means over their own batches, in a graph."""
        own = getattr(value, "values", (value,))
        if strategy.num_replicas_in_sync < 2:
            return
        if own and (mark := getattr(own[0], _MARK, None)) is not None:
            self.eager_sums[
                SummedMean(
                    where=users_position(sys._getframe(1)),
                    mean_at=mark.where,
                    replicas=int(strategy.num_replicas_in_sync),
                )
            ] = None
            return
        if not hasattr(made, "graph"):
            return
        if not own or not hasattr(own[0], "graph"):
            return
        found = _mean(own[0])
        if found is None or found[1] or found[2] is not None or not hasattr(made, "op"):
            return
        noted = SummedMean(
            where=self.users_line(made.op) or users_position(sys._getframe(1)),
            mean_at=self.users_line(found[0]),
            replicas=int(strategy.num_replicas_in_sync),
        )
        graph = made.graph
        while graph is not None:  # a loop in a graph is a graph within it
            self._sums.setdefault(graph, []).append((made, noted))
            graph = getattr(graph, "outer_graph", None)

    def mark_results(self, graph: Any, results: Any) -> None:
        """Mark the results of a graph that are means over a replica's own batch."""
        means = self._returned.get(graph)
        if means is None:
            found = [(at, _mean(one)) for at, one in enumerate(graph.outputs[:_MOST_RESULTS])]
            means = self._returned[graph] = tuple(
                (at, Mean(self.users_line(mean[0]), scaled=False, divided_by=None))
                for at, mean in found
                if mean is not None and not mean[1] and mean[2] is None
            )
        if not means:
            return
        import tensorflow as tf

        flat = tf.nest.flatten(results, expand_composites=True)
        if len(flat) == len(graph.outputs):
            for at, mean in means:
                with contextlib.suppress(AttributeError):  # a graph's own tensor
                    setattr(flat[at], _MARK, mean)

    def means_of(self, graph: Any) -> frozenset[int]:
        """The places of the results of a graph that are means over a replica's own batch."""
        return frozenset(at for at, _ in self._returned.get(graph, ()))

    def sums_in(self, graph: Any) -> list[SummedMean]:
        """The sums of means in a graph that nothing in it divides afterwards."""
        return [noted for made, noted in self._sums.get(graph, ()) if not _is_scaled(made)]

    def mean_of(self, values: Sequence[Any]) -> Mean | None:
        """The mean of which all these gradients are, unchanged; None if there is none."""
        gradients = [one[0] if isinstance(one, tuple) else one for one in values]
        made_by = [getattr(one, "op", None) for one in gradients if one is not None]
        found = [self._mean_behind(op) for op in made_by]
        return found[0] if found and all(one is not None for one in found) else None

    def _mean_behind(self, op: Any) -> Mean | None:
        for _ in range(_MOST_FORMS):
            if op is None or op in self._means:
                break
            op = op.inputs[0].op if op.type in _FORMS and len(op.inputs) else None
        return self._means.get(op) if op is not None else None

    def term_of(self, values: Sequence[Any]) -> Position | None:
        """Where a term of variables alone was added to the loss of which these are gradients."""
        gradients = [one[0] if isinstance(one, tuple) else one for one in values]
        made_by = [one.op for one in gradients if hasattr(one, "op")]
        return next((self._terms[op] for op in made_by if op in self._terms), None)

    def users_line(self, op: Any) -> Position | None:
        """The user's line that made an operation."""
        if op in self._of_replicas:
            return self._of_replicas[op]
        for frame in reversed(list(op.traceback or ())):
            found = position_of(frame.filename, frame.lineno, frame.name)
            if found is not None:
                return found
        return None

    def note_collective(self, tensor: Any) -> None:
        """Note the user's line of a collective that is added to a graph.

        It is made on the main thread, while the thread of the replica, where the user's function
        is, waits for it.
        """
        op = getattr(tensor, "op", None)
        while op is not None and not op.type.startswith("Collective") and len(op.inputs):
            op = op.inputs[0].op
        if op is None or not op.type.startswith("Collective"):
            return
        for thread in threading.enumerate():
            if not type(thread).__name__.endswith(_REPLICA):
                continue
            found = position_in(sys._current_frames().get(thread.ident or 0))
            if found is not None:
                self._of_replicas[op] = found
                return


def _mean(target: Any) -> tuple[Any, bool, float | None] | None:
    """The operation that takes the mean of a loss over the batch, and whether it is scaled later.

    A sum that is divided by the size of the batch is one, too, or by a constant, which comes with
    it. Other terms may be added to it. None if there is none.
    """
    waiting = [(target.op, False)]
    for _ in range(_MOST_OPERATIONS):
        if not waiting:
            return None
        op, scaled = waiting.pop(0)
        if op.type == "Mean" and _is_of_batch(op):
            return op, scaled, None
        if op.type in _DIVIDES and _is_sum(op.inputs[0].op):
            by = _constant(op.inputs[1])
            if by is not None or _is_own_size(op.inputs[1]):
                return op, scaled, by
        if op.type in _SAME:
            waiting.append((op.inputs[0].op, scaled))
        elif op.type in _ADDS:
            waiting += [(one.op, scaled) for one in op.inputs]
        elif op.type in _SCALES:
            waiting += [(one.op, True) for one in op.inputs]
    return None


def _scaled_terms(target: Any) -> list[Any]:
    """The operations that scale a term of a loss."""
    waiting, found = [target.op], []
    for _ in range(_MOST_OPERATIONS):
        if not waiting:
            break
        op = waiting.pop(0)
        if op.type in _SCALES:
            found.append(op)
        elif op.type in _SAME or op.type in _ADDS:
            waiting += [one.op for one in op.inputs]
    return found


def _adds_variables(target: Any) -> Any:
    """The operation that adds a term of variables alone to a loss, such as a sum of squares.

    None if nothing adds one, or if the term is scaled by the number of replicas.
    """
    from tensorflow.python.distribute import distribute_lib

    waiting = [target.op]
    for _ in range(_MOST_OPERATIONS):
        if not waiting:
            return None
        op = waiting.pop()
        if op.type not in _SAME and op.type not in _ADDS:
            continue
        for term in (one.op for one in op.inputs):
            if op.type in _ADDS and len(op.inputs) > 1 and _of_variables_alone(term):
                replicas = distribute_lib.get_strategy().num_replicas_in_sync
                return None if _is_scaled_by(term, float(replicas)) else op
            waiting.append(term)
    return None


def _of_variables_alone(op: Any) -> bool:
    """Whether a number depends on variables, and on nothing else that may differ."""
    waiting, variables = [op], 0
    for _ in range(_MOST_OF_VARIABLES):
        if not waiting:
            return variables > 0
        one = waiting.pop()
        if one.type == "ReadVariableOp":
            variables += 1
        elif not len(one.inputs) and one.type != "Const":
            return False
        else:
            waiting += [each.op for each in one.inputs]
    return False


def _is_scaled_by(op: Any, replicas: float) -> bool:
    """Whether a term is multiplied or divided by a number of replicas."""
    waiting = [op]
    for _ in range(_MOST_OPERATIONS):
        if not waiting:
            return False
        one = waiting.pop()
        if one.type in _SCALES:
            factors = [_constant(each) for each in one.inputs]
            if any(by is not None and by in (replicas, 1 / replicas) for by in factors):
                return True
        if one.type in _SCALES or one.type in _SAME or one.type in _ADDS:
            waiting += [each.op for each in one.inputs]
    return True


def _is_scaled(tensor: Any) -> bool:
    """Whether what is made of a tensor in its graph multiplies or divides it."""
    waiting, seen = [tensor], 0
    while waiting and seen < _MOST_OPERATIONS:
        for op in waiting.pop().consumers():
            seen += 1
            if op.type in _SCALES:
                return True
            if op.type in _SAME or op.type in _ADDS:
                waiting += op.outputs
    return False


def _constant(tensor: Any) -> float | None:
    from tensorflow.python.framework import tensor_util

    op = tensor.op
    while op.type in _SAME:
        op = op.inputs[0].op
    if op.type == "StridedSlice":  # a number of a shape that is known when the graph is made
        whole, at = (tensor_util.constant_value(one) for one in op.inputs[:2])
        if whole is None or at is None or whole.ndim != 1 or at.size != 1:
            return None
        return float(whole[int(at[0])]) if op.get_attr("shrink_axis_mask") else None
    found = tensor_util.constant_value(op.outputs[0])
    return float(found) if found is not None and found.size == 1 else None


def _is_sum(op: Any) -> bool:
    while op.type in _SAME:
        op = op.inputs[0].op
    return op.type == "Sum" and _is_of_batch(op)


def _is_own_size(tensor: Any) -> bool:
    """Whether a number is how many samples, or how many that a mask leaves, a replica's batch has.

    What is multiplied, such as by the number of replicas, is not known.
    """
    op = tensor.op
    for _ in range(_MOST_OPERATIONS):
        if op.type in _SIZES:
            return True
        if op.type == "Sum":
            return _is_of_batch(op)
        if op.type not in _OF_SIZE or not len(op.inputs):
            return False
        op = op.inputs[0].op
    return False


def _is_of_batch(op: Any) -> bool:
    """Whether a mean makes one number of many."""
    of, made = op.inputs[0].shape, op.outputs[0].shape
    return bool(made.rank == 0 and of.rank)
