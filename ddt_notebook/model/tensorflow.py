"""What a rank observed of TensorFlow in a run: the data it distributed and the updates it made."""

from __future__ import annotations

from dataclasses import dataclass

from .position import Position


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
    """

    where: Position | None = None
    policy: str = ""
    content: str = ""
    shuffled: bool = False
    shuffled_before_share: bool = False


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
    of_mean
        Whether the gradients are those of a mean over the replica's own batch, unchanged, and the
        optimizer sums them over the replicas.
    scaled
        Whether the mean was multiplied or divided before the gradients were taken.
    mean_at
        Where that mean is taken.
    """

    where: Position | None = None
    replicas: int = 1
    variables: tuple[tuple[int, ...], ...] = ()
    optimizer: str = ""
    of_mean: bool = False
    scaled: bool = False
    mean_at: Position | None = None


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
    """

    name: str
    where: tuple[Position | None, ...] = ()


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
class RankTensorFlow:
    """What one rank observed.

    Attributes
    ----------
    rank
        Global rank.
    data
        The data sets, in order.
    updates
        The updates, one for each line and model.
    fits
        The calls of ``fit``, in order.
    graphs
        The graphs with collectives, the last one of each name.
    errors
        Exceptions in Python code of pipelines and graphs.
    """

    rank: int
    data: tuple[DistributedData, ...] = ()
    updates: tuple[OptimizerUpdates, ...] = ()
    fits: tuple[KerasFit, ...] = ()
    graphs: tuple[ExecutedGraph, ...] = ()
    errors: tuple[PipelineError, ...] = ()
