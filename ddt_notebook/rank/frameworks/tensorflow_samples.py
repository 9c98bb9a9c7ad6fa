"""Counts what a worker of TensorFlow reads from ``tf.data``, and takes fingerprints of samples.

A step is added at the end of the worker's own part of a pipeline. It counts each batch inside of
TensorFlow. Of the first batches of each pass, it also hands fingerprints of the samples to Python:
a call into Python for each batch would take longer than the rest of a small pipeline.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...model import Position
from ...model.partition import Epoch, LoaderPartition
from ...model.tensorflow import PipelineRead

#: Of so many batches of a pass, and of so many samples, fingerprints are taken.
_BATCHES, _SAMPLES = 64, 1024
#: Passes and pipelines that are kept.
_PASSES, _PIPELINES = 20, 16
#: TensorFlow's number for data sets without an end; another negative one says "not known".
_ENDLESS, _NOT_KNOWN = -1, -2


@dataclass
class _Pass:
    number: int
    in_cell: int
    run: int
    #: How many batches and samples the pipeline had given before.
    before: tuple[int, int]
    content: dict[int, None] = field(default_factory=dict)
    #: Whether a sample came again: what follows is a repetition, or drawn with replacement.
    repeats: bool = False
    sizes: Counter[int] = field(default_factory=Counter)
    #: How many it had given when the next pass began; None while this is the last one.
    after: tuple[int, int] | None = None
    ended: bool = False
    #: The first batch whose numbers were not all finite, counted from 1; 0 for none.
    not_finite: int = 0


class Pipeline:
    """What was read from one pipeline on this worker."""

    def __init__(self, where: Position | None, policy: str, *, trains: bool) -> None:
        self.where, self.policy, self.trains = where, policy, trains
        self.run = 0
        #: Why batches were not counted, and the run in which none could be.
        self.problem = ""
        self.uncounted_in: int | None = None
        #: The data set as the program made it, and as it iterates over it.
        self.objects: tuple[weakref.ref[Any], ...] = ()
        #: The number of batches in a pass; negative if there is no end or it is not known.
        self.expected = _NOT_KNOWN
        self._passes: deque[_Pass] = deque(maxlen=_PASSES)
        self._count: Any = None

    def observing(self, dataset: Any) -> Any:
        """The same data set, which counts what it gives."""
        import tensorflow as tf

        with tf.init_scope():
            found = int(dataset.cardinality())
            self.expected = found if found >= _ENDLESS else self.expected
            with tf.device("CPU:0"):
                self._count = tf.raw_ops.VarHandleOp(
                    dtype=tf.int64, shape=[2], shared_name=f"ddt-{id(self)}"
                )
                zero = tf.constant([0, 0], tf.int64)
                tf.raw_ops.AssignVariableOp(resource=self._count, value=zero)
        options = tf.data.Options()
        # read ahead at the end of the pipeline would count what no step gets
        options.experimental_optimization.inject_prefetch = False
        spec = dataset.element_spec
        parts = [
            at
            for at, part in enumerate(tf.nest.flatten(spec))
            if isinstance(part, tf.TensorSpec) and part.shape.rank
        ]
        if not parts:
            raise TypeError("no part of an element has a batch dimension")

        def look(number: Any, *element: Any) -> Any:
            flat = tf.nest.flatten(element)
            seen = [flat[at] for at in parts]
            size = tf.cast(tf.shape(seen[0])[0], tf.int64)
            given = tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64)
            more = tf.stack([tf.constant(1, tf.int64), size])

            def note() -> Any:
                marks = [tf.raw_ops.Fingerprint(data=t, method="farmhash64") for t in seen]
                finite = [tf.reduce_all(tf.math.is_finite(t)) for t in seen if t.dtype.is_floating]
                whole = tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)
                return tf.numpy_function(self._note, [number, given, whole, *marks], tf.bool)

            noted = tf.cond(number < _BATCHES, note, lambda: tf.constant(True))
            with tf.control_dependencies([noted]):
                tf.raw_ops.AssignAddVariableOp(resource=self._count, value=more)
            return element[0] if len(element) == 1 else element

        observed = dataset.enumerate().map(
            lambda number, element: (
                look(number, *element) if isinstance(element, tuple) else look(number, element)
            )
        )
        if found != _ENDLESS:
            observed = self._noting_end(observed, found)
        return observed.with_options(options)

    def _noting_end(self, dataset: Any, cardinality: int) -> Any:
        """The same data set, which notes when all of it was given."""
        import tensorflow as tf

        specs = tf.nest.flatten(dataset.element_spec)
        if not all(
            isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in specs
        ):
            return dataset

        def note(_: Any) -> Any:
            given = tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64)
            return tf.numpy_function(self._note_end, [given], tf.bool)

        def empty(_: Any) -> Any:
            made = [tf.zeros([size or 0 for size in x.shape], x.dtype) for x in specs]
            return tf.nest.pack_sequence_as(dataset.element_spec, made)

        # an element that is dropped when it is asked for, which is after the last one
        end = tf.data.Dataset.range(1).filter(note).map(empty)
        whole = dataset.concatenate(end)
        return (
            whole.apply(tf.data.experimental.assert_cardinality(cardinality))
            if cardinality >= 0
            else whole
        )

    def _note_end(self, given: Any) -> bool:
        last = self._passes[-1] if self._passes else None
        if last is None or last.ended or last.run != self.run:  # it had nothing to give
            self._begin((int(given[0]), int(given[1])))
        self._passes[-1].ended = True
        return False

    def _note(self, number: Any, given: Any, whole: Any, *marks: Any) -> bool:
        try:
            before = (int(given[0]), int(given[1]))
            if number == 0:
                self._begin(before)
            last = self._passes[-1]
            if not whole and not last.not_finite:
                last.not_finite = int(number) + 1
            rows = min(len(one) for one in marks)
            last.sizes[len(marks[0])] += 1
            if len(last.content) < _SAMPLES and not last.repeats:
                for row in np.concatenate([one[:rows] for one in marks], axis=1):
                    found = _number(row)
                    last.repeats = last.repeats or found in last.content
                    if last.repeats:
                        break
                    last.content[found] = None
        except Exception as error:  # noqa: BLE001  (the pipeline must go on)
            self.problem = f"{type(error).__name__}: {error}"
        return True

    def _begin(self, before: tuple[int, int]) -> None:
        latest = self._passes[-1] if self._passes else None
        in_cell = 1
        if latest is not None:
            latest.after = before
            in_cell = latest.in_cell + 1 if latest.run == self.run else 1
        number = latest.number + 1 if latest is not None else 1
        self._passes.append(_Pass(number, in_cell, self.run, before))

    def is_of(self, value: object) -> bool:
        """Whether this is the pipeline of a variable."""
        return value is not None and any(one() is value for one in self.objects)

    @property
    def last_run(self) -> int | None:
        """The run of the last pass; None if there was none."""
        return self._passes[-1].run if self._passes else None

    def described(self, name: str) -> LoaderPartition:
        """What was read so far."""
        total = self._total()
        sizes = sum((one.sizes for one in self._passes), Counter[int]())
        return LoaderPartition(
            name=name,
            dataset="endless tf.data" if self.expected == _ENDLESS else "tf.data",
            sampler=f"AutoShardPolicy.{self.policy}" if self.policy != "function" else "",
            indexed=False,
            batch_size=sizes.most_common(1)[0][0] if sizes else None,
            expected_batches=self.expected if self.expected >= 0 else None,
            epochs=tuple(self._epoch(one, total) for one in self._passes),
            problem=self.problem,
        )

    def read(self) -> PipelineRead:
        """What this run read."""
        total = self._total()
        passes = [one for one in self._passes if one.run == self.run]
        counts = [
            tuple(end - begin for begin, end in zip(one.before, one.after or total, strict=True))
            for one in passes
        ]
        return PipelineRead(
            where=self.where,
            trains=self.trains,
            batches=tuple(batches for batches, _ in counts),
            samples=tuple(samples for _, samples in counts),
            ended=tuple(one.ended for one in passes),
            not_finite=passes[-1].not_finite if passes else 0,
        )

    def _total(self) -> tuple[int, int]:
        import tensorflow as tf

        if self.uncounted_in is not None:
            return 0, 0
        given = tf.raw_ops.ReadVariableOp(resource=self._count, dtype=tf.int64).numpy()
        return int(given[0]), int(given[1])

    def _epoch(self, one: _Pass, total: tuple[int, int]) -> Epoch:
        batches, samples = (
            end - begin for begin, end in zip(one.before, one.after or total, strict=True)
        )
        whole = batches == self.expected
        return Epoch(
            number=one.number,
            in_cell=one.in_cell,
            run=one.run,
            batches=batches,
            samples=samples,
            complete=whole or self.expected < 0,
            # TensorFlow reads up to two batches ahead, so counts before the end differ by timing
            broken_off=not whole,
            content=tuple(one.content)[:_SAMPLES],
            trained=batches if self.trains else 0,
            where=self.where,
        )


def _number(row: Any) -> int:
    """A fingerprint of a sample from those of its parts; it fits into a signed number."""
    found = 0
    for part in row.reshape(-1, 8):
        found = (found * 1_000_003 ^ int.from_bytes(part.tobytes(), "little")) & (1 << 63) - 1
    return found


class SampleRecord:
    """The pipelines of this worker, oldest first."""

    def __init__(self) -> None:
        self.pipelines: list[Pipeline] = []
        self.run = 0

    def begin_run(self) -> None:
        """Begin a cell, and forget pipelines that no longer exist."""
        self.run += 1
        kept = (one for one in self.pipelines if any(ref() is not None for ref in one.objects))
        self.pipelines = list(kept)
        for one in self.pipelines:
            one.run = self.run

    def forget(self) -> None:
        """Forget all pipelines: what counted them has ended with TensorFlow's context."""
        self.pipelines = []

    @property
    def uncounted(self) -> bool:
        """Whether this run has a pipeline that could not be counted."""
        return any(one.uncounted_in == self.run for one in self.pipelines)

    def observing(self, pipeline: Pipeline, dataset: Any) -> Any:
        """The data set with a step that counts; as it was if that is not possible."""
        pipeline.run = self.run
        observed = dataset
        try:
            observed = pipeline.observing(dataset)
        except Exception as error:  # noqa: BLE001  (a pipeline of the user's own kind)
            pipeline.problem, pipeline.uncounted_in = f"{type(error).__name__}: {error}", self.run
        self.pipelines = [*self.pipelines, pipeline][-_PIPELINES:]
        return observed

    def reads(self) -> tuple[PipelineRead, ...]:
        """What this run read from each pipeline."""
        return tuple(one.read() for one in self.pipelines if one.last_run == self.run)

    def described(
        self, namespace: Mapping[str, Any], names: list[str] | None
    ) -> tuple[LoaderPartition, ...]:
        """What was read from the pipelines that variables hold or this run used."""
        found: list[LoaderPartition] = []
        for one in self.pipelines:
            name = next((name for name, value in namespace.items() if one.is_of(value)), "")
            if names and name not in names:
                continue
            if not name and self.run not in (one.last_run, one.uncounted_in):
                continue
            label = name or f"data of {one.where.place if one.where is not None else 'a strategy'}"
            alike = sum(x.name == label or x.name.startswith(f"{label} (") for x in found)
            found.append(one.described(f"{label} ({alike + 1})" if alike else label))
        return tuple(found)
