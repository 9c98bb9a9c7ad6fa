"""The values that a rank read from tensors while it evaluated and then wrote to its output."""

from __future__ import annotations

from dataclasses import dataclass, field

from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownValue:
    """A value of an evaluation that a rank wrote, such as with ``print`` or a logger.

    No call of ``torch.distributed`` was given it between the evaluation's last input and the
    output, so the value is this rank's own.

    Attributes
    ----------
    where
        The user's line that wrote it.
    taken
        The user's line that read the value from a tensor, such as by ``item()``.
    value
        The value.
    text
        The line of output, shortened.
    loop
        The line of the loop over a loader that fed the evaluation; None if no loader fed it.
    form
        What it is of the values that were read: a key of `OwnResults.results`.
    beside
        Whether calls of ``torch.distributed`` carried other data in between.
    """

    where: Position
    taken: Position
    value: float
    text: str = ""
    loop: Position | None = None
    form: str = ""
    beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnResults:
    """What a rank could have shown of the values that one line read in its last evaluation.

    Attributes
    ----------
    taken
        The user's line that read the values.
    samples
        How many samples the evaluation had.
    results
        Their last one, sum, mean and so on, by name.
    """

    taken: Position
    samples: int = 0
    results: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedInput:
    """What a forward pass through DDP without gradients was given.

    Attributes
    ----------
    content
        Fingerprint of its tensors.
    storage_bytes, offset
        Size of the memory of which the first tensor is a part, and where in it the tensor begins,
        in elements; 0 and 0 if the tensor has its own memory.
    """

    content: int
    storage_bytes: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulated:
    """A number that an evaluation has added to from batch to batch.

    Attributes
    ----------
    name
        The variable, with the attributes that lead to the number.
    loop
        The line of the loop.
    epoch
        Number of the pass over the loader in this run, counted from 1.
    batches, samples
        How many the loop read.
    even
        Whether all batches had equally many samples.
    total
        The sum of what the batches added.
    weighted
        The same, with what each batch added times its number of samples.
    """

    name: str
    loop: Position
    epoch: int
    batches: int
    samples: int
    even: bool
    total: float
    weighted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNumber:
    """A number that a rank wrote after it had exchanged results of an evaluation.

    Attributes
    ----------
    where
        The user's line that wrote it.
    number
        The number as it was written.
    text
        The line of output, shortened.
    """

    where: Position
    number: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShown:
    """What one rank showed of its evaluations in a run.

    Attributes
    ----------
    rank
        Global rank.
    values
        The values, the latest of each line that wrote one.
    own
        What it could have shown of the last evaluation, by line that read.
    inputs
        What the first forward passes through DDP without gradients were given.
    evaluated
        Number of forward passes through DDP without gradients.
    wrote
        The user's lines that wrote a decimal number after an evaluation.
    accumulated
        What the last evaluation over a loader added up, if the loop reached the loader's end.
    given
        The numbers that calls of ``torch.distributed`` were given after that evaluation.
    numbers
        The numbers that were written after these calls.
    complete
        False if a limit or an error ended the record early: then a line that is missing in it may
        have written, too.
    """

    rank: int
    values: tuple[ShownValue, ...] = ()
    own: tuple[OwnResults, ...] = ()
    inputs: tuple[EvaluatedInput, ...] = ()
    evaluated: int = 0
    wrote: tuple[Position, ...] = ()
    accumulated: tuple[Accumulated, ...] = ()
    given: tuple[float, ...] = ()
    numbers: tuple[ShownNumber, ...] = ()
    complete: bool = True
