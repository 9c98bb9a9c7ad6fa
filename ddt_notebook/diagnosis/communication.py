"""Reports what the cell itself sends while it trains: gradients, parameters, single numbers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ddt_notebook.model import Call, RankReport
from ddt_notebook.model.collective import shape_label
from ddt_notebook.model.frameworks import known_operation
from ddt_notebook.model.frameworks.deepspeed import ENGINE_READY, MEMBERS

#: A tensor with at most this many elements may be a loss, a count or a metric. From 4 to 32 no
#: verdict on the recorded runs changes (`benchmarks.thresholds`).
_METRIC = 16
#: Each rank sends a part of its own to each other rank.
_EXCHANGES = frozenset({"all_to_all", "all_to_all_single"})
#: Digits of a number that is too large for the size of a tensor.
_LONGEST_SIZE = 19


@dataclass(frozen=True)
class Communication:
    """The calls of one rank in a run that could keep replicas equal.

    Attributes
    ----------
    reduced
        How often a tensor of each shape was reduced.
    broadcast
        How often a tensor of each shape was broadcast.
    other
        Number of calls with an unknown purpose: messages, larger gathers, calls of other libraries.
    messages
        Number of messages between two ranks, and of exchanges between all. Embedding tables and
        experts that each rank has for itself are reached by exchanges.
    """

    reduced: Counter[str]
    broadcast: Counter[str]
    other: int = 0
    messages: int = 0

    def reductions_of(self, shapes: dict[str, int]) -> dict[str, int]:
        """Return how often each of these shapes was reduced, without shapes that were not."""
        found = {shape: self.reduced[shape] for shape in shapes if self.reduced[shape]}
        # a loss can have the same shape as a bias
        if len(found) < len(shapes) and all(elements(shape) == 1 for shape in found):
            return {}
        return found

    def is_opaque(self, shapes: dict[str, int], beside: Container[str] = ()) -> bool:
        """Whether something large other than a parameter was sent: a bucket or an activation.

        Parameters
        ----------
        shapes
            How many parameters have each shape.
        beside
            Shapes of parameters that another optimizer steps.
        """
        sent = [shape for shape in self.reduced + self.broadcast if shape not in shapes]
        whole = all_elements(shapes)
        return bool(self.other) or any(
            (elements(shape) > _METRIC and shape not in beside) or 1 < elements(shape) == whole
            for shape in sent
        )

    def passes_activations(self, shapes: dict[str, int]) -> bool:
        """Whether ranks may hold different parts of one model, whose parameters have these shapes.

        Stages of a pipeline send messages. Tensor parallelism reduces tensors that are neither
        parameters, nor all of them in one bucket, nor metrics.
        """
        whole = all_elements(shapes)
        return bool(self.messages) or any(
            shape not in shapes and _METRIC < elements(shape) != whole for shape in self.reduced
        )


def communication(report: RankReport) -> Communication:
    """Return what one rank sent in the run, without what DDP sent for it."""
    reduced: Counter[str] = Counter()
    broadcast: Counter[str] = Counter()
    other = messages = 0
    for call in report.calls:
        shapes = [shape_label(shape) for shape in call.shapes]
        operation = known_operation(call.op)
        if call.kind == "setup" or _is_ddp(call) or (operation and operation.tensors is None):
            continue  # it sends objects, or only a signal
        messages += call.kind == "p2p" or call.op in _EXCHANGES
        if call.kind == "p2p" or call.source == "flight recorder":
            other += 1
        elif operation is not None and operation.reduces:
            reduced.update(shapes)
        elif call.op == "broadcast":
            broadcast.update(shapes)
        elif max(map(elements, shapes), default=0) > _METRIC:
            other += 1
    return Communication(reduced, broadcast, other + report.calls_dropped, messages)


def hold_parts(reports: Iterable[RankReport], shapes: Iterable[str]) -> bool:
    """Whether ranks may hold different parts of one model, judged by what they sent.

    Parameters
    ----------
    reports
        The ranks' calls.
    shapes
        The shape of each parameter, such as ``"10×20"``.
    """
    reports, counted = list(reports), Counter(shapes)
    everywhere = {report.rank for report in reports}
    if any(everywhere.issubset(team) for team in teams_of_engines(reports)):
        return False  # each rank has the whole model, whose gradients the engine reduces in pieces
    return any(communication(report).passes_activations(counted) for report in reports)


def teams_of_engines(reports: Iterable[RankReport]) -> Iterator[tuple[int, ...]]:
    """Yield the ranks among which each of DeepSpeed's engines of the run averages gradients."""
    for report in reports:
        for call in report.calls:
            if call.op == ENGINE_READY and call.detail:
                yield tuple(json.loads(call.detail).get(MEMBERS, ()))


def reduce_nothing(reports: Iterable[RankReport]) -> bool:
    """Whether no rank reduced a tensor or sent a message, by itself or in a library."""
    return not any(
        call.kind == "p2p"
        or call.source == "flight recorder"
        or _is_ddp(call)
        or ((operation := known_operation(call.op)) is not None and operation.reduces)
        for report in reports
        for call in report.calls
    )


def may_be_averaged(reports: Iterable[RankReport], shapes: Iterable[str]) -> bool:
    """Whether each rank reduced tensors that may be gradients or parameters, to average them.

    These have the shape of each parameter, or are larger than a metric: a bucket, or a shard.

    Parameters
    ----------
    reports
        The ranks' calls.
    shapes
        The shape of each parameter, such as ``"10×20"``.
    """
    counted = Counter(shapes)
    sent = [communication(report) for report in reports]
    return bool(sent) and all(
        one.reductions_of(counted).keys() == counted.keys()
        or any(elements(shape) > _METRIC for shape in one.reduced if shape not in counted)
        for one in sent
    )


def _is_ddp(call: Call) -> bool:
    return call.caller is not None and "DistributedDataParallel" in call.caller


def all_elements(shapes: Mapping[str, int]) -> int:
    """Return the number of elements of all tensors, whose numbers are given by shape."""
    return sum(elements(shape) * times for shape, times in shapes.items())


def elements(shape: str) -> int:
    """Return the number of elements of ``"10×20"`` or ``"scalar"``; 0 if it is no shape."""
    if shape == "scalar":
        return 1
    sizes = shape.split("×")
    if not all(size.isdecimal() and len(size) < _LONGEST_SIZE for size in sizes):
        return 0  # of a file that was changed
    return math.prod(map(int, sizes))
