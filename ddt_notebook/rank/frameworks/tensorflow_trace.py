"""Times what TensorFlow does inside of graphs, by its own profiler: a rank sees only their ends.

Events of the profiler become spans of the rank's timeline: the backward pass, the optimizer, the
wait for data, and each collective. A step ends with a graph that contains an optimizer's update.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from dataclasses import replace
from typing import Any

from ...model.timeline import BACKWARD, IN_GRAPH, OPTIMIZER_STEP, READ_PIPELINE, RankTimeline
from .tensorflow_profiler import Profile

#: The profiler ends after so many steps or seconds, since its events are kept in memory.
_MOST_STEPS, _MOST_S = 200, 120.0
_MOST_SPANS = 40_000
#: Operations of one kind that are this close to each other count as one span.
_GAP_NS = 50_000
#: Operations that read from a pipeline, and the scope of those of the backward pass.
_READS, _GRADIENTS = "IteratorGetNext", "gradient_tape"
_DONE = "::DoCompute"
#: The profiler's name of the moment at which it began.
_START = "profile_start_time"
#: Threads that read ahead of the steps.
_READERS = "tf_data_"

_Span = tuple[str, int, int]  # name, start and end in nanoseconds of the monotonic clock


class StepTrace:
    """The trace of one run, from `start` to `stop`."""

    def __init__(self) -> None:
        self._profile: Profile | None = None
        self._started_ns = self._ended_ns = 0
        self._epoch_ns = 0  # what the clock of the profiler is ahead of the monotonic clock
        self._events, self._folder = b"", ""
        self._steps: list[int] = []
        #: Graphs in which an optimizer updates variables, and the names of optimizers.
        self._updating: weakref.WeakSet[Any] = weakref.WeakSet()
        self._optimizers: set[str] = set()

    def start(self, directory: str | None) -> None:
        """Begin to record; the profiler writes into the session's folder."""
        from tensorflow.python.profiler.internal import _pywrap_profiler

        self._steps, self._events = [], b""
        self._folder = tempfile.mkdtemp(prefix="trace-", dir=directory)
        original = _pywrap_profiler.ProfilerSession

        def users_own(*args: Any, **kwargs: Any) -> Any:
            # there can be only one at a time: the user's own replaces this one
            self._end()
            return original(*args, **kwargs)

        try:
            self._started_ns = time.monotonic_ns()
            self._epoch_ns = time.time_ns() - self._started_ns
            self._profile = Profile(self._folder)
        except Exception:  # noqa: BLE001  (the user's own runs since an earlier cell)
            return
        self._original = original
        _pywrap_profiler.ProfilerSession = users_own

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        from tensorflow.python.profiler.internal import _pywrap_profiler

        _pywrap_profiler.ProfilerSession = self._original
        self._ended_ns = time.monotonic_ns()
        self._events = profile.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self, timeline: RankTimeline) -> RankTimeline:
        """End the trace; returns the rank's timeline with what it adds."""
        if not self._started_ns:
            return timeline
        self._end()
        began = round(timeline.started_s * 1e9)
        spans = _spans(self._events, self._epoch_ns, tuple(self._optimizers))
        spans.sort(key=lambda span: span[1])
        self._events, self._started_ns = b"", 0
        kept = spans[:_MOST_SPANS]
        names = list(timeline.names)
        numbers = {name: at for at, name in enumerate(names)}
        for name, _, _ in kept:
            if name not in numbers:
                numbers[name] = len(names)
                names.append(name)
        columns = [
            *zip(timeline.name, timeline.start_us, timeline.duration_us, strict=True),
            *((numbers[n], (s - began) // 1000, (e - s) // 1000) for n, s, e in kept),
        ]
        columns.sort(key=lambda column: column[1])
        until = timeline.traced_until_s
        if self._ended_ns and self._ended_ns / 1e9 < timeline.ended_s:
            until = min(until or timeline.ended_s, self._ended_ns / 1e9)
        return replace(
            timeline,
            traced_until_s=until,
            names=tuple(names),
            name=tuple(name for name, _, _ in columns),
            start_us=tuple(start for _, start, _ in columns),
            duration_us=tuple(duration for _, _, duration in columns),
            steps_us=tuple(
                sorted([*timeline.steps_us, *((at - began) // 1000 for at in self._steps)])
            ),
            spans_left_out=timeline.spans_left_out + len(spans) - len(kept),
        )

    # -- steps ---------------------------------------------------------------------------------

    def updates(self, optimizer: Any) -> None:
        """Note that an optimizer updates variables now, or in a graph that is being made."""
        import tensorflow as tf

        if tf.executing_eagerly():
            self._end_step()
            return
        graph = tf.compat.v1.get_default_graph()
        self._optimizers.add(str(getattr(optimizer, "name", "") or type(optimizer).__name__))
        while graph is not None:
            self._updating.add(graph)
            graph = getattr(graph, "outer_graph", None)

    def is_updating(self, graph: Any) -> bool:
        """Whether an optimizer updates variables in a graph."""
        return graph in self._updating

    def executed(self, graph: Any) -> None:
        """Note that a graph has been executed."""
        if self._started_ns and graph in self._updating:
            self._end_step()

    def _end_step(self) -> None:
        if not self._started_ns:
            return
        now = time.monotonic_ns()
        self._steps.append(now)
        if len(self._steps) >= _MOST_STEPS or now - self._started_ns > 1e9 * _MOST_S:
            self._end()


def _spans(events: bytes, epoch_ns: int, optimizers: tuple[str, ...]) -> list[_Span]:
    """The spans in what the profiler wrote."""
    if not events:
        return []
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    planes = xplane_pb2.XSpace.FromString(events).planes
    # the moment to which all times relate; a rank may have waited before it came to it
    started_ns = next(iter(filter(None, map(_start, planes))), 0) - epoch_ns
    found: dict[str, list[tuple[int, int]]] = {}
    for plane in planes:
        names = {key: _name(one.name, optimizers) for key, one in plane.event_metadata.items()}
        for thread in plane.lines:
            if thread.name.startswith(_READERS):
                continue
            began = started_ns + thread.timestamp_ns
            for event in thread.events:
                name = names.get(event.metadata_id)
                if name:
                    start = began + event.offset_ps // 1000
                    found.setdefault(name, []).append((start, start + event.duration_ps // 1000))
    return [
        (name, start, end)
        for name, pieces in found.items()
        for start, end in (pieces if name.startswith(IN_GRAPH) else _joined(pieces))
    ]


def _start(plane: Any) -> int:
    """When the profiler began, by the wall clock, if a plane says so; else 0."""
    for stat in plane.stats:
        if plane.stat_metadata[stat.metadata_id].name == _START:
            return int(stat.uint64_value)
    return 0


def _name(event: str, optimizers: tuple[str, ...]) -> str:
    """The name of the span to which an event belongs, by its name; empty for none."""
    if event.startswith(_READS):
        return READ_PIPELINE if event.endswith(_DONE) else ""
    operation, _, kind = event.rpartition(":")
    if kind.startswith("Collective"):
        return f"{IN_GRAPH}{kind}"
    scopes = operation.split("/")[:-1]
    if _GRADIENTS in scopes:
        return BACKWARD
    updates = bool(optimizers) and any(scope.startswith(optimizers) for scope in scopes)
    return OPTIMIZER_STEP if updates else ""


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces in order of time, with those that are close to each other as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(pieces):
        if joined and start - joined[-1][1] < _GAP_NS:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
