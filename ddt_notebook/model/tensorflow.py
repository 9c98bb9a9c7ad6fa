"""What a rank observed of TensorFlow in a run: the data it distributed and the updates it made."""

from __future__ import annotations

from dataclasses import dataclass

from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """A step of a pipeline of ``tf.data``.

    Attributes
    ----------
    name
        Its class, such as ``"ParallelMap"``.
    content
        A fingerprint of its functions: their operations and numbers; 0 if it has none.
    """

    name: str
    content: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LineNumbers:
    """The numbers with which a graph computes at one line.

    Attributes
    ----------
    where
        The user's line.
    numbers
        Constants with a fraction, in the order of the graph.
    """

    where: Position
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedData:
    """A data set that a strategy of several workers was given to train with.

    Attributes
    ----------
    where
        The user's line.
    policy
        Its auto-shard policy, such as ``"OFF"``; ``"function"`` if each worker made its own.
    content
        A hash of what the worker reads: the steps of the pipeline with their constants. Workers
        with equal hashes read the same samples. Empty if the pipeline depends on more, such as on
        Python code, or if TensorFlow divides the data itself.
    shuffled
        Whether the order is drawn anew on each worker, without a seed.
    shuffled_before_share
        Whether that happens before the worker takes its share: then shares hold the same samples.
    steps
        Its steps, the first one first; empty if they cannot be read.
    """

    where: Position | None = None
    policy: str = ""
    content: str = ""
    shuffled: bool = False
    shuffled_before_share: bool = False
    steps: tuple[PipelineStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRead:
    """What a worker read from a pipeline in the passes of a run.

    Attributes
    ----------
    where
        The user's line that distributed the data.
    trains
        Whether it is not for an evaluation.
    batches, samples
        Of each pass, how many batches and samples there were.
    ended
        Of each pass, whether the worker's share ended; False for data without an end.
    not_finite
        The first batch, counted from 1, of the last pass whose numbers were not all finite; 0 if
        all were. Only the first batches of a pass are looked at.
    """

    where: Position | None = None
    trains: bool = True
    batches: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    ended: tuple[bool, ...] = ()
    not_finite: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerUpdates:
    """Updates of variables by an optimizer of Keras.

    Attributes
    ----------
    where
        The user's line.
    replicas
        How many replicas of the model the strategy keeps equal, over all workers.
    variables
        Shape of each variable, in order.
    optimizer
        Its class.
    aggregates
        Whether the optimizer sums the gradients over the replicas.
    of_mean
        Whether the gradients are those of a mean over the replica's own batch, or of a sum over it
        that is divided by a constant, unchanged, and the optimizer sums them over the replicas.
    divided_by
        The number by which the sum of the replica's losses is divided, if it is constant; None
        for a mean.
    scaled
        Whether the mean was multiplied or divided before the gradients were taken.
    mean_at
        Where that mean is taken.
    terms_at
        Where other terms of the loss are multiplied or divided.
    own_term_at
        Where each replica adds a term to its loss that depends on variables alone, and that nothing
        divides by the number of replicas; None if there is no such term.
    """

    where: Position | None = None
    replicas: int = 1
    variables: tuple[tuple[int, ...], ...] = ()
    optimizer: str = ""
    aggregates: bool = True
    of_mean: bool = False
    divided_by: float | None = None
    scaled: bool = False
    mean_at: Position | None = None
    terms_at: tuple[Position, ...] = ()
    own_term_at: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedMean:
    """A mean over a replica's own batch of which the program took the sum over all replicas.

    Attributes
    ----------
    where
        The user's line of the sum.
    mean_at
        Where the mean is taken.
    replicas
        Over how many replicas the sum goes.
    """

    where: Position | None = None
    mean_at: Position | None = None
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasFit:
    """One call of ``Model.fit`` of Keras.

    Attributes
    ----------
    where
        The user's line.
    epochs
        How many epochs it was asked for.
    steps
        ``steps_per_epoch``; None if the data decide.
    batch_size
        ``batch_size``; None for a data set that is batched already, and for the default.
    validates
        Whether it evaluates after each epoch.
    epochs_left
        How many epochs it had to make when it began: a callback may resume an earlier call. None
        if no epoch began.
    class_weight
        A hash of ``class_weight``; empty if there is none.
    callbacks
        Classes of the callbacks that it was given.
    stopped
        The user's line at which training was stopped early, by ``stop_training``; None if it was
        not.
    """

    where: Position | None = None
    epochs: int = 1
    steps: int | None = None
    batch_size: int | None = None
    validates: bool = False
    epochs_left: int | None = None
    class_weight: str = ""
    callbacks: tuple[str, ...] = ()
    stopped: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedGraph:
    """The collectives of a graph that a worker executed.

    Attributes
    ----------
    name
        As in its records, such as ``"train_step()"``.
    where
        The user's line that adds each collective, in order.
    given
        The whole numbers that it was given last, if it has collectives in a loop; they may be how
        often the loop goes round.
    numbers
        The numbers with which it computes, by line.
    form
        A fingerprint of its operations and the shapes of their results; 0 if it is not known.
    """

    name: str
    where: tuple[Position | None, ...] = ()
    given: tuple[int, ...] = ()
    numbers: tuple[LineNumbers, ...] = ()
    form: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineError:
    """An exception in Python code that a pipeline or a graph called.

    Attributes
    ----------
    type, message
        Of the exception.
    where
        The user's line that raised.
    reached_program
        Whether TensorFlow raised an error in the program afterwards.
    """

    type: str
    message: str = ""
    where: Position | None = None
    reached_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredState:
    """What the mirrored variables of a graph were at one moment.

    Attributes
    ----------
    executed
        How often the graph had been executed in this run.
    values
        Fingerprints of the variables; -1 for one that is not finite.
    numbers
        The values of those that are a single number, None for the others.
    """

    executed: int
    values: tuple[int, ...] = ()
    numbers: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredVariables:
    """The variables that a graph with collectives reads and that a strategy keeps equal.

    Attributes
    ----------
    graph
        The graph, as in its records.
    where
        The user's line that executed it first.
    names
        Names of the variables.
    assigned
        The user's line in the graph that first assigns each of them; None if none is known.
    states
        Their states, before the first executions and at the end of the run.
    """

    graph: str
    where: Position | None = None
    names: tuple[str, ...] = ()
    assigned: tuple[Position | None, ...] = ()
    states: tuple[MirroredState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableWrite:
    """Assignments to a mirrored variable outside of graphs, at one line.

    Attributes
    ----------
    variable
        Its name.
    where
        The user's line.
    times
        How many there were.
    first, last
        How many graphs with collectives had been executed in this run before the first and the last
        of them.
    moment
        The number of the last one among this rank's assignments and restored checkpoints.
    """

    variable: str
    where: Position | None = None
    times: int = 1
    first: int = 0
    last: int = 0
    moment: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCheckpoint:
    """A checkpoint that the program restored.

    Attributes
    ----------
    where
        The user's line.
    found
        Whether there was one.
    executed
        How many graphs with collectives had been executed in this run before.
    name
        The last part of its path.
    content
        A fingerprint of its index, which holds a checksum of each variable; 0 if it is not known.
    moment
        Its number among this rank's assignments to mirrored variables and restored checkpoints.
    """

    where: Position | None = None
    found: bool = True
    executed: int = 0
    name: str = ""
    content: int = 0
    moment: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedLayer:
    """A layer of Keras whose state was computed from data, by ``adapt``.

    Attributes
    ----------
    where
        The user's line.
    layer
        Its class.
    content
        A fingerprint of its state; 0 if it is not known.
    """

    where: Position | None = None
    layer: str = ""
    content: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFiniteResult:
    """A number that a graph with collectives returned and that is nan or inf.

    Attributes
    ----------
    graph
        The graph, as in its records.
    where
        The user's line that executed it.
    value
        ``"nan"`` or ``"inf"``.
    executed
        How often the graph had been executed in this run before.
    lasting
        Whether the later results were not finite, either.
    """

    graph: str
    where: Position | None = None
    value: str = "nan"
    executed: int = 0
    lasting: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphResults:
    """The numbers that a graph with collectives returned.

    Attributes
    ----------
    graph
        Its name.
    first
        The numbers of the first executions in this run, in order.
    """

    graph: str
    first: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownResult:
    """A number in a line of output that a graph's result may be, or its sum or mean.

    Attributes
    ----------
    where
        The user's line that wrote it.
    graph, at
        The graph, and the place of the result among its numbers.
    text
        The line of output, shortened.
    estimate
        Whether the result is a mean over the replica's own batch.
    """

    where: Position
    graph: str
    at: int = 0
    text: str = ""
    estimate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasPolicy:
    """A global policy of Keras for data types, which the program has set.

    Attributes
    ----------
    name
        Its name, such as ``"mixed_float16"``.
    where
        The user's line.
    """

    name: str
    where: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSummary:
    """A number that was written with ``tf.summary``, as a curve of one folder.

    Attributes
    ----------
    folder, name
        The folder, with symbolic links resolved, and the name of the number.
    where
        The user's line that first wrote it.
    steps, numbers
        The first steps and what was written for them, as far as that is known: in a graph it is
        not.
    """

    folder: str
    name: str
    where: Position | None = None
    steps: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTensorFlow:
    """What one rank observed.

    Attributes
    ----------
    rank
        Global rank.
    data
        The data sets, in order.
    reads
        What was read from pipelines, in order.
    updates
        The updates, one for each line and model.
    summed
        Means that were summed over replicas, in graphs that were executed.
    fits
        The calls of ``fit``, in order.
    graphs
        The graphs with collectives, the last one of each name.
    errors
        Exceptions in Python code of pipelines and graphs.
    mirrored
        The variables that graphs with collectives read, one entry for each graph.
    writes
        What else wrote such variables.
    restored
        Checkpoints that were restored, in order.
    adapted
        Layers that computed their state from data, in order.
    not_finite
        The first result of each graph that was not finite.
    results
        The numbers that graphs returned.
    shown
        Those that the worker wrote to its output.
    wrote
        The lines that wrote numbers to the output after a graph had returned some.
    summaries
        What was written with ``tf.summary``, one entry for each curve.
    policies
        The global policies of Keras that the program set, in order.
    """

    rank: int
    data: tuple[DistributedData, ...] = ()
    reads: tuple[PipelineRead, ...] = ()
    updates: tuple[OptimizerUpdates, ...] = ()
    summed: tuple[SummedMean, ...] = ()
    fits: tuple[KerasFit, ...] = ()
    graphs: tuple[ExecutedGraph, ...] = ()
    errors: tuple[PipelineError, ...] = ()
    mirrored: tuple[MirroredVariables, ...] = ()
    writes: tuple[VariableWrite, ...] = ()
    restored: tuple[RestoredCheckpoint, ...] = ()
    adapted: tuple[AdaptedLayer, ...] = ()
    not_finite: tuple[NotFiniteResult, ...] = ()
    results: tuple[GraphResults, ...] = ()
    shown: tuple[ShownResult, ...] = ()
    wrote: tuple[Position, ...] = ()
    summaries: tuple[WrittenSummary, ...] = ()
    policies: tuple[KerasPolicy, ...] = ()
