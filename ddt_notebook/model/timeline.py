"""What one rank did at what time, measured while a cell ran with ``trace=True``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

SpanKind = Literal["forward", "backward", "optimizer", "data", "collective", "wait", "user"]

#: Before the name of a collective that TensorFlow runs inside of a graph.
IN_GRAPH = "graph:"
_PREFIXES: tuple[tuple[str, SpanKind], ...] = (
    (IN_GRAPH, "collective"),
    ("gloo:", "collective"),
    ("nccl:", "collective"),
    ("Optimizer.", "optimizer"),
    ("enumerate(DataLoader)", "data"),
)
#: Names of spans that the tracer itself adds.
BACKWARD, WAIT = "backward", "wait for a handle"
OPTIMIZER_STEP, READ_PIPELINE = "Optimizer.step", "tf.data"
_NAMES: dict[str, SpanKind] = {
    BACKWARD: "backward",
    WAIT: "wait",
    READ_PIPELINE: "data",
    "DistributedDataParallel.forward": "forward",
}


def kind_of(name: str) -> SpanKind:
    """The kind of a span, by its name in PyTorch's profiler."""
    if name in _NAMES:
        return _NAMES[name]
    return next((kind for prefix, kind in _PREFIXES if name.startswith(prefix)), "user")


@dataclass(frozen=True, slots=True)
class Span:
    """A measured operation; its times are monotonic seconds, on the same clock for all ranks."""

    name: str
    kind: SpanKind
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """The spans of one rank, in columns because there may be very many.

    Attributes
    ----------
    rank
        Global rank.
    started_s, ended_s
        When the cell started and ended on this rank, on the machine's monotonic clock.
    traced_until_s
        When recording stopped, which is before ``ended_s`` if the cell was too long for a trace.
    names
        The distinct names of spans: ``"gloo:all_reduce"``, ``"Optimizer.step#SGD.step"``.
    name, start_us, duration_us
        For each span, in order of time: index in ``names``, microseconds since ``started_s``, and
        duration in microseconds.
    steps_us
        When each optimizer step ended, in microseconds since ``started_s``.
    buckets
        Bytes of the gradient buckets of each DDP model, in the order in which they are reduced.
    spans_left_out
        How many later spans were dropped because there were too many.
    """

    rank: int
    started_s: float = 0.0
    ended_s: float = 0.0
    traced_until_s: float | None = None
    names: tuple[str, ...] = ()
    name: tuple[int, ...] = ()
    start_us: tuple[int, ...] = ()
    duration_us: tuple[int, ...] = ()
    steps_us: tuple[int, ...] = ()
    buckets: tuple[tuple[int, ...], ...] = ()
    spans_left_out: int = 0

    def __post_init__(self) -> None:
        if not len(self.name) == len(self.start_us) == len(self.duration_us):
            raise ValueError("name, start_us and duration_us have different lengths")
        if self.name and not 0 <= min(self.name) <= max(self.name) < len(self.names):
            raise ValueError("a span has a name that is not in names")

    def spans(self) -> Iterator[Span]:
        """Each span."""
        kinds = [kind_of(name) for name in self.names]
        for name, start, duration in zip(self.name, self.start_us, self.duration_us, strict=True):
            begin_s = self.started_s + start / 1e6
            yield Span(self.names[name], kinds[name], begin_s, begin_s + duration / 1e6)

    def intervals(self) -> dict[SpanKind, list[tuple[float, float]]]:
        """Beginning and end of the spans of each kind, in monotonic seconds."""
        kinds = [kind_of(name) for name in self.names]
        found: dict[SpanKind, list[tuple[float, float]]] = {}
        for name, start, duration in zip(self.name, self.start_us, self.duration_us, strict=True):
            begin_s = self.started_s + start / 1e6
            found.setdefault(kinds[name], []).append((begin_s, begin_s + duration / 1e6))
        return found

    @property
    def steps_s(self) -> tuple[float, ...]:
        """When each optimizer step ended, in monotonic seconds."""
        return tuple(self.started_s + step / 1e6 for step in self.steps_us)
