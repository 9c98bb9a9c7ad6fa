"""What the user's own collectives were given, and what became of their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .position import Position
from .shown import ShownNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanOf:
    """Numbers in reach of a call whose mean is a value that the call was given.

    Attributes
    ----------
    name
        The variable with the numbers, or with the number by which a sum was divided.
    count
        How many numbers there are.
    element
        Which element of the tensor is their mean.
    """

    name: str
    count: int
    element: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedValue:
    """A value that a line of the user's code read from a tensor, or gave to a scheduler.

    Attributes
    ----------
    where
        The line.
    value
        The value.
    """

    where: Position
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMean:
    """A number that was written and is the mean of a line's results, from its first call on.

    Attributes
    ----------
    number
        The number that was written.
    value
        The mean.
    count
        Over how many calls.
    """

    number: ShownNumber
    value: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """One call of a collective, of those of its line that were examined.

    Attributes
    ----------
    op, reduce_op, root
        As in `Call`.
    where
        The user's line.
    number
        Which call of this line in the run, counted from 1.
    members
        The ranks of its group.
    backwards
        How many backward passes the process had made.
    of_loss
        Whether an element is the loss of the last or the next backward pass, or a multiple of it.
    given, result
        The elements of a small tensor before and after it was reduced.
    means
        What the elements are means of, as numbers in reach of the line show.
    sums
        The tensors in reach of the line of whose rows the elements are the sums, with their rows.
    counts
        Whole numbers in reach of the line, by name.
    reads
        Where the result, or its mean over the ranks, was read from a tensor.
    scheduled
        Where that was given to a scheduler that lowers the learning rate.
    written
        Decimal numbers that may be the result, or its mean over the ranks or those counts.
    averaged
        A mean of the results of this call and later ones of its line, such as a meter shows.
    gradient
        Of a gathered tensor: ``"carried"`` if it was passed with its gradient, which ends there;
        ``"stopped"`` if the program itself ended the gradient; empty if there is none.
    loss
        The line that called ``backward`` on a loss that uses what was gathered as a constant.
    """

    op: str
    where: Position
    number: int
    members: tuple[int, ...]
    backwards: int = 0
    of_loss: bool = False
    reduce_op: str | None = None
    root: int | None = None
    given: tuple[float, ...] = ()
    result: tuple[float, ...] = ()
    means: tuple[MeanOf, ...] = ()
    sums: tuple[MeanOf, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    reads: tuple[UsedValue, ...] = ()
    scheduled: tuple[UsedValue, ...] = ()
    written: tuple[ShownNumber, ...] = ()
    averaged: tuple[WrittenMean, ...] = ()
    gradient: Literal["", "carried", "stopped"] = ""
    loss: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRead:
    """A line that read a tensor which an asynchronous call had not delivered yet.

    Attributes
    ----------
    op
        As in `Call`.
    where, read_at
        The user's lines that made the call and that read the tensor.
    times
        How often, of the calls that were watched.
    """

    op: str
    where: Position
    read_at: Position
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExchanged:
    """What one rank gave to other ranks in a run, in collectives that its own code calls.

    Attributes
    ----------
    rank
        Global rank.
    values
        The examined calls: of each line the first, second, fourth, eighth and so on.
    early
        The lines that read a tensor before ``wait()``.
    """

    rank: int
    values: tuple[Exchanged, ...] = ()
    early: tuple[EarlyRead, ...] = ()
